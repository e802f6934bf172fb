"""Workers as Slurm jobs: an array that takes chunks until none is left, and a job that merges when all have ended."""

from __future__ import annotations

import os
import secrets
import shlex
import zlib
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from gymnast.cluster.components.packing import write_orders
from gymnast.cluster.executor import JobState, JobView, Submission, unnoted
from gymnast.cluster.hosts import host_named
from gymnast.cluster.slurm.assembly import SlurmOptions, finish_job, job_components, worker_job
from gymnast.cluster.slurm.client import Slurm
from gymnast.cluster.slurm.script import render
from gymnast.cluster.worker_command import intended, job_folder
from gymnast.errors import UserError
from gymnast.store.paths import RunPaths
from gymnast.store.replacing import write_replacing

if TYPE_CHECKING:
    from collections.abc import Callable

    from gymnast.cluster.executor import WorkersWanted

FINISH: Final = "finish"
"""The entry of a submission's details that names the job which merges."""
_TOKEN: Final = "token"
"""The entry with the word that scripts are given: Slurm shows it, and the user's name and comment stay as they are."""


@dataclass(frozen=True, slots=True)
class Script:
    """A script, and where it goes."""

    path: Path
    text: str


class SlurmExecutor:
    """Queues workers with sbatch, here or on a login node. Without options it looks at what others submitted."""

    name = "slurm"

    def __init__(self, options: SlurmOptions | None = None) -> None:
        self._options = options or SlurmOptions()

    def scripts(self, wanted: WorkersWanted, number: int) -> list[Script]:
        """The scripts that `submit` would write; of jobs that cannot be an array, the first."""
        wanted, folder = self._placed(wanted, number)
        found = [Script(folder / "workers.sh", render(worker_job(wanted, number, folder, self._options)))]
        if self._options.finish:
            job = finish_job(wanted, number, folder, self._options, ("WORKERS",))
            found.append(Script(folder / "finish.sh", render(job)))
        return found

    def submit(self, wanted: WorkersWanted, number: int, note: Callable[[Submission], None] = unnoted) -> Submission:
        """Write the scripts and queue them. Nothing stays queued if not all of it is."""
        wanted, folder = self._placed(wanted, number)
        self._write_files(wanted, folder)
        intent = intended(self.name, wanted, number, self._details(folder, wanted))
        note(intent)
        slurm, details = _slurm(intent), dict(intent.details)
        jobs: list[str] = []
        try:
            for element in range(wanted.count if self._options.is_spread else 1):
                job = worker_job(wanted, number, folder, self._options, jobs)
                name = f"worker_{element}.sh" if self._options.is_spread else "workers.sh"
                jobs.append(_queue(slurm, folder / name, render(job), details[_TOKEN]))
            if self._options.finish:
                job = finish_job(wanted, number, folder, self._options, jobs)
                details[FINISH] = _queue(slurm, folder / "finish.sh", render(job), _of_finish(details[_TOKEN]))
        except BaseException:
            _take_back(slurm, jobs)
            raise
        return msgspec.structs.replace(intent, jobs=tuple(jobs), details=details)

    def add_finish(self, wanted: WorkersWanted, submission: Submission) -> Submission | None:
        """Queue the job that merges for workers that were queued without; it waits for what the options say.

        None for those of a version that gave no word to its scripts: nobody could find that job again.
        """
        number, token = submission.number, submission.details.get(_TOKEN)
        if token is None:
            return None
        wanted, folder = self._placed(replace(wanted, name=_name(submission)), number)
        slurm, word = _slurm(submission), _of_finish(token)
        queued = [view.job for view in slurm.views(slurm.told(word, submission.at)) if not view.state.is_over]
        if not queued:  # else somebody was killed who queued it
            self._make_folders(wanted, folder)
            job = finish_job(wanted, number, folder, self._options, ())
            queued = [_queue(slurm, folder / "finish.sh", render(job), word)]
        return msgspec.structs.replace(submission, details=submission.details | {FINISH: queued[0]})

    def find(self, intent: Submission) -> Submission | None:
        """What was queued for an intent: Slurm knows jobs by the word that their scripts were given."""
        slurm, token = _slurm(intent), intent.details[_TOKEN]
        jobs = slurm.told(token, intent.at)
        if not jobs:
            return None
        finish = slurm.told(_of_finish(token), intent.at)
        details = intent.details | ({FINISH: finish[0]} if finish else {})
        workers = intent.workers if details["is_array"] == "yes" else len(jobs)
        return msgspec.structs.replace(intent, jobs=tuple(jobs), workers=workers, details=details)

    def states(self, submission: Submission) -> list[JobView]:
        """How its workers stand. Of those that Slurm has forgotten, the run's files know what they did."""
        names = _names(submission)
        found = {_element(view.job): view for view in _slurm(submission).views(submission.jobs, names)}
        return [_with_log(submission, found.get(job), job, worker) for worker, job in enumerate(names)]

    def cancel(self, submission: Submission, jobs: tuple[str, ...] = ()) -> None:
        """End its workers, or some of them; with all of them, the job that waits for their end."""
        finish = [submission.details[FINISH]] if FINISH in submission.details and not jobs else []
        _slurm(submission).cancel([*(jobs or submission.jobs), *finish])

    def finish_state(self, submission: Submission) -> JobView | None:
        """How the job stands that merges; None if there is none."""
        job = submission.details.get(FINISH)
        if job is None:
            return None
        found = _slurm(submission).views([job])
        view = found[0] if found else JobView(job=job, state=JobState.UNKNOWN)
        return msgspec.structs.replace(view, log=submission.details["logs"].replace("%a", "finish"))

    def drop_finish(self, submission: Submission) -> None:
        """Take back the job that merges, because another one will."""
        if FINISH in submission.details:
            _slurm(submission).cancel([submission.details[FINISH]])

    def _placed(self, wanted: WorkersWanted, number: int) -> tuple[WorkersWanted, Path]:
        """What is wanted with whole paths, and the folder of the submission."""
        run = wanted.run.absolute()
        logs = (wanted.logs or RunPaths(run).logs).absolute()
        base = self._options.site.job_dir
        own = f"{run.stem}-{zlib.crc32(os.fsencode(run)):08x}"  # other folders have runs of the same name
        folder = job_folder(run, number) if base is None else Path(base) / own / str(number)
        return replace(wanted, run=run, logs=logs), folder

    def _write_files(self, wanted: WorkersWanted, folder: Path) -> None:
        """The folders that jobs need before they start, and the orders of components."""
        components = job_components(wanted, folder, self._options)
        self._make_folders(wanted, folder)
        try:
            if len(components) > 1:
                write_orders(folder, components)
        except OSError as error:
            raise _unwritable(folder, error) from error

    def _make_folders(self, wanted: WorkersWanted, folder: Path) -> None:
        assert wanted.logs is not None
        try:
            folder.mkdir(parents=True, exist_ok=True)
            wanted.logs.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise _unwritable(folder, error) from error

    def _details(self, folder: Path, wanted: WorkersWanted) -> dict[str, str]:
        site = self._options.site
        found = {
            _TOKEN: f"gymnast-{secrets.token_hex(8)}",
            "folder": str(folder),
            "logs": f"{wanted.logs}/{wanted.name}-{folder.name}-%a.log",
            "site": site.name,
            "is_array": "no" if self._options.is_spread else "yes",
        }
        if site.host is not None:
            found |= {"host": site.host, "ssh_options": shlex.join(site.ssh_options)}
        return found | (self._options.code.details() if self._options.code is not None else {})


