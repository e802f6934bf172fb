"""Supervising workers as child processes: start some at a time, stop them on request, record how each ended.

The same loop supervises the workers of a submission on this host and the one worker of a Ray actor. A file system that
refuses writes for a while costs nothing: what could not be recorded is recorded later.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from collections import deque
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from gymnast.chunks.identity import boot_id
from gymnast.config.environ import child_environ
from gymnast.executors.job_folder import TOUCH_INTERVAL_S, JobFolder, JobRecord
from gymnast.runtime.registry import process_start
from gymnast.runtime.spawn import oom_kills
from gymnast.runtime.venvs import read_tail
from gymnast.types.job import JobState

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

STOP_GRACE_S: Final = 120.0
"""How long a worker may take to stop: its own grace period for rollouts in flight, and some more."""
_POLL_S: Final = 0.1
_REQUEST_POLL_S: Final = 1.0
_REASON_LINES: Final = 5
_DRAINED: Final = 75
"""The exit code of a worker that was asked to stop and handed back what it held."""


class WorkerGroupSpec(msgspec.Struct, frozen=True, kw_only=True):
    folder: str
    """Of the records."""
    command: tuple[str, ...]
    workers: dict[int, str]
    """The log of each worker."""
    max_running: int
    environment: dict[str, str] = {}
    grace_s: float = STOP_GRACE_S
    job_variable: str = "GYMNAST_JOB_ID"
    """The environment variable with the id of a worker's job."""


class WorkerProcess:
    def __init__(self, job: str, log: Path, node: str | None = None) -> None:
        self.record = JobRecord(
            job=job, host=socket.gethostname(), node=node, boot=boot_id(), started_at=time.time(), log=str(log)
        )
        self._process: subprocess.Popen[bytes] | None = None
        self._oom_kills_before = oom_kills()
        self._stop_requested_at: float | None = None

    def start(self, command: tuple[str, ...], environment: Mapping[str, str]) -> None:
        """Start it. If the command cannot be run, the worker has failed."""
        log = Path(self.record.log)
        try:
            log.parent.mkdir(parents=True, exist_ok=True)
            with log.open("ab") as out:
                self._process = subprocess.Popen(  # noqa: S603 - our own command
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=out,
                    stderr=out,
                    start_new_session=True,  # its group is killed with it, and a terminal's Ctrl-C does not reach it
                    env=child_environ({"PYTHONUNBUFFERED": "1", **environment}),
                )
        except OSError as error:
            self._set_end(JobState.FAILED, None, f"cannot be started: {error}")
            return
        pid = self._process.pid
        self.record = msgspec.structs.replace(self.record, pid=pid, process_started=process_start(pid))

    @property
    def is_over(self) -> bool:
        return self.record.state.is_over

    def poll(self) -> None:
        """Notice its end, and kill what it started and left behind."""
        if self._process is None or self.is_over:
            return
        pid = self._process.pid
        # Not reaped yet: until then its process group id cannot be reused.
        if os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
            return
        self._signal(signal.SIGKILL)
        self._set_end(*self._classify_exit(self._process.wait()))

    def stop(self, now: float, grace_s: float) -> None:
        """Tell it to hand back what it holds and end; kill it when the grace period is over."""
        if self._stop_requested_at is None:
            self._stop_requested_at = now
            self._signal(signal.SIGTERM, whole_group=False)
        elif now - self._stop_requested_at > grace_s:
            self._signal(signal.SIGKILL)

    def _signal(self, number: signal.Signals, *, whole_group: bool = True) -> None:
        if self._process is not None and self._process.returncode is None:
            with suppress(ProcessLookupError, PermissionError):
                (os.killpg if whole_group else os.kill)(self._process.pid, number)

    def _classify_exit(self, code: int) -> tuple[JobState, int, str | None]:
        """The state, the exit code as a shell reports it, and the reason."""
        if self._stop_requested_at is not None:
            return JobState.CANCELLED, code if code >= 0 else 128 - code, None
        if code == 0:
            return JobState.COMPLETED, 0, None
        if code == _DRAINED:
            return JobState.CANCELLED, code, "it was asked to stop"
        if code == -signal.SIGKILL and oom_kills() > self._oom_kills_before:
            return JobState.OUT_OF_MEMORY, 128 - code, "killed because memory ran out"
        if code < 0:
            return JobState.FAILED, 128 - code, f"killed by {signal.Signals(-code).name}"
        return JobState.FAILED, code, read_tail(Path(self.record.log), _REASON_LINES)

    def _set_end(self, state: JobState, code: int | None, reason: str | None) -> None:
        self.record = msgspec.structs.replace(
            self.record, state=state, exit_code=code, reason=reason, ended_at=time.time()
        )


