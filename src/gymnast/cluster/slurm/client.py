"""Slurm's own commands, with deadlines; when they refuse, their words are in the error."""

from __future__ import annotations

import re
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from gymnast.cluster.executor import JobState, JobView
from gymnast.cluster.slurm.states import FORMAT, exit_code, read_squeue, state_of
from gymnast.errors import NotFoundError, StartError, UserError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from gymnast.cluster.hosts import Answer, Host

_GONE: Final = ("Invalid job id", "already completing or completed", "does not exist")
_IN_DOUBT: Final = ("timed out",)
"""What sbatch says when the controller may have queued the job all the same."""
_SECONDS: Final = ("env", "SLURM_TIME_FORMAT=%s")
_JOB: Final = re.compile(r"\d+(?:_\d+|\+\d+)?")
_NEVER_BEGUN: Final = re.compile(r"(\d+)_\[((?:\d+(?:-\d+)?,?)+)(?:%\d+)?\]")
_ARRAY_OR_PART: Final = re.compile(r"[_+ ]")
"""What comes after the number where squeue and sacct name a job: `17_[0-3] …`, `17_2 …`, `17+0 …`, `17 …`."""
_OTHER_CLOCKS_S: Final = 2 * 86400.0
"""Accounting is asked by days, of which another host may have another than we."""
_ACCOUNTING_S: Final = 10.0
_NOT_AGAIN_S: Final = 60.0
"""Accounting that does not answer is left alone for a while: whoever watches a run looks every two seconds."""
_asked_again_at: dict[str, float] = {}
_SACCT: Final = "JobID,State,ExitCode,NodeList,Start,End"
_DEPENDENCY: Final = re.compile(r"(after\w*):(.+)")