def _queue(slurm: Slurm, path: Path, text: str, word: str) -> str:
    write_replacing(path, text.encode())
    path.chmod(0o755)
    return slurm.submit(str(path), word)


def _unwritable(folder: Path, error: OSError) -> UserError:
    return UserError(f"cannot write the job's files: {error.strerror}", where=str(folder))


def _name(submission: Submission) -> str:
    """The one that its jobs were given."""
    return Path(submission.details["logs"]).name.removesuffix(f"-{submission.number}-%a.log")


def _of_finish(token: str) -> str:
    return f"{token}-finish"


def _take_back(slurm: Slurm, jobs: list[str]) -> None:
    try:
        slurm.cancel(jobs)
    except UserError as error:
        raise UserError(
            f"not all of it could be submitted, and jobs {', '.join(jobs)} could not be taken back: {error.what}",
            where=error.where,
            next=f"scancel {' '.join(jobs)}, or let them work on the run; then go on with --resume",
        ) from error


def _slurm(submission: Submission) -> Slurm:
    details = submission.details
    return Slurm(host_named(details.get("host"), shlex.split(details.get("ssh_options", ""))))


def _names(submission: Submission) -> list[str]:
    """The job of each worker: elements of one array, or jobs of their own."""
    if submission.details["is_array"] == "yes":
        return [f"{submission.jobs[0]}_{worker}" for worker in range(submission.workers)]
    return list(submission.jobs)


def _element(job: str) -> str:
    """The parts of a heterogeneous job are one; what the first says counts."""
    return job.removesuffix("+0")


def _with_log(submission: Submission, view: JobView | None, job: str, worker: int) -> JobView:
    log = submission.details["logs"].replace("%a", str(worker))
    if view is None:
        return JobView(job=job, state=JobState.UNKNOWN, reason="Slurm does not know it any more", log=log)
    return msgspec.structs.replace(view, log=log)
