"""Where an attempt stands in the code: the awaits of its task, from the outermost to the one that waits."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gymnast.wire.in_flight import frames_of

if TYPE_CHECKING:
    import asyncio

    from gymnast.rollouts.executor import Job
    from gymnast.types.json import JsonObject


def stack_of(job: Job, task: asyncio.Task[None] | None, now: float) -> JsonObject:
    """What an attempt in flight waits for, since when, and its stack."""
    return {
        "key": str(job.key),
        "agent": job.agent,
        "stage": job.trail.stage.value,
        "instance": job.trail.instance,
        "endpoint": job.trail.endpoint,
        "seconds": now - job.started,
        "in_stage_s": now - job.trail.since,
        "frames": job.frames or (frames_of(task.get_coro()) if task is not None else []),
    }
