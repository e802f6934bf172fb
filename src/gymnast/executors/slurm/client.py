"""Slurm's commands, with timeouts. When one fails, its message is in the error."""

from __future__ import annotations

import re
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from gymnast.errors import NotFoundError, StartError, UserError
from gymnast.executors.slurm.states import FORMAT, make_view, parse_squeue
from gymnast.types.job import JobState, JobView

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from gymnast.executors.hosts import CommandResult, Host

_GONE: Final = ("Invalid job id", "already completing or completed", "does not exist")
_UNCERTAIN: Final = ("timed out",)
"""What sbatch prints when the controller may have queued the job nevertheless."""
_SECONDS: Final = ("env", "SLURM_TIME_FORMAT=%s")
_JOB: Final = re.compile(r"\d+(?:_\d+|\+\d+)?")
_UNSTARTED_ELEMENTS: Final = re.compile(r"(\d+)_\[((?:\d+(?:-\d+)?,?)+)(?:%\d+)?\]")
_ARRAY_OR_PART: Final = re.compile(r"[_+ ]")
"""What comes after the number where squeue and sacct name a job: `17_[0-3] …`, `17_2 …`, `17+0 …`, `17 …`."""
_DATE_MARGIN_S: Final = 2 * 86400.0
"""Accounting is queried by date, and the date may differ between hosts."""
_ACCOUNTING_S: Final = 10.0
_ACCOUNTING_BACKOFF_S: Final = 60.0
"""How long accounting that does not answer is not asked again: `status --watch` would ask every two seconds."""
_accounting_retry_at: dict[str, float] = {}
_SACCT: Final = "JobID,State,ExitCode,NodeList,Start,End"
_DEPENDENCY: Final = re.compile(r"(after\w*):(.+)")


