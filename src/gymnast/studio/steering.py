"""Steers runs from their pages: collections as `gymnast ctl` does, workers as `gymnast cancel` does."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from gymnast.errors import UserError
from gymnast.executors.worker_jobs import cancel_run
from gymnast.rollouts.control import send_request
from gymnast.store.chunk_layout import ChunkLayout
from gymnast.studio.library import is_chunked

if TYPE_CHECKING:
    from gymnast.studio.library import Entry

COMMANDS: Final = frozenset({"pause", "resume", "drain", "stop", "cancel", "set"})
CANCEL_WORKERS: Final = "cancel_workers"


async def steer(entry: Entry, command: str, argument: str | None) -> str:
    """Execute a command on a run and return what to show. For workers, `argument` is a job, or None for all."""
    if command == CANCEL_WORKERS:
        return await asyncio.to_thread(_cancel_workers, entry, argument)
    if is_chunked(entry) and not entry.source.paths.socket.exists():
        raise UserError(
            "workers collect this run, and only cancelling reaches them", next="cancel them on the run's Workers page"
        )
    return str(await send_request(entry.source.paths.socket, {"command": command, "argument": argument}))


def _cancel_workers(entry: Entry, job: str | None) -> str:
    if not is_chunked(entry):
        raise UserError("no workers collect this run", next="drain or stop it instead")
    cancelled = cancel_run(ChunkLayout.of(entry.source.paths), (job,) if job is not None else ())
    jobs = [view.job for _, views in cancelled for view in views]
    if not jobs:
        return "no worker is waiting or running"
    return f"cancelled {len(jobs)} {'worker' if len(jobs) == 1 else 'workers'}: they hand back what they hold"
