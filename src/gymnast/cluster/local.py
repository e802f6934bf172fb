"""Workers as processes of this host: in the background, where they outlive the shell, or in the foreground."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from gymnast.cluster.components.packing import write_orders
from gymnast.cluster.components.spec import Component
from gymnast.cluster.executor import JobState, JobView, Submission, unnoted
from gymnast.cluster.job_folder import TOUCHED_EVERY_S, JobFolder, boot_id
from gymnast.cluster.kept import END_GRACE_S, Keeping, keep
from gymnast.cluster.local_keeper import ENDING, Asked, job_name, keeper_name
from gymnast.cluster.worker_command import chosen, intended, job_folder, worker_command, worker_log
from gymnast.errors import StartError, UserError
from gymnast.runtime.registry import process_start

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from gymnast.cluster.executor import WorkersWanted
    from gymnast.cluster.job_folder import JobRecord

_START_S: Final = 60.0
_SILENT_S: Final = 4 * TOUCHED_EVERY_S


class LocalExecutor:
    """Starts workers here. In the foreground `submit` returns when all of them have ended."""

    name = "local"

    def __init__(
        self,
        *,
        foreground: bool = False,
        grace_s: float = END_GRACE_S,
        beside: tuple[Component, ...] = (),
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self._foreground = foreground
        self._grace_s = grace_s
        self._beside = beside
        """Components that each worker has to itself: a policy server, a sandbox."""
        self._environment = environment or {}
        """What a worker is told of them, with places to fill in."""

    def submit(self, wanted: WorkersWanted, number: int, note: Callable[[Submission], None] = unnoted) -> Submission:
        """Start the workers."""
        wanted = replace(wanted, run=wanted.run.resolve())
        folder = JobFolder(job_folder(wanted.run, number))
        keeping = Keeping(
            folder=str(folder.path),
            command=self._command(wanted, folder.path),
            workers={worker: str(worker_log(wanted, number, worker)) for worker in range(wanted.count)},
            at_once=min(wanted.at_once or wanted.count, wanted.count),
            environment=wanted.environment,
            grace_s=self._grace_s,
        )
        try:
            folder.create()
        except OSError as error:
            raise UserError(f"cannot start workers: {error.strerror}", where=str(folder.path)) from error
        details = {"folder": str(folder.path), "host": socket.gethostname(), "boot": boot_id()}
        intent = intended(self.name, wanted, number, details)
        note(intent)
        keeper = self._keep_here(keeping) if self._foreground else _start_keeper(keeping)
        return msgspec.structs.replace(intent, jobs=(keeper,))

    def find(self, intent: Submission) -> Submission | None:
        """What was started for an intent: the records of its workers name their keeper."""
        folder = JobFolder(Path(intent.details["folder"]))
        jobs = [record.job for worker in range(intent.workers) if (record := folder.read(worker)) is not None]
        return msgspec.structs.replace(intent, jobs=(jobs[0].rpartition("_")[0],)) if jobs else None

    def states(self, submission: Submission) -> list[JobView]:
        """How its workers stand."""
        folder = JobFolder(Path(submission.details["folder"]))
        keeper = submission.jobs[0]
        keeper_lives = _keeper_lives(submission)
        found: list[JobView] = []
        for worker in range(submission.workers):
            record = folder.read(worker)
            if record is None:
                state, reason = _never_started(folder, worker, keeper_lives=keeper_lives)
                found.append(JobView(job=job_name(keeper, worker), state=state, reason=reason))
            else:
                if keeper_lives is None and not record.state.is_over and folder.heard_s(worker) < _SILENT_S:
                    keeper_lives = True
                found.append(_looked_at(record, keeper_lives=keeper_lives))
        return found

    def cancel(self, submission: Submission, jobs: tuple[str, ...] = ()) -> None:
        """End its workers: they hand back what they hold, and are killed if that takes long."""
        folder = JobFolder(Path(submission.details["folder"]))
        keeper = submission.jobs[0]
        workers = chosen(submission.workers, keeper, jobs)
        folder.ask_end(workers)
        if _keeper_lives(submission):
            return
        for worker in workers:  # nobody is left who would hear
            record = folder.read(worker)
            if record is not None and record.pid is not None and _is_here(record) and _lives(record):
                os.kill(record.pid, signal.SIGTERM)

    def _command(self, wanted: WorkersWanted, folder: Path) -> tuple[str, ...]:
        """A worker's command; with components beside it, that of a job which has them all."""
        if not self._beside:
            return worker_command(wanted, tethered=self._foreground)
        needs = tuple(one.name for one in self._beside)
        command = worker_command(wanted, tethered=False)
        worker = Component(
            "worker", command, environment=self._environment, needs=needs, is_main=True, stop_s=self._grace_s
        )
        write_orders(folder / "orders", [*self._beside, worker])
        return (
            *(sys.executable, "-m", "gymnast.cluster.components.here"),
            *(str(folder / "orders"), str(folder / "jobs")),
        )

    def _keep_here(self, keeping: Keeping) -> str:
        keeper = keeper_name(os.getpid()) + f"-{time.time_ns()}"
        with listening() as asked:
            keep(keeping, lambda worker: job_name(keeper, worker), asked)
        return keeper


@contextmanager
def listening() -> Iterator[Asked]:
    """Signals ask the workers to end, until the block is left."""
    before = {number: signal.getsignal(number) for number in ENDING}
    asked = Asked()
    asked.listen()
    try:
        yield asked
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _start_keeper(keeping: Keeping) -> str:
    try:
        done = subprocess.run(
            [sys.executable, "-m", "gymnast.cluster.local_keeper"],
            input=msgspec.json.encode(keeping),
            capture_output=True,
            start_new_session=True,
            timeout=_START_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise StartError(f"cannot start workers: {error}") from error
    if done.returncode:
        raise StartError("cannot start workers", where=done.stderr.decode(errors="replace").strip())
    return done.stdout.decode()


def _keeper_lives(submission: Submission) -> bool | None:
    """None: it is on another host, where we cannot look."""
    if submission.details["host"] != socket.gethostname():
        return None
    pid, _, _ = submission.jobs[0].partition("-")
    is_this_boot = submission.details["boot"] == boot_id()
    return is_this_boot and submission.jobs[0].startswith(keeper_name(int(pid)))


def _never_started(folder: JobFolder, worker: int, *, keeper_lives: bool | None) -> tuple[JobState, str | None]:
    if keeper_lives is not False:
        return JobState.PENDING, None
    if folder.is_asked_to_end(worker):
        return JobState.CANCELLED, None
    return JobState.UNKNOWN, "the process that would have started it is gone"


def _looked_at(record: JobRecord, *, keeper_lives: bool | None) -> JobView:
    if record.state.is_over or keeper_lives or (_is_here(record) and _lives(record)):
        return record.view()
    if keeper_lives is None:
        return record.view(reason=f"as last recorded on {record.host}; ask there for more")
    if record.boot != boot_id():
        return record.view(JobState.NODE_FAILED, "the machine was started again")
    return record.view(JobState.UNKNOWN, "it ended while nobody watched")


def _is_here(record: JobRecord) -> bool:
    return record.host == socket.gethostname() and record.boot == boot_id()


def _lives(record: JobRecord) -> bool:
    return record.pid is not None and process_start(record.pid) == record.process_started