@dataclass(frozen=True, slots=True)
class Slurm:
    """The scheduler that a host's commands reach."""

    host: Host

    def submit(self, script: str, *arguments: str) -> str:
        """Queue a script on the shared file system, with arguments. Returns the job number."""
        result = self.host.run(("sbatch", "--parsable", script, *arguments))
        number = result.out.strip().split(";")[0].splitlines()[-1:]
        if result.code or not number or not number[0].isdecimal():
            is_certain = not any(word in result.err for word in _UNCERTAIN)
            raise (StartError if is_certain else UserError)(
                f"Slurm refuses the job: {result.error_text}",
                where=f"sbatch {script} on {self.host.name}",
                next=_next_step(result, self.host.name),
            )
        return number[0]

    def views(self, jobs: Sequence[str], elements: Sequence[str] = ()) -> list[JobView]:
        """The jobs that Slurm remembers, with an entry for each element of an array.

        The controller forgets an element some minutes after its end, even while the rest of the array runs. With
        `elements`, accounting is asked for the missing ones.
        """
        if not jobs:
            return []
        line = (*_SECONDS, "squeue", "-h", "-r", "-t", "all", "-j", ",".join(jobs), "-O", FORMAT)
        result = self.host.run(line)
        if result.code and not any(word in result.err for word in _GONE):
            raise UserError(f"Slurm cannot list the jobs: {result.error_text}", where=f"squeue on {self.host.name}")
        views = parse_squeue(result.out) if not result.code else []
        names = {view.job for view in views}
        known = names | {_ARRAY_OR_PART.split(name)[0] for name in names}
        missing = {_ARRAY_OR_PART.split(job)[0] for job in elements or jobs if job not in known}
        return [*views, *(view for view in self._read_ended_jobs(sorted(missing)) if view.job not in names)]

    def cancel(self, jobs: Iterable[str]) -> None:
        """Cancel jobs. Jobs that are already over are ignored."""
        numbers = sorted(set(jobs))
        if not numbers:
            return
        result = self.host.run(("scancel", *numbers))
        errors = [line for line in result.err.splitlines() if line.strip() and not any(word in line for word in _GONE)]
        if result.code and errors:
            raise UserError(f"Slurm could not cancel: {' '.join(errors)}", where=f"scancel on {self.host.name}")

    def find_pending_by_name(self, name: str) -> list[str]:
        """Numbers of the user's jobs of that name that are not over, the oldest first."""
        lines = self._own_jobs(f"--name={name}", "-o", "%A %F")
        return sorted({line.split()[-1] for line in lines if line.strip()}, key=int)

    def find_pending_by_token(self, token: str) -> list[str]:
        """Numbers of the user's jobs that are not over and whose script has this argument, the oldest first."""
        rows = map(str.split, self._own_jobs("-o", "%A %T %o"))
        return sorted({row[0] for row in rows if row[-1:] == [token] and row[1] != "COMPLETING"}, key=int)

    def jobs_with_token(self, token: str, since: float) -> list[str]:
        """Numbers of the user's jobs whose script has this argument, over or not, the oldest first."""
        remembered = self._own_jobs("-t", "all", "-o", "%i %o")
        day = time.strftime("%Y-%m-%d", time.localtime(since - _DATE_MARGIN_S))
        forgotten = self._run_sacct("-S", day, "-o", "JobID,SubmitLine")
        lines = [*remembered, *(line.replace("|", " ", 1) for line in forgotten)]
        return sorted({_ARRAY_OR_PART.split(line)[0] for line in lines if line.split()[-1:] == [token]}, key=int)

    def _own_jobs(self, *arguments: str) -> list[str]:
        """Lines of squeue about the user's jobs."""
        result = self.host.run(("squeue", "-h", "--me", *arguments))
        if result.code:
            raise UserError(f"Slurm cannot list the jobs: {result.error_text}", where=f"squeue on {self.host.name}")
        return result.out.splitlines()

    def resolve_dependency(self, text: str) -> str:
        """The value of `--run-after` for Slurm: a job number, a job name, or either after `afterany:`."""
        match = _DEPENDENCY.fullmatch(text)
        kind, job = (match.group(1), match.group(2)) if match else ("afterok", text)
        if _JOB.fullmatch(job) or re.fullmatch(r"\d+(:\d+)*", job):
            if kind == "afterok":
                self._raise_if_failed(job.split(":"))
            return f"{kind}:{job}"
        numbers = self.find_pending_by_name(job)
        if not numbers:
            raise NotFoundError(
                f"no job named '{job}' is pending or running", next="give a job number, or leave --run-after out"
            )
        return f"{kind}:{':'.join(numbers)}"

    def _raise_if_failed(self, jobs: Sequence[str]) -> None:
        """Slurm itself would immediately start a job that depends on one it has forgotten or never knew."""
        views = self.views(jobs)
        for job in jobs:
            matches = [view for view in views if job in {view.job, _ARRAY_OR_PART.split(view.job)[0]}]
            if not matches:
                raise NotFoundError(
                    f"Slurm does not know job {job}",
                    next="leave --run-after out if it has completed; else give a job that is pending or running",
                )
            failed = next(
                (view for view in matches if view.state.is_over and view.state is not JobState.COMPLETED), None
            )
            if failed is not None:
                raise UserError(
                    f"'{job}' did not succeed: job {failed.job} is {failed.state}",
                    next="submit it again first, or leave --run-after out",
                )

    def _read_ended_jobs(self, jobs: list[str]) -> list[JobView]:
        """What accounting knows of jobs that the controller has forgotten; nothing without accounting.

        A job that still runs according to accounting does not: its end was never recorded.
        """
        if not jobs:
            return []
        lines = self._run_sacct("-j", ",".join(jobs), "-o", _SACCT)
        return [view for line in lines for view in _parse_sacct(line) if view.state.is_over]

    def _run_sacct(self, *arguments: str) -> list[str]:
        """The output of sacct; nothing without accounting, or if it is too old for the query."""
        if time.monotonic() < _accounting_retry_at.get(self.host.name, 0.0):
            return []
        try:
            result = self.host.run((*_SECONDS, "sacct", "-n", "-P", "-X", *arguments), timeout_s=_ACCOUNTING_S)
        except UserError:
            _accounting_retry_at[self.host.name] = time.monotonic() + _ACCOUNTING_BACKOFF_S
            return []
        return [] if result.code else result.out.splitlines()


def _parse_sacct(line: str) -> list[JobView]:
    """Array elements that never started share a line: `6_[2-5,9%2]`."""
    parts = line.split("|")
    if len(parts) != len(_SACCT.split(",")):
        return []
    elements = _UNSTARTED_ELEMENTS.fullmatch(parts[0])
    if elements is not None:
        spans = (span.partition("-") for span in elements[2].split(","))
        numbers = (number for first, _, last in spans for number in range(int(first), int(last or first) + 1))
        return [make_view(f"{elements[1]}_{number}", *parts[1:]) for number in numbers]
    return [make_view(parts[0], *parts[1:])] if _JOB.fullmatch(parts[0]) else []


def _next_step(result: CommandResult, host: str) -> str:
    if "configuration" in result.err or "slurm.conf" in result.err:
        return f"Slurm's commands do not find their configuration on {host}: check SLURM_CONF"
    if "Unable to open file" in result.err or "No such file" in result.err:
        return f"the run's folder must be on a file system that {host} sees under the same name (or set job_dir)"
    if "nvalid partition" in result.err or "nvalid account" in result.err or "nvalid qos" in result.err:
        return "check sinfo and sacctmgr there, and correct the cluster file or the option"
    return "correct the cluster file or the option; --dry-run shows the script"
