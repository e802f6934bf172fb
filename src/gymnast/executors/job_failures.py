"""The failure kind of a job that ended badly, for every executor."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Final

from gymnast.errors import UserError
from gymnast.executors.slurm.states import DEPENDENCY_NEVER_SATISFIED
from gymnast.types.failure import KINDS, FailureKind, KindInfo
from gymnast.types.job import JobState, JobView

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
