"""Workers as Slurm jobs: an array of workers, and a job that merges when all of them have ended."""

from __future__ import annotations

import os
import secrets
import shlex
import zlib
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from gymnast.errors import UserError
from gymnast.executors.executor import Submission, WorkerRequest, ignore_intent
from gymnast.executors.hosts import make_host
from gymnast.executors.slurm.assembly import SlurmOptions, finish_job, job_components, worker_job
from gymnast.executors.slurm.client import Slurm
from gymnast.executors.slurm.script import render
from gymnast.executors.worker_command import make_intent, submission_folder
from gymnast.sidecars.packing import write_job_files
from gymnast.store.atomic import atomic_write
from gymnast.store.paths import RunPaths
from gymnast.types.job import JobState, JobView

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gymnast.sidecars.component import Component

FINISH: Final = "finish"
"""The key of the merge job's number in a submission's details."""
_TOKEN: Final = "token"
"""The key of the argument that scripts get: Slurm lists it, and job name and comment stay the user's."""


@dataclass(frozen=True, slots=True)
class Script:
    path: Path
    text: str


class SlurmExecutor:
    """Queues workers with sbatch, here or on a login node. Without options it can only inspect submissions."""

    name = "slurm"

    def __init__(self, options: SlurmOptions | None = None) -> None:
        self._options = options or SlurmOptions()

    def scripts(self, request: WorkerRequest, number: int) -> list[Script]:
        """The scripts that `submit` would write; of heterogeneous jobs, only the first."""
        request, folder = self._resolve_paths(request, number)
        scripts = [Script(folder / "workers.sh", render(worker_job(request, number, folder, self._options)))]
        if self._options.finish:
            job = finish_job(request, number, folder, self._options, ("WORKERS",))
            scripts.append(Script(folder / "finish.sh", render(job)))
        return scripts

    def submit(
        self, request: WorkerRequest, number: int, note: Callable[[Submission], None] = ignore_intent
    ) -> Submission:
        """Write the scripts and queue them: all of them, or none."""
        request, folder = self._resolve_paths(request, number)
        self._write_files(request, folder, job_components(request, folder, self._options))
        intent = make_intent(self.name, request, number, self._details(folder, request))
        note(intent)
        slurm, details = _slurm(intent), dict(intent.details)
        jobs: list[str] = []
        try:
            for element in range(request.count if self._options.is_heterogeneous else 1):
                job = worker_job(request, number, folder, self._options, jobs)
                name = f"worker_{element}.sh" if self._options.is_heterogeneous else "workers.sh"
                jobs.append(_queue(slurm, folder / name, render(job), details[_TOKEN]))
            if self._options.finish:
                job = finish_job(request, number, folder, self._options, jobs)
                details[FINISH] = _queue(slurm, folder / "finish.sh", render(job), _finish_token(details[_TOKEN]))
        except BaseException:
            _cancel_all(slurm, jobs)
            raise
        return msgspec.structs.replace(intent, jobs=tuple(jobs), details=details)

    def add_finish(self, request: WorkerRequest, submission: Submission) -> Submission | None:
        """Queue the merge job for workers that were queued without one; the options name the jobs it waits for.

        None for submissions of a version whose scripts have no token: the job could not be found again.
        """
        number, token = submission.number, submission.details.get(_TOKEN)
        if token is None:
            return None
        request, folder = self._resolve_paths(replace(request, name=_name(submission)), number)
        slurm, finish_token = _slurm(submission), _finish_token(token)
        jobs = slurm.jobs_with_token(finish_token, submission.at)
        queued = [view.job for view in slurm.views(jobs) if not view.state.is_over]
        if not queued:  # else a submit that was killed has queued it
            self._write_files(request, folder)
            job = finish_job(request, number, folder, self._options, ())
            queued = [_queue(slurm, folder / "finish.sh", render(job), finish_token)]
        return msgspec.structs.replace(submission, details=submission.details | {FINISH: queued[0]})

    def find(self, intent: Submission) -> Submission | None:
        """What was queued for an intent: Slurm lists the token of its scripts."""
        slurm, token = _slurm(intent), intent.details[_TOKEN]
        jobs = slurm.jobs_with_token(token, intent.at)
        if not jobs:
            return None
        finish = slurm.jobs_with_token(_finish_token(token), intent.at)
        details = intent.details | ({FINISH: finish[0]} if finish else {})
        workers = intent.workers if details["is_array"] == "yes" else len(jobs)
        return msgspec.structs.replace(intent, jobs=tuple(jobs), workers=workers, details=details)

    def states(self, submission: Submission) -> list[JobView]:
        """The jobs of its workers. What those did that Slurm has forgotten is in the run's files."""
        jobs = _worker_jobs(submission)
        views = _slurm(submission).views(submission.jobs, jobs)
        by_job = {view.job.removesuffix("+0"): view for view in views}  # the first part of a heterogeneous job
        return [_with_log(submission, by_job.get(job), job, worker) for worker, job in enumerate(jobs)]

    def cancel(self, submission: Submission, jobs: tuple[str, ...] = ()) -> None:
        """Cancel its workers, or some of them; with all of them, also the merge job."""
        finish = [submission.details[FINISH]] if FINISH in submission.details and not jobs else []
        _slurm(submission).cancel([*(jobs or submission.jobs), *finish])

    def finish_state(self, submission: Submission) -> JobView | None:
        """The merge job; None if there is none."""
        job = submission.details.get(FINISH)
        if job is None:
            return None
        views = _slurm(submission).views([job])
        view = views[0] if views else JobView(job=job, state=JobState.UNKNOWN)
        return msgspec.structs.replace(view, log=submission.details["logs"].replace("%a", "finish"))

    def drop_finish(self, submission: Submission) -> None:
        """Cancel the merge job, because another one takes its place."""
        if FINISH in submission.details:
            _slurm(submission).cancel([submission.details[FINISH]])

    def _resolve_paths(self, request: WorkerRequest, number: int) -> tuple[WorkerRequest, Path]:
        """The request with absolute paths, and the folder of the submission."""
        run = request.run.absolute()
        logs = (request.logs or RunPaths(run).logs).absolute()
        base = self._options.site.job_dir
        own = f"{run.stem}-{zlib.crc32(os.fsencode(run)):08x}"  # runs in other folders may have the same name
        folder = submission_folder(run, number) if base is None else Path(base) / own / str(number)
        return replace(request, run=run, logs=logs), folder

    def _write_files(self, request: WorkerRequest, folder: Path, components: Sequence[Component] = ()) -> None:
        """Create the folders that jobs need before they start, and write the files of their components."""
        assert request.logs is not None
        try:
            folder.mkdir(parents=True, exist_ok=True)
            request.logs.mkdir(parents=True, exist_ok=True)
            if len(components) > 1:
                write_job_files(folder, components)
        except OSError as error:
            raise UserError(f"cannot write the job's files: {error.strerror}", where=str(folder)) from error

    def _details(self, folder: Path, request: WorkerRequest) -> dict[str, str]:
        site = self._options.site
        details = {
            _TOKEN: f"gymnast-{secrets.token_hex(8)}",
            "folder": str(folder),
            "logs": f"{request.logs}/{request.name}-{folder.name}-%a.log",
            "site": site.name,
            "is_array": "no" if self._options.is_heterogeneous else "yes",
        }
        if site.host is not None:
            details |= {"host": site.host, "ssh_options": shlex.join(site.ssh_options)}
        return details | (self._options.code.details() if self._options.code is not None else {})


