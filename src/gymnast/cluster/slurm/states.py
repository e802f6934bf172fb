"""Slurm's words for how a job stands, as ours. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from gymnast.cluster.executor import JobState, JobView

if TYPE_CHECKING:
    from collections.abc import Iterable

FIELDS: Final = ("JobArrayID", "State", "exit_code", "NodeList", "Reason", "StartTime", "EndTime", "RestartCnt")
"""Columns of `squeue -O`. Not `--json`: Slurm up to 22.05 then lists everybody's jobs, whatever was asked for."""
FORMAT: Final = ",".join(f"{name}:|" for name in FIELDS)
NEVER_MET: Final = "DependencyNeverSatisfied"
"""The reason of a job that Slurm cancelled because what it waited for did not end as it should."""

_WAITING: Final = frozenset(
    {"PENDING", "CONFIGURING", "REQUEUED", "REQUEUE_FED", "REQUEUE_HOLD", "RESV_DEL_HOLD", "SPECIAL_EXIT"}
)
_RUNNING: Final = frozenset(
    {"RUNNING", "COMPLETING", "SUSPENDED", "STOPPED", "STAGE_OUT", "SIGNALING", "RESIZING", "POWER_UP_NODE"}
)
_OVER: Final = {
    "COMPLETED": JobState.COMPLETED,
    "FAILED": JobState.FAILED,
    "LAUNCH_FAILED": JobState.FAILED,
    "CANCELLED": JobState.CANCELLED,
    "REVOKED": JobState.CANCELLED,
    "TIMEOUT": JobState.TIMED_OUT,
    "DEADLINE": JobState.TIMED_OUT,
    "OUT_OF_MEMORY": JobState.OUT_OF_MEMORY,
    "NODE_FAIL": JobState.NODE_FAILED,
    "BOOT_FAIL": JobState.NODE_FAILED,
    "RECONFIG_FAIL": JobState.NODE_FAILED,
    "PREEMPTED": JobState.PREEMPTED,
}


def state_of(word: str) -> JobState:
    """The state that Slurm's word means; `CANCELLED by 0` and `COMPLETED+` are words as sacct writes them."""
    name = word.split(maxsplit=1)[0].rstrip("+").upper() if word.strip() else ""
    if name in _WAITING:
        return JobState.PENDING
    return JobState.RUNNING if name in _RUNNING else _OVER.get(name, JobState.UNKNOWN)


def read_squeue(text: str) -> list[JobView]:
    """The lines of `squeue -h -r -t all -O FORMAT`, with times in seconds (SLURM_TIME_FORMAT=%s)."""
    found = []
    for line in text.splitlines():
        values = [part.strip() for part in line.split("|")]
        if len(values) >= len(FIELDS):
            found.append(_view(dict(zip(FIELDS, values, strict=False))))
    return found


def _view(row: dict[str, str]) -> JobView:
    state = state_of(row["State"])
    return JobView(
        job=row["JobArrayID"],
        state=state,
        exit_code=exit_code(row["exit_code"]) if state.is_over else None,
        node=row["NodeList"] or None,
        reason=_reason(row, state),
        started_at=_seconds(row["StartTime"]) if state is not JobState.PENDING else None,
        ended_at=_seconds(row["EndTime"]) if state.is_over else None,
    )


def exit_code(text: str) -> int | None:
    """`code:signal`, or a bare wait status, as the code that a shell would show."""
    code, _, signal = text.partition(":")
    if not code.isdecimal():
        return None
    if signal:
        return 128 + int(signal) if signal.isdecimal() and int(signal) else int(code)
    status = int(code)
    return 128 + (status & 127) if status & 127 else status >> 8


def _reason(row: dict[str, str], state: JobState) -> str | None:
    reason = row["Reason"] if row["Reason"] not in {"", "None"} else ""
    if state is JobState.CANCELLED and not row["NodeList"] and reason != NEVER_MET:
        reason = ""  # why it had waited: Slurm leaves that with a job which is cancelled before it starts
    again = f"restarted {row['RestartCnt']} times" if row["RestartCnt"].isdecimal() and int(row["RestartCnt"]) else ""
    return ", ".join(filter(None, (reason, again))) or None


def _seconds(text: str) -> float | None:
    return float(text) if text.isdecimal() else None


def job_numbers(found: Iterable[JobView]) -> set[str]:
    """The jobs that these are, an array counted as one."""
    return {view.job.split("_")[0] for view in found}
