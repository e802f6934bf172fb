"""What Slurm says of a job: scontrol while it remembers, sacct where there is accounting, squeue for what waits."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from gymnast.doctor.facts import JobFacts

TIMEOUT_S: Final = 15.0
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
    if not re.fullmatch(r"\d+(?:_\d+)?(?:\.\w+)?", job):
        return None
    told = run(("scontrol", "show", "job", "-d", job))
    if told and "JobState=" in told:
        return from_scontrol(job, told)
    told = run(("sacct", "-j", job, "-n", "-P", "-o", ",".join(_SACCT_FIELDS)))
    if told and "|" in told:
        return from_sacct(job, told)
    told = run(("squeue", "-h", "-j", job, "-o", "%T|%r|%M|%l"))
    if told and "|" in told:
        state, reason, *_ = told.strip().splitlines()[0].split("|")
        return JobFacts(job, state, reason, "", {}, "squeue")
    return None


def from_scontrol(job: str, text: str) -> JobFacts:
    """`scontrol show job`: words of the form Key=value."""
    fields = dict(re.findall(r"(?:^|\s)([A-Za-z/:]+)=(\S*)", text))
    logs = dict.fromkeys(Path(fields[name]) for name in ("StdOut", "StdErr") if fields.get(name, "").startswith("/"))
    return JobFacts(
        job,
        fields.get("JobState", "UNKNOWN"),
        fields.get("Reason", ""),
        fields.get("ExitCode", ""),
        fields,
        "scontrol show job",
        tuple(path for path in logs if path.is_file()),
    )


def from_sacct(job: str, text: str) -> JobFacts:
    """`sacct -P`: one line for the job and one for each step; the worst state counts."""
    rows = [dict(zip(_SACCT_FIELDS, line.split("|"), strict=False)) for line in text.strip().splitlines()]
    worst = next((row for row in rows if row["State"].startswith("OUT_OF_ME")), rows[0])
    state = worst["State"].split()[0] if worst["State"] else "UNKNOWN"
    return JobFacts(job, state, "", worst.get("ExitCode", ""), worst, "sacct")
