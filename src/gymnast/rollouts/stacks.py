"""Where an attempt stands in the code: the awaits of its task, from the outermost to the one that waits."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import asyncio
    from types import FrameType

    from gymnast.rollouts.executor import Job
    from gymnast.types.json import JsonObject

_DEEPEST: Final = 60


def stack_of(job: Job, task: asyncio.Task[None] | None, now: float) -> JsonObject:
    """What an attempt in flight waits for, since when, and its stack."""
    return {
        "key": str(job.key),
        "agent": job.agent,
        "stage": job.trail.stage.value,
        "instance": job.trail.instance,
        "seconds": now - job.started,
        "in_stage_s": now - job.trail.since,
        "frames": frames_of(task.get_coro()) if task is not None else [],
    }


def frames_of(waiting: Any) -> list[str]:
    """`file:line in function` of each coroutine that awaits the next."""
    found: list[str] = []
    while waiting is not None and len(found) < _DEEPEST:
        frame: FrameType | None = _first(waiting, "cr_frame", "gi_frame", "ag_frame")
        if frame is not None:
            found.append(f"{frame.f_code.co_filename}:{frame.f_lineno} in {frame.f_code.co_name}")
        waiting = _first(waiting, "cr_await", "gi_yieldfrom", "ag_await")
    return found


def _first(value: Any, *names: str) -> Any:
    return next((found for name in names if (found := getattr(value, name, None)) is not None), None)
