"""Inspects a run from another process: live over its socket, or from its manifest if it is not running."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from gymnast.errors import NotFoundError
from gymnast.rollouts.control import send_request
from gymnast.rollouts.snapshot import Snapshot
from gymnast.rollouts.tally import stats_of
from gymnast.store.lock import is_locked
from gymnast.store.manifest import Manifest, RunState, read_manifest
from gymnast.store.paths import RunPaths
from gymnast.types.totals import AgentStats

if TYPE_CHECKING:
    from pathlib import Path


class RunInspection(msgspec.Struct, frozen=True):
    """A run as seen from outside."""

    run: str
    state: str
    manifest: Manifest
    live: Snapshot | None = None
    agents: dict[str, AgentStats] = {}
    """The statistics of each agent's rollouts."""


def resolve_run_paths(path: Path) -> RunPaths:
    """The run named by its output file, by another of its files, or without `.jsonl`."""
    name = path.name
    if path.suffix and RunPaths(path).manifest.exists():
        return RunPaths(path)
    others = ("_run.json", "_materialized_inputs.jsonl", "_failures.jsonl", "_aggregate_metrics.json", ".jsonl.done")
    for suffix in (*others, "_chunks"):
        if name.endswith(suffix):
            return RunPaths(path.with_name(name.removesuffix(suffix) + ".jsonl"))
    whole = RunPaths(path.with_name(name + ".jsonl"))
    return RunPaths(path) if path.suffix in {".json", ".jsonl"} and not whole.manifest.exists() else whole


async def inspect_run(path: Path) -> RunInspection:
    """The current state of a run."""
    paths = resolve_run_paths(path)
    manifest = read_manifest(paths.manifest)
    if manifest is None:
        raise NotFoundError(f"no run '{path}'", where=str(paths.manifest), next="pass its output file")
    if paths.socket.exists() and is_being_written(paths):
        live = msgspec.convert(await send_request(paths.socket, {"command": "status"}), Snapshot)
        return RunInspection(str(paths.output), live.state, manifest, live, live.agents)
    state = manifest.state
    if state is RunState.RUNNING and not is_being_written(paths):
        state = RunState.INTERRUPTED  # its process died
    return RunInspection(str(paths.output), state.value, manifest, agents=stats_of(manifest.agents))


def is_being_written(paths: RunPaths) -> bool:
    """Whether a process holds the run's lock."""
    return is_locked(paths.lock)
