"""Kind rules of cluster jobs that ended before their work did. Data only."""

from __future__ import annotations

from typing import Final

from gymnast.doctor.rules.kind_row import KindRow
from gymnast.types.failure import Layer

_AGAIN: Final = "nothing that was settled is lost: gymnast submit --resume adds the workers that are still needed"

JOBS: Final = (
    KindRow(
        "job_time_up",
        Layer.INFRA,
        ("job_timed_out",),
        "jobs of the run ended because their time was up",
        "they asked for less time than their work takes",
        f"ask for more with --time, or let jobs queue themselves again with --requeue; {_AGAIN}",
        "The scheduler ended workers at their time limit.",
        step=1,
    ),
    KindRow(
        "job_taken_away",
        Layer.INFRA,
        ("job_preempted", "node_failed"),
        "the scheduler took jobs of the run away, or their nodes failed",
        "somebody with more right to the nodes came, or a node died",
        _AGAIN,
        "Workers were preempted, or their nodes failed.",
        step=1,
    ),
    KindRow(
        "job_stopped_by_hand",
        Layer.INFRA,
        ("job_cancelled",),
        "jobs of the run were cancelled",
        "somebody cancelled them: gymnast cancel, scancel, or an administrator",
        _AGAIN,
        "Workers were cancelled.",
        step=1,
    ),
    KindRow(
        "job_would_not_start",
        Layer.CONFIG,
        ("job_refused",),
        "workers refuse to start",
        "something that you can mend: a configuration, a file or a key that is not there where jobs run",
        "read what they say: gymnast logs RUN; then gymnast submit --resume",
        "Workers end with exit code 2.",
        step=1,
    ),
    KindRow(
        "job_with_error",
        Layer.INFRA,
        ("job_failed",),
        "jobs of the run ended with an error",
        "a worker, or what the job's script does before it, failed",
        "read the end of their logs: gymnast logs RUN; mend that, then gymnast submit --resume",
        "Workers end with an error.",
        step=1,
    ),
)
