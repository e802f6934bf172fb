"""What Slurm says of a job: scontrol while it remembers, sacct where there is accounting, squeue for what waits."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

from gymnast.doctor.facts import JobFacts

TIMEOUT_S: Final = 15.0
_MOST_LOGS: Final = 200
_WORST_FIRST: Final = (
    *("OUT_OF_ME", "NODE_FAIL", "BOOT_FAIL", "LAUNCH", "DEADLINE", "TIMEOUT", "FAILED", "PREEMPTED", "CANCELLED"),
    *("STOPPED", "SUSPENDED", "PENDING", "REQUEUED", "CONFIGURING", "RUNNING", "COMPLETING", "COMPLETED"),
)
_SACCT_FIELDS: Final = ("JobID", "State", "ExitCode", "MaxRSS", "ReqMem", "Elapsed", "Timelimit", "NodeList")

Run = Callable[[Sequence[str]], str | None]
"""Runs a command; its output, or None where that did not work."""


def ask(command: Sequence[str]) -> str | None:
    """The output of a command, if it is installed and ends well in time."""
    if shutil.which(command[0]) is None:
        return None
    try:
        done = subprocess.run(  # noqa: S603 - fixed words and a job id that was checked
            list(command), capture_output=True, text=True, timeout=TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None


def read_job(job: str, run: Run = ask) -> JobFacts | None:
    """The job, or None where the scheduler does not know it, or is not there."""
    if not re.fullmatch(r"\d+(?:[_+]\d+)?(?:\.\w+)?", job):
        return None
    told = run(("scontrol", "show", "job", "-d", job))
    remembered = from_scontrol(job, told) if told and "JobState=" in told else None
    is_whole_array = "_" not in job and remembered is not None and "ArrayJobId" in remembered.fields
    if remembered is not None and not is_whole_array:
        return remembered
    if remembered is not None:
        return _worse(remembered, _forgotten(job, told or "", run))
    told = run(("sacct", "-j", job, "-n", "-P", "-o", ",".join(_SACCT_FIELDS)))
    if told and "|" in told:
        return from_sacct(job, told)
    told = run(("squeue", "-h", "-j", job, "-o", "%T|%r|%M|%l"))
    if told and "|" in told:
        state, reason, *_ = told.strip().splitlines()[0].split("|")
        return JobFacts(job, state, reason, "", {}, "squeue")
    return None


def _forgotten(job: str, remembered: str, run: Run) -> JobFacts | None:
    """The worst element of an array that the controller has forgotten, which it does some minutes after its end."""
    known = {f"{array}_{task}" for array, task in re.findall(r"ArrayJobId=(\d+) ArrayTaskId=(\d+)\s", remembered)}
    told = run(("sacct", "-X", "-j", job, "-n", "-P", "-o", ",".join(_SACCT_FIELDS))) or ""
    lines = [line for line in told.splitlines() if "|" in line and line.partition("|")[0] not in known]
    return from_sacct(job, "\n".join(lines)) if lines else None


def _worse(one: JobFacts, other: JobFacts | None) -> JobFacts:
    return other if other is not None and _badness(other.state) < _badness(one.state) else one


def from_scontrol(job: str, text: str) -> JobFacts:
    """`scontrol show job`: words of the form Key=value, a block for each task of an array; the worst task counts."""
    blocks = [dict(re.findall(r"(?:^|\s)([A-Za-z/:]+)=(\S*)", block)) for block in re.split(r"\n\s*\n", text)]
    tasks = sorted((block for block in blocks if "JobState" in block), key=lambda block: _badness(block["JobState"]))
    fields = tasks[0]
    named = (block.get(name, "") for block in tasks for name in ("StdOut", "StdErr"))
    logs = dict.fromkeys(Path(name) for name in named if name.startswith("/"))
    return JobFacts(
        _job_id(job, fields),
        fields["JobState"],
        fields.get("Reason", ""),
        fields.get("ExitCode", ""),
        fields,
        "scontrol show job",
        tuple(path for path in logs if path.is_file())[:_MOST_LOGS],
    )


def _badness(state: str) -> int:
    """Where a state stands in what is to be told first."""
    return next((place for place, known in enumerate(_WORST_FIRST) if state.startswith(known)), len(_WORST_FIRST))


def _job_id(job: str, fields: Mapping[str, str]) -> str:
    """The id as people write it: of an array, with the task's number."""
    task = fields.get("ArrayTaskId", "")
    return f"{fields.get('ArrayJobId', job)}_{task}" if task.isdigit() else job


def from_sacct(job: str, text: str) -> JobFacts:
    """`sacct -P`: one line for the job and one for each step; the worst state counts."""
    rows = [dict(zip(_SACCT_FIELDS, line.split("|"), strict=False)) for line in text.strip().splitlines()]
    worst = min(rows, key=lambda row: _badness(row["State"]))
    state = worst["State"].split()[0] if worst["State"] else "UNKNOWN"
    element = worst["JobID"].partition(".")[0]
    return JobFacts(element if "_" in element else job, state, "", worst.get("ExitCode", ""), worst, "sacct")
