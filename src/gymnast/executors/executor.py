"""Where workers of a run are started: one interface for local processes, Slurm and Ray.

An executor starts workers and reports their jobs; a job that ended badly has a failure kind. What the workers do is
recorded in the run's folder, whichever executor started them.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, Protocol

import msgspec

from gymnast.errors import UserError
from gymnast.executors.slurm.states import DEPENDENCY_NEVER_SATISFIED
from gymnast.types.failure import KINDS, FailureKind, KindInfo
from gymnast.types.job import JobState, JobView

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from gymnast.types.job import JobView


@dataclass(frozen=True, slots=True)
class WorkerRequest:
    """Workers to start for one run. Each takes chunks until none is left for it."""

    run: Path
    """The run's output file."""
    count: int
    max_running: int | None = None
    """How many may run at the same time; None for all."""
    arguments: tuple[str, ...] = ()
    """Arguments of `gymnast worker` after RUN."""
    name: str = "gymnast"
    logs: Path | None = None
    """The folder for their logs; None for the run's log folder."""
    environment: dict[str, str] = field(default_factory=dict)


class Submission(msgspec.Struct, frozen=True, kw_only=True):
    """What was started, as recorded in the run's folder (`submissions/`)."""

    schema_version: int = 1
    number: int
    executor: str
    jobs: tuple[str, ...]
    """Ids that `states`, `cancel` and `logs` understand; an array is one job here.

    Empty in an intent, which is written before anything is started: `find` tells what became of it.
    """
    workers: int
    at: float
    by: str
    """user@host"""
    details: dict[str, str] = {}
    """What the executor needs to find the jobs again (cluster name, addresses, script)."""


def ignore_intent(intent: Submission) -> None:
    """Do not record the intent."""


class Executor(Protocol):
    """Starts workers somewhere."""

    name: str

    def submit(
        self, request: WorkerRequest, number: int, note: Callable[[Submission], None] = ignore_intent
    ) -> Submission:
        """Start (or queue) the workers. `note` receives the intent before the first of them is started.

        Raises UserError with the scheduler's message if it refuses: StartError or NotFoundError only if nothing was
        started, or everything was taken back.
        """
        ...

    def find(self, intent: Submission) -> Submission | None:
        """What was started for the intent of a process that died before it could record it; None if nothing was."""
        ...

    def states(self, submission: Submission) -> list[JobView]:
        """The jobs of its workers, one entry per worker."""
        ...

    def cancel(self, submission: Submission, jobs: tuple[str, ...] = ()) -> None:
        """End its workers, or some of them. Jobs that are already over are ignored."""
        ...


_KINDS: Final = {
    JobState.TIMED_OUT: FailureKind.JOB_TIMED_OUT,
    JobState.PREEMPTED: FailureKind.JOB_PREEMPTED,
    JobState.CANCELLED: FailureKind.JOB_CANCELLED,
    JobState.NODE_FAILED: FailureKind.NODE_FAILED,
    JobState.OUT_OF_MEMORY: FailureKind.OUT_OF_MEMORY,
}
_DEPENDENCY_HINT: Final = (
    "the scheduler cancelled it before it started, because a job that it waited for did not end well: check that "
    "job, then gymnast submit --resume"
)


def failure_of(job: JobView) -> KindInfo | None:
    """The failure kind of a job; None for one that is pending, running, completed or unknown."""
    if job.state in _KINDS:
        kind = KINDS[_KINDS[job.state]]
        return replace(kind, hint=_DEPENDENCY_HINT) if DEPENDENCY_NEVER_SATISFIED in (job.reason or "") else kind
    if job.state is JobState.FAILED:
        if job.exit_code == os.EX_TEMPFAIL:  # a worker that was drained with work left
            return KINDS[FailureKind.JOB_TIMED_OUT]
        return KINDS[FailureKind.JOB_REFUSED if job.exit_code == UserError.exit_code else FailureKind.JOB_FAILED]
    return None
