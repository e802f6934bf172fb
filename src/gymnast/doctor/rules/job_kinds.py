"""Kind rules about cluster jobs that ended before their work. Data only."""

from __future__ import annotations

from typing import Final

from gymnast.doctor.rules.kind_rule import KindRule
from gymnast.types.failure import FailureKind

_RESUME: Final = "finished rollouts are safe: gymnast submit --resume adds the workers that are still needed"

JOBS: Final = (
    KindRule(
        "job_time_up",
        (FailureKind.JOB_TIMED_OUT,),
        "jobs of the run reached their time limit",
        "they requested less time than their work takes",
        f"request more with --time, or let jobs requeue themselves with --requeue; {_RESUME}",
        "The scheduler ended workers at their time limit.",
        step=1,
    ),
    KindRule(
        "job_taken_away",
        (FailureKind.JOB_PREEMPTED, FailureKind.NODE_FAILED),
        "jobs of the run were preempted, or their nodes failed",
        "a job with higher priority needed the nodes, or a node died",
        _RESUME,
        "Workers were preempted, or their nodes failed.",
        step=1,
    ),
    KindRule(
        "job_stopped_by_hand",
        (FailureKind.JOB_CANCELLED,),
        "jobs of the run were cancelled",
        "they were cancelled with gymnast cancel or scancel, or by an administrator",
        _RESUME,
        "Workers were cancelled.",
        step=1,
    ),
    KindRule(
        "job_would_not_start",
        (FailureKind.JOB_REFUSED,),
        "workers fail to start",
        "a configuration, file or key is missing where the jobs run",
        "read their messages (gymnast logs RUN), then gymnast submit --resume",
        "Workers end with exit code 2.",
        step=1,
    ),
    KindRule(
        "job_with_error",
        (FailureKind.JOB_FAILED,),
        "jobs of the run ended with an error",
        "a worker, or an earlier step of the job's script, failed",
        "read the end of their logs (gymnast logs RUN), fix the error, then gymnast submit --resume",
        "Workers end with an error.",
        step=1,
    ),
)
