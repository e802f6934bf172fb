"""A scheduler's job as data: its state, and what is known of it."""

from __future__ import annotations

from enum import StrEnum

import msgspec


class JobState(StrEnum):
    """The state of a worker's job, as reported by its scheduler."""

    PENDING = "pending"
    RUNNING = "running"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"
    TIMED_OUT = "timed_out"
    OUT_OF_MEMORY = "out_of_memory"
    NODE_FAILED = "node_failed"
    PREEMPTED = "preempted"
    UNKNOWN = "unknown"
    """The scheduler does not know the job, or has forgotten it."""

    @property
    def is_over(self) -> bool:
        return self not in {JobState.PENDING, JobState.RUNNING}


class JobView(msgspec.Struct, frozen=True, kw_only=True):
    """One worker's job."""

    job: str
    """Unique within its executor: `123_7` of an array, a pid with its start time, an actor's name."""
    state: JobState
    exit_code: int | None = None
    node: str | None = None
    reason: str | None = None
    started_at: float | None = None
    ended_at: float | None = None
    log: str | None = None
