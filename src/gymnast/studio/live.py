"""A running collection as the studio shows it: its state now, and its course since someone looks."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final

import msgspec

from gymnast.chunks.status import ChunkState
from gymnast.rollouts.control import send_request
from gymnast.rollouts.snapshot import Snapshot
from gymnast.rollouts.tally import overall_stats

if TYPE_CHECKING:
    from gymnast.chunks.status import RunStatus, WorkerStatus
    from gymnast.store.paths import RunPaths
    from gymnast.types.json import JsonObject
    from gymnast.types.usage import ModelUsage

_MAX_POINTS: Final = 900
_MAX_CHUNKS: Final = 5000
_CHUNK_RATE_S: Final = 20.0
"""Over which the rate of workers is averaged."""


async def read_snapshot(paths: RunPaths) -> Snapshot:
    """What the collection says about itself, as for `gymnast status`."""
    return msgspec.convert(await send_request(paths.socket, {"command": "status"}), Snapshot)


def describe_snapshot(now: Snapshot) -> JsonObject:
    """A snapshot as JSON."""
    data: JsonObject = msgspec.to_builtins(now)
    for attempt in data["oldest"]:
        task, _, rollout = attempt["key"].partition(":")
        attempt["task"], attempt["rollout"] = int(task), int(rollout)
    data["mean_reward"] = mean_reward(now)
    return data


def mean_reward(now: Snapshot) -> float | None:
    """Over all agents, weighted by their scored rollouts."""
    known = [(stats.mean_reward, stats.scored - stats.masked) for stats in now.agents.values()]
    total = sum(count for mean, count in known if mean is not None)
    return sum(mean * count for mean, count in known if mean is not None) / total if total else None


class LiveHistory:
    """Points about a second apart. Older ones are thinned out, so that any length fits."""

    def __init__(self) -> None:
        self.points: list[JsonObject] = []
        self._last: tuple[float, ModelUsage] | None = None

    def add(self, now: Snapshot) -> JsonObject:
        """Add a snapshot, and return its point."""
        at = time.time()
        point: JsonObject = {
            "at": at,
            "scored": now.scored,
            "failed": sum(now.failed.values()),
            "in_flight": now.in_flight,
            "limit": now.limit,
            "per_second": now.per_second,
            "mean_reward": mean_reward(now),
            "stages": now.stages,
            "failures": _sum_counts(now.failed, now.retried),
            **self._rates(at, now.spent),
        }
        self._last = (at, now.spent)
        return self._append(point)

    def add_chunks(self, status: RunStatus) -> JsonObject:
        """Add the state of a run in chunks, and return its point."""
        at = time.time()
        # Workers report every few seconds: the rate between two points would be nothing, or all of that at once.
        before = next((point for point in reversed(self.points) if at - point["at"] >= _CHUNK_RATE_S), None)
        before = before or (self.points[0] if self.points else None)
        settled = status.scored + sum(status.failed.values())
        rate = None
        if before is not None and at > before["at"]:
            rate = max(0, settled - before["scored"] - before["failed"]) / (at - before["at"])
        point: JsonObject = {
            "at": at,
            "scored": status.scored,
            "failed": sum(status.failed.values()),
            "in_flight": status.in_flight,
            "limit": None,
            "per_second": rate,
            "mean_reward": overall_stats(status.totals).mean_reward,
            "stages": {},
            "failures": status.failed,
            **self._rates(at, status.spent),
        }
        self._last = (at, status.spent)
        return self._append(point)

    def _append(self, point: JsonObject) -> JsonObject:
        self.points.append(point)
        if len(self.points) > _MAX_POINTS:
            half = _MAX_POINTS // 2
            self.points[:half] = self.points[:half:2]
        return point

    def _rates(self, at: float, spent: ModelUsage) -> JsonObject:
        """Tokens per second and latency of the calls since the last point."""
        rates: JsonObject = {"output_tokens_per_s": None, "input_tokens_per_s": None, "call_ms": None}
        if self._last is not None and at > self._last[0]:
            seconds, before = at - self._last[0], self._last[1]
            rates["output_tokens_per_s"] = max(0, spent.output_tokens - before.output_tokens) / seconds
            rates["input_tokens_per_s"] = max(0, spent.input_tokens - before.input_tokens) / seconds
            calls = spent.calls - before.calls
            rates["call_ms"] = (spent.latency_ms - before.latency_ms) / calls if calls > 0 else None
        return rates


def describe_chunks(status: RunStatus) -> JsonObject:
    """The chunks and workers of a run."""
    chunks = [_without(msgspec.to_builtins(chunk), ("agents", "spent")) for chunk in status.chunks[:_MAX_CHUNKS]]
    silent = {chunk.worker for chunk in status.chunks if chunk.state is ChunkState.SILENT}
    return {
        "states": status.states,
        "chunks": chunks,
        "left_out": max(0, len(status.chunks) - _MAX_CHUNKS),
        "workers": [
            {**msgspec.to_builtins(worker), "state": _worker_state(worker, silent)} for worker in status.workers
        ],
    }


def _worker_state(worker: WorkerStatus, silent: set[str | None]) -> str:
    """What the files of the run say about a worker; its scheduler is not asked."""
    if worker.worker in silent:
        return "silent"
    return "working" if worker.chunks_held else "no chunk"


def _without(data: JsonObject, names: tuple[str, ...]) -> JsonObject:
    return {name: value for name, value in data.items() if name not in names}


def _sum_counts(*counts: dict[str, int]) -> dict[str, Any]:
    total: dict[str, int] = {}
    for own in counts:
        for kind, count in own.items():
            total[kind] = total.get(kind, 0) + count
    return total