def _queue(slurm: Slurm, path: Path, text: str, token: str) -> str:
    atomic_write(path, text.encode())
    path.chmod(0o755)
    return slurm.submit(str(path), token)


def _name(submission: Submission) -> str:
    return Path(submission.details["logs"]).name.removesuffix(f"-{submission.number}-%a.log")


def _finish_token(token: str) -> str:
    return f"{token}-finish"


def _cancel_all(slurm: Slurm, jobs: list[str]) -> None:
    try:
        slurm.cancel(jobs)
    except UserError as error:
        raise UserError(
            f"not all jobs were submitted, and jobs {', '.join(jobs)} could not be cancelled: {error.what}",
            where=error.where,
            next=f"scancel {' '.join(jobs)}, or let them work on the run; then continue with --resume",
        ) from error


def _slurm(submission: Submission) -> Slurm:
    details = submission.details
    return Slurm(make_host(details.get("host"), shlex.split(details.get("ssh_options", ""))))


def _worker_jobs(submission: Submission) -> list[str]:
    """The job of each worker: an element of the array, or a whole job."""
    if submission.details["is_array"] == "yes":
        return [f"{submission.jobs[0]}_{worker}" for worker in range(submission.workers)]
    return list(submission.jobs)


def _with_log(submission: Submission, view: JobView | None, job: str, worker: int) -> JobView:
    log = submission.details["logs"].replace("%a", str(worker))
    if view is None:
        return JobView(job=job, state=JobState.UNKNOWN, reason="Slurm has forgotten it", log=log)
    return msgspec.structs.replace(view, log=log)
