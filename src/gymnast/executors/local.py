"""Workers as processes of this host: in the background, where they outlive the shell, or in the foreground."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from gymnast.chunks.identity import boot_id
from gymnast.errors import StartError, UserError
from gymnast.executors.executor import Submission, WorkerRequest, ignore_intent
from gymnast.executors.job_folder import TOUCH_INTERVAL_S, JobFolder, JobRecord
from gymnast.executors.local_supervisor import job_name, supervisor_name
from gymnast.executors.worker_command import (
    make_intent,
    select_workers,
    submission_folder,
    worker_command,
    worker_log_path,
)
from gymnast.executors.worker_processes import STOP_GRACE_S, WorkerGroupSpec, supervise_workers
from gymnast.runtime.registry import process_start
from gymnast.sidecars.component import Component
from gymnast.sidecars.packing import write_job_files
from gymnast.sidecars.stop_request import stop_on_signals
from gymnast.types.job import JobState, JobView

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_START_S: Final = 60.0
_SILENT_S: Final = 4 * TOUCH_INTERVAL_S


class LocalExecutor:
    """Starts workers on this host. In the foreground, `submit` returns when all of them have ended."""

    name = "local"

    def __init__(
        self,
        *,
        foreground: bool = False,
        grace_s: float = STOP_GRACE_S,
        components: tuple[Component, ...] = (),
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self._foreground = foreground
        self._grace_s = grace_s
        self._components = components
        """What each worker has to itself: a policy server, a sandbox."""
        self._environment = environment or {}
        """Of the worker, with placeholders for the addresses of its components."""

    def submit(
        self, request: WorkerRequest, number: int, note: Callable[[Submission], None] = ignore_intent
    ) -> Submission:
        request = replace(request, run=request.run.resolve())
        folder = JobFolder(submission_folder(request.run, number))
        spec = WorkerGroupSpec(
            folder=str(folder.path),
            command=self._command(request, folder.path),
            workers={worker: str(worker_log_path(request, number, worker)) for worker in range(request.count)},
            max_running=min(request.max_running or request.count, request.count),
            environment=request.environment,
            grace_s=self._grace_s,
        )
        try:
            folder.create()
        except OSError as error:
            raise UserError(f"cannot start workers: {error.strerror}", where=str(folder.path)) from error
        details = {"folder": str(folder.path), "host": socket.gethostname(), "boot": boot_id()}
        intent = make_intent(self.name, request, number, details)
        note(intent)
        supervisor = _supervise_in_foreground(spec) if self._foreground else _start_supervisor(spec)
        return msgspec.structs.replace(intent, jobs=(supervisor,))

    def find(self, intent: Submission) -> Submission | None:
        """What was started for an intent: the records of its workers name their supervisor."""
        folder = JobFolder(Path(intent.details["folder"]))
        jobs = [record.job for worker in range(intent.workers) if (record := folder.read(worker)) is not None]
        return msgspec.structs.replace(intent, jobs=(jobs[0].rpartition("_")[0],)) if jobs else None

    def states(self, submission: Submission) -> list[JobView]:
        folder = JobFolder(Path(submission.details["folder"]))
        supervisor = submission.jobs[0]
        is_supervised = _is_supervisor_alive(submission)
        views: list[JobView] = []
        for worker in range(submission.workers):
            record = folder.read(worker)
            if record is None:
                state, reason = _unstarted_state(folder, worker, is_supervised=is_supervised)
                views.append(JobView(job=job_name(supervisor, worker), state=state, reason=reason))
            else:
                if is_supervised is None and not record.state.is_over and folder.silent_s(worker) < _SILENT_S:
                    is_supervised = True
                views.append(_view_record(record, is_supervised=is_supervised))
        return views

    def cancel(self, submission: Submission, jobs: tuple[str, ...] = ()) -> None:
        """End its workers: they hand back what they hold, and are killed if that takes too long."""
        folder = JobFolder(Path(submission.details["folder"]))
        workers = select_workers(submission.workers, submission.jobs[0], jobs)
        folder.request_stop(workers)
        if _is_supervisor_alive(submission):
            return
        for worker in workers:  # without a supervisor, signal them ourselves
            record = folder.read(worker)
            if record is not None and record.pid is not None and _is_local(record) and _is_alive(record):
                os.kill(record.pid, signal.SIGTERM)

    def _command(self, request: WorkerRequest, folder: Path) -> tuple[str, ...]:
        """A worker's command; with components, that of a job which has them all."""
        if not self._components:
            return worker_command(request, die_with_parent=self._foreground)
        needs = tuple(component.name for component in self._components)
        command = worker_command(request, die_with_parent=False)
        worker = Component(
            "worker", command, environment=self._environment, needs=needs, is_main=True, stop_s=self._grace_s
        )
        write_job_files(folder / "orders", [*self._components, worker])
        return (
            *(sys.executable, "-P", "-m", "gymnast.sidecars.local_job"),
            *(str(folder / "orders"), str(folder / "jobs")),
        )


def _supervise_in_foreground(spec: WorkerGroupSpec) -> str:
    name = supervisor_name(os.getpid()) + f"-{time.time_ns()}"
    with stop_on_signals() as is_stop_requested:
        supervise_workers(spec, lambda worker: job_name(name, worker), is_stop_requested)
    return name


def _start_supervisor(spec: WorkerGroupSpec) -> str:
    try:
        done = subprocess.run(
            [sys.executable, "-P", "-m", "gymnast.executors.local_supervisor"],
            input=msgspec.json.encode(spec),
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


def _is_supervisor_alive(submission: Submission) -> bool | None:
    """None if it is on another host, where we cannot look."""
    if submission.details["host"] != socket.gethostname():
        return None
    pid, _, _ = submission.jobs[0].partition("-")
    is_this_boot = submission.details["boot"] == boot_id()
    return is_this_boot and submission.jobs[0].startswith(supervisor_name(int(pid)))


def _unstarted_state(folder: JobFolder, worker: int, *, is_supervised: bool | None) -> tuple[JobState, str | None]:
    if is_supervised is not False:
        return JobState.PENDING, None
    if folder.is_stop_requested(worker):
        return JobState.CANCELLED, None
    return JobState.UNKNOWN, "the process that would have started it is gone"


def _view_record(record: JobRecord, *, is_supervised: bool | None) -> JobView:
    if record.state.is_over or is_supervised or (_is_local(record) and _is_alive(record)):
        return record.view()
    if is_supervised is None:
        return record.view(reason=f"as last recorded on {record.host}; run the command there to know more")
    if record.boot != boot_id():
        return record.view(JobState.NODE_FAILED, "the machine was rebooted")
    return record.view(JobState.UNKNOWN, "it ended without a supervisor")


def _is_local(record: JobRecord) -> bool:
    return record.host == socket.gethostname() and record.boot == boot_id()


def _is_alive(record: JobRecord) -> bool:
    return record.pid is not None and process_start(record.pid) == record.process_started
