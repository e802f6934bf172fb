"""Slurm's job states, as ours. Pure."""

from __future__ import annotations

from typing import Final

import msgspec

from gymnast.types.job import JobState, JobView

FIELDS: Final = ("JobArrayID", "State", "exit_code", "NodeList", "Reason", "StartTime", "EndTime", "RestartCnt")
"""Columns of `squeue -O`. Not `--json`: Slurm up to 22.05 then lists the jobs of all users, whatever was asked for."""
FORMAT: Final = ",".join(f"{name}:|" for name in FIELDS)
DEPENDENCY_NEVER_SATISFIED: Final = "DependencyNeverSatisfied"
"""The reason of a job that Slurm cancelled because a job it depends on failed."""

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


def parse_state(word: str) -> JobState:
    """Parse a state. sacct also writes `CANCELLED by 0` and `COMPLETED+`."""
    name = word.split(maxsplit=1)[0].rstrip("+").upper() if word.strip() else ""
    if name in _WAITING:
        return JobState.PENDING
    return JobState.RUNNING if name in _RUNNING else _OVER.get(name, JobState.UNKNOWN)


def parse_squeue(text: str) -> list[JobView]:
    """Parse the output of `squeue -h -r -t all -O FORMAT`, with times in seconds (SLURM_TIME_FORMAT=%s)."""
    views = []
    for line in text.splitlines():
        values = [part.strip() for part in line.split("|")]
        if len(values) >= len(FIELDS):
            job, state, code, node, reason, start, end, restarts = values[: len(FIELDS)]
            view = make_view(job, state, code, node, start, end)
            views.append(msgspec.structs.replace(view, reason=_parse_reason(view, reason, restarts)))
    return views


def make_view(job: str, word: str, code: str, node: str, start: str, end: str) -> JobView:
    """A job from the columns that squeue and sacct have in common."""
    state = parse_state(word)
    return JobView(
        job=job,
        state=state,
        exit_code=parse_exit_code(code) if state.is_over else None,
        node=node if node and node != "None assigned" else None,
        started_at=_parse_seconds(start) if state is not JobState.PENDING else None,
        ended_at=_parse_seconds(end) if state.is_over else None,
    )


def parse_exit_code(text: str) -> int | None:
    """Parse `code:signal`, or a bare wait status, as the code that a shell reports."""
    code, _, signal = text.partition(":")
    if not code.isdecimal():
        return None
    if signal:
        return 128 + int(signal) if signal.isdecimal() and int(signal) else int(code)
    status = int(code)
    return 128 + (status & 127) if status & 127 else status >> 8


def _parse_reason(view: JobView, reason: str, restarts: str) -> str | None:
    # Slurm keeps the reason why a job was pending when it is cancelled before it starts.
    is_stale = view.state is JobState.CANCELLED and view.node is None and reason != DEPENDENCY_NEVER_SATISFIED
    parts = [reason] if reason not in {"", "None"} and not is_stale else []
    if restarts.isdecimal() and int(restarts):
        parts.append(f"restarted {restarts} times")
    return ", ".join(parts) or None


def _parse_seconds(text: str) -> float | None:
    return float(text) if text.isdecimal() else None
