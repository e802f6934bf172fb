"""Asks Slurm about a job (scontrol while it is known, sacct, squeue), and the kernel log about a dead process."""

from __future__ import annotations

import re
import shutil
import socket
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from gymnast.doctor.facts import JobFacts
from gymnast.doctor.findings import quote_line
from gymnast.store.manifest import RunState

if TYPE_CHECKING:
    from gymnast.doctor.facts import RunFacts

TIMEOUT_S: Final = 15.0
_MAX_LOGS: Final = 200
_WORST_FIRST: Final = (
    *("OUT_OF_ME", "NODE_FAIL", "BOOT_FAIL", "LAUNCH", "DEADLINE", "TIMEOUT", "FAILED", "PREEMPTED", "CANCELLED"),
    *("STOPPED", "SUSPENDED", "PENDING", "REQUEUED", "CONFIGURING", "RUNNING", "COMPLETING", "COMPLETED"),
)
_SACCT_FIELDS: Final = ("JobID", "State", "ExitCode", "MaxRSS", "ReqMem", "Elapsed", "Timelimit", "NodeList")

CommandRunner = Callable[[Sequence[str]], str | None]
"""Runs a command; returns its output, or None if it failed."""


def run_command(command: Sequence[str]) -> str | None:
    """The output of a command, or None if it is not installed, fails or times out."""
    if shutil.which(command[0]) is None:
        return None
    try:
        completed = subprocess.run(  # noqa: S603 - fixed arguments and a validated job id
            list(command), capture_output=True, text=True, timeout=TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return completed.stdout if completed.returncode == 0 else None


def read_job(job: str, run: CommandRunner = run_command) -> JobFacts | None:
    """The job, or None if the scheduler does not know it or is not available."""
    if not re.fullmatch(r"\d+(?:[_+]\d+)?(?:\.\w+)?", job):
        return None
    output = run(("scontrol", "show", "job", "-d", job))
    current = parse_scontrol(job, output) if output and "JobState=" in output else None
    is_array = "_" not in job and current is not None and "ArrayJobId" in current.fields
    if current is not None and not is_array:
        return current
    if current is not None:
        return _worse(current, _read_finished_tasks(job, output or "", run))
    output = run(("sacct", "-j", job, "-n", "-P", "-o", ",".join(_SACCT_FIELDS)))
    if output and "|" in output:
        return parse_sacct(job, output)
    output = run(("squeue", "-h", "-j", job, "-o", "%T|%r|%M|%l"))
    if output and "|" in output:
        state, reason, *_ = output.strip().splitlines()[0].split("|")
        return JobFacts(job, state, reason, "", {}, "squeue")
    return None


def _read_finished_tasks(job: str, current: str, run: CommandRunner) -> JobFacts | None:
    """The worst array task that the controller no longer knows: it drops tasks some minutes after they end."""
    known = {f"{array}_{task}" for array, task in re.findall(r"ArrayJobId=(\d+) ArrayTaskId=(\d+)\s", current)}
    output = run(("sacct", "-X", "-j", job, "-n", "-P", "-o", ",".join(_SACCT_FIELDS))) or ""
    lines = [line for line in output.splitlines() if "|" in line and line.partition("|")[0] not in known]
    return parse_sacct(job, "\n".join(lines)) if lines else None


def _worse(first: JobFacts, second: JobFacts | None) -> JobFacts:
    return second if second is not None and _severity(second.state) < _severity(first.state) else first


def parse_scontrol(job: str, text: str) -> JobFacts:
    """Parse `scontrol show job`: `Key=value` words, one block per array task; the worst task counts."""
    blocks = [dict(re.findall(r"(?:^|\s)([A-Za-z/:]+)=(\S*)", block)) for block in re.split(r"\n\s*\n", text)]
    tasks = sorted((block for block in blocks if "JobState" in block), key=lambda block: _severity(block["JobState"]))
    fields = tasks[0]
    names = (block.get(name, "") for block in tasks for name in ("StdOut", "StdErr"))
    logs = dict.fromkeys(Path(name) for name in names if name.startswith("/"))
    return JobFacts(
        _job_id(job, fields),
        fields["JobState"],
        fields.get("Reason", ""),
        fields.get("ExitCode", ""),
        fields,
        "scontrol show job",
        tuple(path for path in logs if path.is_file())[:_MAX_LOGS],
    )


def _severity(state: str) -> int:
    """The rank of a state, the worst first."""
    return next((rank for rank, known in enumerate(_WORST_FIRST) if state.startswith(known)), len(_WORST_FIRST))


def _job_id(job: str, fields: Mapping[str, str]) -> str:
    """The id as users write it: with the task's number for an array."""
    task = fields.get("ArrayTaskId", "")
    return f"{fields.get('ArrayJobId', job)}_{task}" if task.isdigit() else job


def parse_sacct(job: str, text: str) -> JobFacts:
    """Parse `sacct -P`: one line for the job and one per step; the worst state counts."""
    rows = [dict(zip(_SACCT_FIELDS, line.split("|"), strict=False)) for line in text.strip().splitlines()]
    worst = min(rows, key=lambda row: _severity(row["State"]))
    state = worst["State"].split()[0] if worst["State"] else "UNKNOWN"
    element = worst["JobID"].partition(".")[0]
    return JobFacts(element if "_" in element else job, state, "", worst.get("ExitCode", ""), worst, "sacct")


def find_kernel_kill(run: RunFacts) -> str | None:
    """The line about killing the last process of a run, if it died without leaving a message."""
    manifest = run.manifest
    if manifest is None or manifest.state is not RunState.RUNNING or not manifest.invocations:
        return None
    if run.is_active:
        return None
    last = manifest.invocations[-1]
    if last.host != socket.gethostname():
        return None
    log = run_command(("dmesg", "-T")) or run_command(("journalctl", "-k", "--no-pager", "-q", "--since", "-2d")) or ""
    lines = re.findall(rf"^.*[Kk]illed process {last.pid} .*$", log, re.MULTILINE)
    return quote_line(lines[-1]) if lines else None
