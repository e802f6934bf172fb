"""Where workers of a run are started: one interface for local processes, Slurm and Ray.

An executor starts workers and says how they stand. What they do there is in the run's folder, whoever started them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Protocol

import msgspec

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


class JobState(StrEnum):
    """How a worker's job stands, as its scheduler says."""

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
    """The scheduler does not know it (any more)."""

    @property
    def is_over(self) -> bool:
        return self not in {JobState.PENDING, JobState.RUNNING}


@dataclass(frozen=True, slots=True)
class WorkersWanted:
    """Workers that take chunks of one run until nothing is left for them."""

    run: Path
    """The run's output file."""
    count: int
    at_once: int | None = None
    """How many may run at the same time; None for all."""
    arguments: tuple[str, ...] = ()
    """Arguments of `gymnast worker` after RUN."""
    name: str = "gymnast"
    logs: Path | None = None
    """The folder for their logs; None for the run's own."""
    environment: dict[str, str] = field(default_factory=dict)


class Submission(msgspec.Struct, frozen=True, kw_only=True):
    """What was started, as recorded in the run's folder (`submissions/`)."""

    schema_version: int = 1
    number: int
    executor: str
    jobs: tuple[str, ...]
    """Ids that `states`, `cancel` and `logs` understand; an array counts as one job here.

    None in an intent, which is noted before anything is started: `find` says what became of it.
    """
    workers: int
    at: float
    by: str
    """user@host"""
    details: dict[str, str] = {}
    """Whatever the executor needs to find the jobs again (cluster name, addresses, script)."""


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


def unnoted(intent: Submission) -> None:
    """What is intended is written down nowhere."""


class ClusterExecutor(Protocol):
    """Starts workers somewhere."""

    name: str

    def submit(self, wanted: WorkersWanted, number: int, note: Callable[[Submission], None] = unnoted) -> Submission:
        """Start (or queue) the workers; `note` is told what is intended before the first of them is started.

        Raises UserError with the scheduler's own words if it refuses: StartError or NotFoundError where it is sure
        that nothing was started or all of it was taken back.
        """
        ...

    def find(self, intent: Submission) -> Submission | None:
        """What was started for an intent by a process that died before it could say so; None if nothing was."""
        ...

    def states(self, submission: Submission) -> list[JobView]:
        """How its workers stand, one entry each."""
        ...

    def cancel(self, submission: Submission, jobs: tuple[str, ...] = ()) -> None:
        """End its workers, or some of them. Those that are over already are no error."""
        ...
