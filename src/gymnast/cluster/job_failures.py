"""What the end of a job means in the table of failures, for every executor."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from gymnast.cluster.executor import JobState
from gymnast.cluster.slurm.states import NEVER_MET
from gymnast.errors import UserError
from gymnast.types.failure import KINDS, FailureKind

if TYPE_CHECKING:
    from gymnast.cluster.executor import JobView

_KINDS: Final = {
    JobState.TIMED_OUT: "job_timed_out",
    JobState.PREEMPTED: "job_preempted",
    JobState.CANCELLED: "job_cancelled",
    JobState.NODE_FAILED: "node_failed",
    JobState.OUT_OF_MEMORY: "out_of_memory",
}
_IN_VAIN: Final = (
    "the scheduler ended it unstarted, because a job that it waited for did not end well: look at that one, then "
    "gymnast submit --resume"
)


def failure_of(job: JobView) -> FailureKind | None:
    """The kind of failure that ended a job before its work; None for one that waits, runs, completed or is unknown."""
    if job.state in _KINDS:
        kind = KINDS[_KINDS[job.state]]
        return replace(kind, hint=_IN_VAIN) if NEVER_MET in (job.reason or "") else kind
    if job.state is JobState.FAILED:
        if job.exit_code == os.EX_TEMPFAIL:  # a worker that was told to end before its work did
            return KINDS["job_timed_out"]
        return KINDS["job_refused" if job.exit_code == UserError.exit_code else "job_failed"]
    return None
