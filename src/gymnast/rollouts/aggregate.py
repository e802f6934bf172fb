"""The metrics of a finished run, `x_aggregate_metrics.json`: one object for each agent."""

from __future__ import annotations

from collections import defaultdict
from contextlib import asynccontextmanager
from typing import IO, TYPE_CHECKING, Any, Final

import orjson

from gymnast.errors import CallError
from gymnast.kit.custom_metrics import CustomMetrics
from gymnast.kit.metrics import Aggregation, aggregate
from gymnast.runtime.cell import Cell, CellOptions
from gymnast.runtime.loader import load_native
from gymnast.store.atomic import atomic_writer
from gymnast.store.lines import numbered_lines
from gymnast.types.failure import Stage
from gymnast.types.task import PARAMS, ROLLOUT_INDEX, TASK_INDEX, agent_name_of
from gymnast.types.usage import CALL_CAPTURE, MODEL_USAGE

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Mapping

    from gymnast.config import Instance
    from gymnast.store.paths import RunPaths
    from gymnast.types.json import JsonObject
    from gymnast.wire.calls import Calls

_EXCLUDED: Final = frozenset({PARAMS, "ng_agent_observations", CALL_CAPTURE, "ng_trajectory", MODEL_USAGE})


async def write_aggregate_metrics(
    paths: RunPaths, aggregators: Mapping[str, str], instances: Iterable[Instance], calls: Calls
) -> list[str]:
    """Aggregate the scored rollouts of each agent; `aggregators` names the instance that does it for an agent.

    Metrics of native instances are computed here, row by row. Other instances are sent their rows; if one fails, its
    agent gets the statistics of all numbers, without the instance's own metrics. Returns a warning for each such agent.
    """
    local = _local_aggregators(instances)
    streaming = {
        name: Aggregation(local[aggregator]) for name, aggregator in aggregators.items() if aggregator in local
    }
    remote: dict[str, list[JsonObject]] = defaultdict(list)
    for _, line in numbered_lines(paths.output):
        row = orjson.loads(line)
        name = agent_name_of(row) or ""
        if name in streaming:
            streaming[name].add(row)
        else:
            remote[name].append(strip_row(row))
    metrics: dict[str, Any] = {}
    names = {name: aggregators.get(name, name) for name in remote}
    async with _connect(set(names.values()), instances, calls) as connected:
        for name, rows in remote.items():
            try:
                body = {"verify_responses": sorted(rows, key=_position)}
                metrics[name] = await connected.expect(names[name], "/aggregate_metrics", body, stage=Stage.AGENT)
            except CallError as error:
                metrics[name] = {**aggregate(rows), "error": error.detail.message}
    _write(paths, {**metrics, **streaming})
    return [_describe_loss(name, names[name], entry["error"]) for name, entry in metrics.items() if "error" in entry]


def _position(row: JsonObject) -> tuple[int, int]:
    """Where a row stands in the order that metrics of the first k rollouts expect."""
    return row.get(TASK_INDEX, 0), row.get(ROLLOUT_INDEX, 0)


def _describe_loss(agent: str, aggregator: str, message: str) -> str:
    scope = f" for {agent}" if aggregator != agent else ""
    return f"{aggregator} could not compute its metrics{scope}; only statistics of plain numbers are written: {message}"


def write_local_metrics(paths: RunPaths, agents: Mapping[str, CustomMetrics]) -> None:
    """The same without running instances: only for these agents, whose metrics can be computed here."""
    streaming: dict[str, Aggregation] = {}
    for _, line in numbered_lines(paths.output):
        row = orjson.loads(line)
        name = agent_name_of(row) or ""
        if name in agents:
            if name not in streaming:
                streaming[name] = Aggregation(agents[name])
            streaming[name].add(row)
    _write(paths, streaming)


def _write(paths: RunPaths, metrics: Mapping[str, JsonObject | Aggregation]) -> None:
    """Write an entry for each agent; the groups of those that were aggregated here one by one, since they are many."""
    with atomic_writer(paths.aggregate_metrics) as out:
        out.write(b"[")
        for number, name in enumerate(sorted(metrics)):
            out.write(b",\n  " if number else b"\n  ")
            entry = metrics[name]
            if isinstance(entry, Aggregation):
                _write_streaming(out, name, entry)
            else:
                out.write(_dump_indented(metrics_entry(name, entry), 2))
        out.write(b"\n]\n" if metrics else b"]\n")


def _write_streaming(out: IO[bytes], name: str, aggregation: Aggregation) -> None:
    entry = _dump_indented(metrics_entry(name, {**aggregation.summary(), "group_level_metrics": []}), 2)
    head, _, tail = entry.rpartition(b"[]")
    out.write(head + b"[")
    empty = True
    for group in aggregation.groups():
        out.write((b"" if empty else b",") + b"\n      " + _dump_indented(group, 6))
        empty = False
    out.write((b"]" if empty else b"\n    ]") + tail)


def _dump_indented(value: JsonObject, spaces: int) -> bytes:
    """JSON inside a document, so many spaces from its margin."""
    return orjson.dumps(value, option=orjson.OPT_INDENT_2).replace(b"\n", b"\n" + b" " * spaces)


@asynccontextmanager
async def _connect(names: set[str], instances: Iterable[Instance], calls: Calls) -> AsyncIterator[Calls]:
    """Calls that reach these instances: `calls`, or those of a new cell if the instances ran in workers."""
    known = {instance.name: instance for instance in instances}
    missing = {name: known[name] for name in names if name in known and not calls.knows(name)}
    if not missing:
        yield calls
        return
    environments = {name for instance in missing.values() for name in instance.environments}
    started = {**missing, **{name: known[name] for name in environments - set(missing) if name in known}}
    blocks = {name: {server.kind: {server.implementation: dict(server.block)}} for name, server in known.items()}
    async with Cell(list(started.values()), CellOptions(config=blocks)) as cell:
        yield cell.calls


def _local_aggregators(instances: Iterable[Instance]) -> dict[str, CustomMetrics]:
    """Native instances with what their environments add, except agents whose environment is not native."""
    known = {instance.name: instance for instance in instances if instance.url is None}
    metrics = {name: local_metrics(instance, known) for name, instance in known.items()}
    return {name: custom for name, custom in metrics.items() if custom is not None}


def local_metrics(instance: Instance, instances: Mapping[str, Instance]) -> CustomMetrics | None:
    """What the environment of a native instance adds to the metrics; None if another program must compute them."""
    members = [instance, *(instances[name] for name in instance.environments if name in instances)]
    if len(members) <= len(instance.environments) or any(member.url is not None for member in members):
        return None
    classes = [load_native(member) for member in members]
    if any(server_class is None for server_class in classes):
        return None
    custom = [hook for server_class in classes if (hook := getattr(server_class, "custom_metrics", None)) is not None]
    return custom[0] if custom else CustomMetrics()


def metrics_entry(name: str, metrics: JsonObject) -> JsonObject:
    """An agent's entry in the file."""
    keys = ("agent_metrics", "key_metrics", "group_level_metrics")
    lost = {"error": metrics["error"]} if "error" in metrics else {}
    return {"agent_ref": {"name": name}, **lost, **{key: metrics.get(key) for key in keys}}


def strip_row(row: JsonObject) -> JsonObject:
    """The part of a result that is aggregated."""
    stripped = {key: value for key, value in row.items() if key not in _EXCLUDED}
    stripped["response"] = {"usage": (row.get("response") or {}).get("usage")}
    return stripped
