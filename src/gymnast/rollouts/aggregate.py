"""The metrics over a finished run, `x_aggregate_metrics.json`: one object for each agent."""

from __future__ import annotations

from collections import defaultdict
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final

import orjson

from gymnast.errors import CallError
from gymnast.kit.metrics import Aggregation
from gymnast.runtime.cell import Cell, CellOptions
from gymnast.runtime.loader import is_native
from gymnast.store.lines import numbered_lines
from gymnast.store.replacing import write_replacing
from gymnast.types.failure import Stage
from gymnast.types.task import PARAMS, agent_name_of
from gymnast.types.usage import CALL_CAPTURE, MODEL_USAGE

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Container, Iterable, Mapping

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
    ours = _summed_up_here(instances)
    streaming = {name: Aggregation() for name, asked in ask.items() if asked in ours}
    sent: dict[str, list[JsonObject]] = defaultdict(list)
    for _, line in numbered_lines(paths.output):
        row = orjson.loads(line)
        name = agent_name_of(row) or ""
        if name in streaming:
            streaming[name].add(row)
        else:
            sent[name].append(stripped_row(row))
    metrics: dict[str, Any] = {name: found.result() for name, found in streaming.items()}
    async with _reaching({ask.get(name, name) for name in sent}, instances, calls) as reached:
        for name, rows in sent.items():
            try:
                body = {"verify_responses": rows}
                metrics[name] = await reached.expect(ask.get(name, name), "/aggregate_metrics", body, stage=Stage.AGENT)
            except CallError as error:
                metrics[name] = {"error": error.detail.message}
    _write(paths, metrics)


def write_summed_metrics(paths: RunPaths, agents: Container[str]) -> None:
    """The same where nothing runs that could be asked: for these agents only, which are summed up here."""
    streaming: defaultdict[str, Aggregation] = defaultdict(Aggregation)
    for _, line in numbered_lines(paths.output):
        row = orjson.loads(line)
        name = agent_name_of(row) or ""
        if name in agents:
            streaming[name].add(row)
    _write(paths, {name: found.result() for name, found in streaming.items()})


def _write(paths: RunPaths, metrics: Mapping[str, JsonObject]) -> None:
    entries = [metrics_entry(name, metrics[name]) for name in sorted(metrics)]
    write_replacing(paths.aggregate_metrics, orjson.dumps(entries, option=orjson.OPT_INDENT_2) + b"\n")


@asynccontextmanager
async def _reaching(names: set[str], instances: Iterable[Instance], calls: Calls) -> AsyncIterator[Calls]:
    """Calls that reach these instances: those given, or, where they lived in workers, to a cell of their own."""
    known = {instance.name: instance for instance in instances}
    lost = [known[name] for name in names if name in known and not calls.knows(name)]
    if not lost:
        yield calls
        return
    refs = {ref.name for found in lost for ref in found.refs.values() if ref.kind == "resources_servers"}
    wanted = [*lost, *(known[name] for name in refs - {found.name for found in lost} if name in known)]
    blocks = {found.name: {found.kind: {found.implementation: dict(found.block)}} for found in known.values()}
    async with Cell(wanted, CellOptions(config=blocks)) as cell:
        yield cell.calls


def _summed_up_here(instances: Iterable[Instance]) -> set[str]:
    """Instances of ours, but for agents whose environment may have metrics of its own."""
    native = {instance.name: instance for instance in instances if instance.url is None and is_native(instance)}
    return {
        name
        for name, instance in native.items()
        if all(ref.name in native for ref in instance.refs.values() if ref.kind == "resources_servers")
    }


def metrics_entry(name: str, found: JsonObject) -> JsonObject:
    """What the file says of an agent."""
    if "error" in found:
        return {"agent_ref": {"name": name}, **found}
    order = ("agent_metrics", "key_metrics", "group_level_metrics")
    return {"agent_ref": {"name": name}, **{key: found.get(key) for key in order}}


def stripped_row(row: JsonObject) -> JsonObject:
    """What of a result is summed up."""
    kept = {key: value for key, value in row.items() if key not in _LEFT_OUT}
    usage = (row.get("response") or {}).get("usage")
    kept["response"] = {"usage": usage}
    return kept
