"""Looking at a run from another process: live over its socket, or what its manifest says when nobody works on it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from gymnast.errors import NotFoundError
from gymnast.rollouts.control import ask
from gymnast.rollouts.snapshot import Snapshot
from gymnast.store.lock import is_locked
from gymnast.store.manifest import Manifest, RunState, read_manifest
from gymnast.store.paths import RunPaths

if TYPE_CHECKING:
    from pathlib import Path


class RunLook(msgspec.Struct, frozen=True):
    """A run as seen from outside."""

    run: str
    state: str
    manifest: Manifest
    live: Snapshot | None = None


def run_paths(given: Path) -> RunPaths:
    """The run meant by its output file, by one of its other files, or by its name without `.jsonl`."""
    name = given.name
    if given.suffix and RunPaths(given).manifest.exists():
        return RunPaths(given)
    others = ("_run.json", "_materialized_inputs.jsonl", "_failures.jsonl", "_aggregate_metrics.json", ".jsonl.done")
    for suffix in (*others, "_chunks"):
        if name.endswith(suffix):
            return RunPaths(given.with_name(name.removesuffix(suffix) + ".jsonl"))
    whole = RunPaths(given.with_name(name + ".jsonl"))
    return RunPaths(given) if given.suffix in {".json", ".jsonl"} and not whole.manifest.exists() else whole


async def look_at(given: Path) -> RunLook:
    """How a run stands right now."""
    paths = run_paths(given)
    manifest = read_manifest(paths.manifest)
    if manifest is None:
        raise NotFoundError(f"there is no run '{given}'", where=str(paths.manifest), next="name its output file")
    if paths.socket.exists() and is_being_written(paths):
        live = msgspec.convert(await ask(paths.socket, {"command": "status"}), Snapshot)
        return RunLook(str(paths.output), live.state, manifest, live)
    state = manifest.state
    if state is RunState.RUNNING and not is_being_written(paths):
        state = RunState.INTERRUPTED  # its process is gone without a word
    return RunLook(str(paths.output), state.value, manifest)


def is_being_written(paths: RunPaths) -> bool:
    """Whether a process holds the run's lock."""
    return is_locked(paths.lock)
