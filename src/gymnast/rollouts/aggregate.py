"""The metrics over a finished run, `x_aggregate_metrics.json`: one object for each agent."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any, Final

import orjson

from gymnast.errors import CallError
from gymnast.kit.metrics import Aggregation
from gymnast.runtime.loader import is_native
from gymnast.store.lines import numbered_lines
from gymnast.store.replacing import write_replacing
from gymnast.types.failure import Stage
from gymnast.types.task import PARAMS, agent_name_of
from gymnast.types.usage import CALL_CAPTURE, MODEL_USAGE

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from gymnast.config import Instance
    from gymnast.store.paths import RunPaths
    from gymnast.types.json import JsonObject
    from gymnast.wire.calls import Calls

_LEFT_OUT: Final = frozenset({PARAMS, "ng_agent_observations", CALL_CAPTURE, "ng_trajectory", MODEL_USAGE})


async def write_aggregate_metrics(
    paths: RunPaths, ask: Mapping[str, str], instances: Iterable[Instance], calls: Calls
) -> None:
    """Sum the scored rollouts up, agent by agent; `ask` says which instance does that for an agent.

    Instances of ours are not asked: their numbers are summed up here, one by one. Others are sent their rows.
    """
    ours = {instance.name for instance in instances if instance.url is None and is_native(instance)}
    streaming = {name: Aggregation() for name, asked in ask.items() if asked in ours}
    sent: dict[str, list[JsonObject]] = defaultdict(list)
    for _, line in numbered_lines(paths.output):
        row = orjson.loads(line)
        name = agent_name_of(row) or ""
        if name in streaming:
            streaming[name].add(row)
        else:
            sent[name].append(_stripped(row))
    metrics: dict[str, Any] = {name: found.result() for name, found in streaming.items()}
    for name, rows in sent.items():
        try:
            body = {"verify_responses": rows}
            metrics[name] = await calls.expect(ask.get(name, name), "/aggregate_metrics", body, stage=Stage.AGENT)
        except CallError as error:
            metrics[name] = {"error": error.detail.message}
    entries = [_entry(name, metrics[name]) for name in sorted(metrics)]
    write_replacing(paths.aggregate_metrics, orjson.dumps(entries, option=orjson.OPT_INDENT_2) + b"\n")


def _entry(name: str, found: JsonObject) -> JsonObject:
    if "error" in found:
        return {"agent_ref": {"name": name}, **found}
    order = ("agent_metrics", "key_metrics", "group_level_metrics")
    return {"agent_ref": {"name": name}, **{key: found.get(key) for key in order}}


def _stripped(row: JsonObject) -> JsonObject:
    kept = {key: value for key, value in row.items() if key not in _LEFT_OUT}
    usage = (row.get("response") or {}).get("usage")
    kept["response"] = {"usage": usage}
    return kept