@dataclass(frozen=True, slots=True)
class Slurm:
    """The scheduler that a host's commands reach."""

    host: Host

    def submit(self, script: str, *words: str) -> str:
        """Queue a script that lies on the shared file system, with words for it. Returns the job's number."""
        said = self.host.run(("sbatch", "--parsable", script, *words))
        number = said.out.strip().split(";")[0].splitlines()[-1:]
        if said.code or not number or not number[0].isdecimal():
            is_sure = not any(word in said.err for word in _IN_DOUBT)
            raise (StartError if is_sure else UserError)(
                f"Slurm refuses the job: {said.words}",
                where=f"sbatch {script} on {self.host.name}",
                next=_next_after(said, self.host.name),
            )
        return number[0]

    def views(self, jobs: Sequence[str], elements: Sequence[str] = ()) -> list[JobView]:
        """How these jobs stand, an entry for each element of an array, as far as Slurm remembers.

        The controller forgets an element some minutes after its end, however long the rest of the array goes on: with
        `elements`, accounting is asked for those that are missing.
        """
        if not jobs:
            return []
        line = (*_SECONDS, "squeue", "-h", "-r", "-t", "all", "-j", ",".join(jobs), "-O", FORMAT)
        said = self.host.run(line)
        if said.code and not any(word in said.err for word in _GONE):
            raise UserError(f"Slurm does not say how the jobs stand: {said.words}", where=f"squeue on {self.host.name}")
        found = read_squeue(said.out) if not said.code else []
        names = {view.job for view in found}
        known = names | {_ARRAY_OR_PART.split(name)[0] for name in names}
        missing = {_ARRAY_OR_PART.split(job)[0] for job in elements or jobs if job not in known}
        return [*found, *(view for view in self._forgotten(sorted(missing)) if view.job not in names)]

    def cancel(self, jobs: Iterable[str]) -> None:
        """End jobs. Those that are over are no error."""
        words = sorted(set(jobs))
        if not words:
            return
        said = self.host.run(("scancel", *words))
        bad = [line for line in said.err.splitlines() if line.strip() and not any(word in line for word in _GONE)]
        if said.code and bad:
            raise UserError(f"Slurm does not cancel: {' '.join(bad)}", where=f"scancel on {self.host.name}")

    def numbers_named(self, name: str) -> list[str]:
        """The numbers of the user's own jobs of that name that are not over, the oldest first."""
        listed = self._own_jobs(f"--name={name}", "-o", "%A %F")
        return sorted({line.split()[-1] for line in listed if line.strip()}, key=int)

    def waiting_with(self, word: str) -> list[str]:
        """The numbers of the user's own jobs that are not over and whose scripts were given this word, oldest first."""
        listed = map(str.split, self._own_jobs("-o", "%A %T %o"))
        found = {words[0] for words in listed if words[-1:] == [word] and words[1] != "COMPLETING"}
        return sorted(found, key=int)

    def told(self, word: str, since: float) -> list[str]:
        """The numbers of the user's own jobs whose scripts were given this word, over or not, the oldest first."""
        remembered = self._own_jobs("-t", "all", "-o", "%i %o")
        day = time.strftime("%Y-%m-%d", time.localtime(since - _OTHER_CLOCKS_S))
        forgotten = self._accounting("-S", day, "-o", "JobID,SubmitLine")
        lines = [*remembered, *(line.replace("|", " ", 1) for line in forgotten)]
        found = {_ARRAY_OR_PART.split(line)[0] for line in lines if line.split()[-1:] == [word]}
        return sorted(found, key=int)

    def _own_jobs(self, *words: str) -> list[str]:
        """Lines of squeue about the user's own jobs."""
        said = self.host.run(("squeue", "-h", "--me", *words))
        if said.code:
            raise UserError(f"Slurm does not list jobs: {said.words}", where=f"squeue on {self.host.name}")
        return said.out.splitlines()

    def after(self, asked: str) -> str:
        """What `--run-after` means to Slurm: a number, a job's name, or either with `afterany:` before it."""
        match = _DEPENDENCY.fullmatch(asked)
        kind, what = (match.group(1), match.group(2)) if match else ("afterok", asked)
        if _JOB.fullmatch(what) or re.fullmatch(r"\d+(:\d+)*", what):
            if kind == "afterok":
                self._refuse_what_cannot_end_well(what.split(":"))
            return f"{kind}:{what}"
        numbers = self.numbers_named(what)
        if not numbers:
            raise NotFoundError(
                f"no job called '{what}' waits or runs", next="give the number of a job, or leave --run-after out"
            )
        return f"{kind}:{':'.join(numbers)}"

    def _refuse_what_cannot_end_well(self, jobs: Sequence[str]) -> None:
        """Slurm itself starts at once what waits for a job that it has forgotten, or has never heard of."""
        views = self.views(jobs)
        for job in jobs:
            found = [view for view in views if job in {view.job, _ARRAY_OR_PART.split(view.job)[0]}]
            if not found:
                raise NotFoundError(
                    f"Slurm does not know job {job}",
                    next="leave --run-after out if it has ended well; else give a job that waits or runs",
                )
            bad = next((one for one in found if one.state.is_over and one.state is not JobState.COMPLETED), None)
            if bad is not None:
                raise UserError(
                    f"'{job}' ended badly: job {bad.job} is {bad.state}",
                    next="submit it again first, or leave --run-after out",
                )

    def _forgotten(self, jobs: list[str]) -> list[JobView]:
        """What accounting knows of jobs that the controller has forgotten; nothing where there is none.

        One that still runs there does not run: its end was never recorded.
        """
        if not jobs:
            return []
        lines = self._accounting("-j", ",".join(jobs), "-o", _SACCT)
        return [view for line in lines for view in _from_sacct(line) if view.state.is_over]

    def _accounting(self, *words: str) -> list[str]:
        """What accounting answers; nothing where there is none, or one that is too old for the question."""
        if time.monotonic() < _asked_again_at.get(self.host.name, 0.0):
            return []
        try:
            said = self.host.run((*_SECONDS, "sacct", "-n", "-P", "-X", *words), timeout_s=_ACCOUNTING_S)
        except UserError:
            _asked_again_at[self.host.name] = time.monotonic() + _NOT_AGAIN_S
            return []
        return [] if said.code else said.out.splitlines()


def _from_sacct(line: str) -> list[JobView]:
    """Elements of an array that never began share a line: `6_[2-5,9%2]`."""
    parts = line.split("|")
    if len(parts) != len(_SACCT.split(",")):
        return []
    many = _NEVER_BEGUN.fullmatch(parts[0])
    if many is not None:
        spans = (span.partition("-") for span in many[2].split(","))
        numbers = (number for first, _, last in spans for number in range(int(first), int(last or first) + 1))
        return [_accounted(f"{many[1]}_{number}", *parts[1:]) for number in numbers]
    return [_accounted(parts[0], *parts[1:])] if _JOB.fullmatch(parts[0]) else []


def _accounted(job: str, word: str, code: str, node: str, start: str, end: str) -> JobView:
    state = state_of(word)
    return JobView(
        job=job,
        state=state,
        exit_code=exit_code(code) if state.is_over else None,
        node=node if node and node != "None assigned" else None,
        started_at=float(start) if start.isdecimal() else None,
        ended_at=float(end) if end.isdecimal() else None,
    )


def _next_after(said: Answer, host: str) -> str:
    if "configuration" in said.err or "slurm.conf" in said.err:
        return f"Slurm's own commands do not find their configuration on {host}: is SLURM_CONF right?"
    if "Unable to open file" in said.err or "No such file" in said.err:
        return f"the run's folder must be on a file system that {host} sees under the same name (or set job_dir)"
    if "nvalid partition" in said.err or "nvalid account" in said.err or "nvalid qos" in said.err:
        return "look at sinfo and sacctmgr there, and correct the cluster's file or the option"
    return "correct the cluster's file or the option; --dry-run shows the script"
