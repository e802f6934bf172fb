"""Keeping workers as child processes: start so many at a time, end them when asked, record how each ended.

The same loop keeps the workers of a submission on this host and the one worker of a Ray actor. A file system that
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

from gymnast.cluster.executor import JobState
from gymnast.cluster.job_folder import TOUCHED_EVERY_S, JobFolder, JobRecord, boot_id
from gymnast.config.environ import child_environ
from gymnast.runtime.registry import process_start
from gymnast.runtime.spawn import oom_kills
from gymnast.runtime.venvs import tail

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

END_GRACE_S: Final = 120.0
"""How long a worker that was asked to end may take: its own grace for rollouts in flight, and some more."""
_POLL_S: Final = 0.1
_ASKED_EVERY_S: Final = 1.0
_REASON_LINES: Final = 5
_DRAINED: Final = 75
"""The exit code of a worker that was told to end and handed back what it held."""


class Keeping(msgspec.Struct, frozen=True, kw_only=True):
    """What a keeper is told."""

    folder: str
    """Of the records."""
    command: tuple[str, ...]
    workers: dict[int, str]
    """The log of each worker."""
    at_once: int
    environment: dict[str, str] = {}
    grace_s: float = END_GRACE_S
    job_variable: str = "GYMNAST_JOB_ID"
    """The variable in which a worker finds the name of its job."""


class Kept:
    """One worker process."""

    def __init__(self, job: str, log: Path, node: str | None = None) -> None:
        self.record = JobRecord(
            job=job, host=socket.gethostname(), node=node, boot=boot_id(), started_at=time.time(), log=str(log)
        )
        self._process: subprocess.Popen[bytes] | None = None
        self._oom_kills_before = oom_kills()
        self._asked_at: float | None = None

    def start(self, command: tuple[str, ...], environment: Mapping[str, str]) -> None:
        """Start it. A command that cannot be run is a worker that failed."""
        log = Path(self.record.log)
        try:
            log.parent.mkdir(parents=True, exist_ok=True)
            with log.open("ab") as out:
                self._process = subprocess.Popen(  # noqa: S603 - our own command
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=out,
                    stderr=out,
                    start_new_session=True,  # its group is ended with it, and a terminal's Ctrl-C is not for it
                    env=child_environ({"PYTHONUNBUFFERED": "1", **environment}),
                )
        except OSError as error:
            self._end(JobState.FAILED, None, f"cannot be started: {error}")
            return
        pid = self._process.pid
        self.record = msgspec.structs.replace(self.record, pid=pid, process_started=process_start(pid))

    @property
    def is_over(self) -> bool:
        return self.record.state.is_over

    def look(self) -> None:
        """Notice its end, and end whatever it started and left behind."""
        if self._process is None or self.is_over:
            return
        pid = self._process.pid
        # Not reaped yet: until then its process group cannot be anybody else's.
        if os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
            return
        self._signal(signal.SIGKILL)
        self._end(*self._how(self._process.wait()))

    def end(self, now: float, grace_s: float) -> None:
        """Ask it to hand back what it holds and end; kill it when the grace is over."""
        if self._asked_at is None:
            self._asked_at = now
            self._signal(signal.SIGTERM, whole_group=False)
        elif now - self._asked_at > grace_s:
            self._signal(signal.SIGKILL)

    def _signal(self, number: signal.Signals, *, whole_group: bool = True) -> None:
        if self._process is not None and self._process.returncode is None:
            with suppress(ProcessLookupError, PermissionError):
                (os.killpg if whole_group else os.kill)(self._process.pid, number)

    def _how(self, code: int) -> tuple[JobState, int, str | None]:
        """The state, the exit code as a shell would say it, and why."""
        if self._asked_at is not None:
            return JobState.CANCELLED, code if code >= 0 else 128 - code, None
        if code == 0:
            return JobState.COMPLETED, 0, None
        if code == _DRAINED:
            return JobState.CANCELLED, code, "somebody told it to end"
        if code == -signal.SIGKILL and oom_kills() > self._oom_kills_before:
            return JobState.OUT_OF_MEMORY, 128 - code, "killed because memory ran out"
        if code < 0:
            return JobState.FAILED, 128 - code, f"killed by {signal.Signals(-code).name}"
        return JobState.FAILED, code, tail(Path(self.record.log), _REASON_LINES)

    def _end(self, state: JobState, code: int | None, reason: str | None) -> None:
        self.record = msgspec.structs.replace(
            self.record, state=state, exit_code=code, reason=reason, ended_at=time.time()
        )


def keep(keeping: Keeping, job_of: Callable[[int], str], asked: Callable[[], bool], *, node: str | None = None) -> bool:
    """Run the workers to their end; `asked` says whether all of them should end. Returns whether all completed."""
    keeper = _Keeper(keeping, job_of, node)
    while not keeper.is_done:
        keeper.turn(all_asked=asked())
        time.sleep(_POLL_S)
    return keeper.all_completed


class _Keeper:
    def __init__(self, keeping: Keeping, job_of: Callable[[int], str], node: str | None) -> None:
        self._keeping = keeping
        self._folder = JobFolder(Path(keeping.folder))
        self._job_of = job_of
        self._node = node
        self._waiting = deque(sorted(keeping.workers))
        self._running: dict[int, Kept] = {}
        self._unsaved: dict[int, JobRecord] = {}
        self._looked_at = self._touched_at = 0.0
        self._asked: set[int] = set()
        self.all_completed = True

    @property
    def is_done(self) -> bool:
        return not (self._waiting or self._running or self._unsaved)

    def turn(self, *, all_asked: bool) -> None:
        now = time.monotonic()
        self._hear(now, all_asked=all_asked)
        for worker, kept in list(self._running.items()):
            kept.look()
            if kept.is_over:
                del self._running[worker]
                self._save(worker, kept.record)
            elif worker in self._asked:
                kept.end(now, self._keeping.grace_s)
        while self._waiting and len(self._running) < self._keeping.at_once:
            self._start(self._waiting.popleft())
        self._save_again()
        self._touch(now)

    def _touch(self, now: float) -> None:
        if now - self._touched_at > TOUCHED_EVERY_S:
            self._touched_at = now
            with suppress(OSError):
                for worker in self._running:
                    self._folder.touch(worker)

    def _hear(self, now: float, *, all_asked: bool) -> None:
        """Find out who was asked to end."""
        if all_asked:
            self._asked |= {*self._waiting, *self._running}
        elif now - self._looked_at > _ASKED_EVERY_S:
            self._looked_at = now
            with suppress(OSError):
                there = {*self._waiting, *self._running}
                self._asked |= {worker for worker in there if self._folder.is_asked_to_end(worker)}

    def _start(self, worker: int) -> None:
        job = self._job_of(worker)
        kept = Kept(job, Path(self._keeping.workers[worker]), self._node)
        if worker in self._asked:
            self._save(worker, msgspec.structs.replace(kept.record, state=JobState.CANCELLED, ended_at=time.time()))
            return
        kept.start(self._keeping.command, {**self._keeping.environment, self._keeping.job_variable: job})
        if not kept.is_over:
            self._running[worker] = kept
        self._save(worker, kept.record)

    def _save(self, worker: int, record: JobRecord) -> None:
        self._unsaved[worker] = record
        if record.state.is_over and record.state is not JobState.COMPLETED:
            self.all_completed = False

    def _save_again(self) -> None:
        try:
            for worker in list(self._unsaved):
                self._folder.write(worker, self._unsaved[worker])
                del self._unsaved[worker]
        except FileNotFoundError:  # the run was deleted: nobody wants to know any more
            self._unsaved.clear()
        except OSError:
            return