def supervise_workers(
    spec: WorkerGroupSpec,
    job_of: Callable[[int], str],
    is_stop_requested: Callable[[], bool],
    *,
    node: str | None = None,
) -> bool:
    """Run the workers until they end; `is_stop_requested`: whether to stop all. Returns whether all completed."""
    supervisor = _Supervisor(spec, job_of, node)
    while not supervisor.is_done:
        supervisor.step(stop_all=is_stop_requested())
        time.sleep(_POLL_S)
    return supervisor.all_completed


class _Supervisor:
    def __init__(self, spec: WorkerGroupSpec, job_of: Callable[[int], str], node: str | None) -> None:
        self._spec = spec
        self._folder = JobFolder(Path(spec.folder))
        self._job_of = job_of
        self._node = node
        self._waiting = deque(sorted(spec.workers))
        self._running: dict[int, WorkerProcess] = {}
        self._unsaved: dict[int, JobRecord] = {}
        self._polled_at = self._touched_at = 0.0
        self._stopping: set[int] = set()
        self.all_completed = True

    @property
    def is_done(self) -> bool:
        return not (self._waiting or self._running or self._unsaved)

    def step(self, *, stop_all: bool) -> None:
        now = time.monotonic()
        self._poll_requests(now, stop_all=stop_all)
        for worker, process in list(self._running.items()):
            process.poll()
            if process.is_over:
                del self._running[worker]
                self._set_record(worker, process.record)
            elif worker in self._stopping:
                process.stop(now, self._spec.grace_s)
        while self._waiting and len(self._running) < self._spec.max_running:
            self._start(self._waiting.popleft())
        self._save_records()
        self._touch(now)

    def _touch(self, now: float) -> None:
        if now - self._touched_at > TOUCH_INTERVAL_S:
            self._touched_at = now
            with suppress(OSError):
                for worker in self._running:
                    self._folder.touch(worker)

    def _poll_requests(self, now: float, *, stop_all: bool) -> None:
        """Find out which workers to stop."""
        if stop_all:
            self._stopping |= {*self._waiting, *self._running}
        elif now - self._polled_at > _REQUEST_POLL_S:
            self._polled_at = now
            with suppress(OSError):
                live = {*self._waiting, *self._running}
                self._stopping |= {worker for worker in live if self._folder.is_stop_requested(worker)}

    def _start(self, worker: int) -> None:
        job = self._job_of(worker)
        process = WorkerProcess(job, Path(self._spec.workers[worker]), self._node)
        if worker in self._stopping:
            cancelled = msgspec.structs.replace(process.record, state=JobState.CANCELLED, ended_at=time.time())
            self._set_record(worker, cancelled)
            return
        process.start(self._spec.command, {**self._spec.environment, self._spec.job_variable: job})
        if not process.is_over:
            self._running[worker] = process
        self._set_record(worker, process.record)

    def _set_record(self, worker: int, record: JobRecord) -> None:
        self._unsaved[worker] = record
        if record.state.is_over and record.state is not JobState.COMPLETED:
            self.all_completed = False

    def _save_records(self) -> None:
        try:
            for worker in list(self._unsaved):
                self._folder.write(worker, self._unsaved[worker])
                del self._unsaved[worker]
        except FileNotFoundError:  # the run was deleted, and its records with it
            self._unsaved.clear()
        except OSError:
            return
