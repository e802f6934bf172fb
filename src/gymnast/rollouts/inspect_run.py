"""Inspects a run from another process: live over its socket, or from its files if it is not running.

The manifest of a run whose process was killed lags behind its records, so these are counted.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

import msgspec

from gymnast.errors import NotFoundError, UserError
from gymnast.rollouts.control import send_request
from gymnast.rollouts.retry import DEFAULT_ATTEMPTS
from gymnast.rollouts.run_store import FileRunStore
from gymnast.rollouts.snapshot import Snapshot
from gymnast.rollouts.tally import stats_of
from gymnast.store.find_run import find_run
from gymnast.store.lock import is_locked
from gymnast.store.manifest import Manifest, RunState, read_manifest
from gymnast.types.totals import AgentStats

if TYPE_CHECKING:
    from pathlib import Path

    from gymnast.store.paths import RunPaths


class RunInspection(msgspec.Struct, frozen=True):
    """A run as seen from outside."""

    run: str
    state: str
    manifest: Manifest
    live: Snapshot | None = None
    agents: dict[str, AgentStats] = {}
    """The statistics of each agent's rollouts."""


async def inspect_run(path: Path) -> RunInspection:
    """The current state of a run."""
    paths = find_run(path)
    manifest = read_manifest(paths.manifest)
    if manifest is None:
        raise NotFoundError(f"no run '{path}'", where=str(paths.manifest), next="pass its output file")
    if paths.socket.exists() and is_being_written(paths):
        live = msgspec.convert(await send_request(paths.socket, {"command": "status"}), Snapshot)
        return RunInspection(str(paths.output), live.state, manifest, live, live.agents)
    state = manifest.state
    if state is RunState.RUNNING and not is_being_written(paths):
        state = RunState.INTERRUPTED  # its process died
        with suppress(UserError, OSError):  # with missing or damaged files, the manifest is what is known
            manifest = FileRunStore(paths, manifest, max_attempts=DEFAULT_ATTEMPTS).recount()
    return RunInspection(str(paths.output), state.value, manifest, agents=stats_of(manifest.agents))


def is_being_written(paths: RunPaths) -> bool:
    """Whether a process holds the run's lock."""
    return is_locked(paths.lock)
