"""Processes that a supervisor starts: how many at once, how they end, what is recorded, and who may end them."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from gymnast.executors.job_folder import JobFolder, JobRecord
from gymnast.executors.worker_processes import WorkerGroupSpec, supervise_workers
from gymnast.runtime.registry import process_start
from gymnast.types.job import JobState


class Supervisor:
    """A supervisor in a thread of this process."""

    def __init__(
        self, folder: Path, script: str, *, workers: int = 1, max_running: int = 1, grace_s: float = 20.0
    ) -> None:
        self.folder = JobFolder(folder / "jobs")
        self.folder.create()
        self.logs = {worker: str(folder / "logs" / f"{worker}.log") for worker in range(workers)}
        self.spec = WorkerGroupSpec(
            folder=str(self.folder.path),
            command=(sys.executable, "-c", script),
            workers=self.logs,
            max_running=max_running,
            environment={"WORD": "said"},
            grace_s=grace_s,
        )
        self.is_asked = False
        self.all_completed: bool | None = None
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        self.all_completed = supervise_workers(self.spec, lambda worker: f"job_{worker}", lambda: self.is_asked)

    def join(self) -> list[JobRecord]:
        """Wait for the end of all and read the records."""
        self._thread.join(300)
        assert not self._thread.is_alive()
        return [record for worker in self.logs if (record := self.folder.read(worker)) is not None]

    def wait_for(self, worker: int, check: Callable[[JobRecord], bool] = lambda _: True) -> JobRecord:
        deadline = time.monotonic() + 300
        while time.monotonic() < deadline:
            record = self.folder.read(worker)
            if record is not None and check(record):
                return record
            time.sleep(0.02)
        raise AssertionError(f"worker {worker} is not there")


def test_workers_end_with_their_exit_codes_and_last_words(tmp_path: Path) -> None:
    script = "import os,sys; print(os.environ['WORD'], os.environ['GYMNAST_JOB_ID']); sys.exit(0)"
    records = Supervisor(tmp_path, script, workers=3, max_running=2).join()
    assert [record.state for record in records] == [JobState.COMPLETED] * 3
    assert [Path(record.log).read_text() for record in records] == [f"said job_{n}\n" for n in range(3)]
    bad = Supervisor(tmp_path / "bad", "raise SystemExit('there is no such run')")
    (record,) = bad.join()
    assert (record.state, record.exit_code, record.reason) == (JobState.FAILED, 1, "there is no such run")
    assert bad.all_completed is False


def test_only_so_many_run_at_once(tmp_path: Path) -> None:
    counted = tmp_path / "counted"
    script = f"""
import pathlib, time, os
place = pathlib.Path({str(counted)!r}); place.mkdir(exist_ok=True)
mine = place / str(os.getpid()); mine.touch()
most = len(list(place.iterdir())); time.sleep(0.3)
mine.unlink(); print(most)
"""
    records = Supervisor(tmp_path, script, workers=4, max_running=2).join()
    assert max(int(Path(record.log).read_text()) for record in records) <= 2
    assert len(records) == 4


def test_a_command_that_cannot_be_run_is_a_failed_worker(tmp_path: Path) -> None:
    folder = JobFolder(tmp_path)
    spec = WorkerGroupSpec(
        folder=str(tmp_path), command=("/no/such",), workers={0: str(tmp_path / "log")}, max_running=1
    )
    assert supervise_workers(spec, str, lambda: False) is False
    record = folder.read(0)
    assert record is not None
    assert record.state is JobState.FAILED
    assert "No such file" in (record.reason or "")


def test_a_killed_worker_is_distinguished_from_a_cancelled_one(tmp_path: Path) -> None:
    supervisor = Supervisor(tmp_path, "import time; time.sleep(60)", workers=2, max_running=2)
    killed, asked = supervisor.wait_for(0), supervisor.wait_for(1)
    assert killed.pid is not None
    assert process_start(killed.pid) == killed.process_started
    os.kill(killed.pid, signal.SIGKILL)
    supervisor.folder.request_stop([1])
    records = supervisor.join()
    assert (records[0].state, records[0].exit_code, records[0].reason) == (JobState.FAILED, 137, "killed by SIGKILL")
    assert (records[1].state, records[1].job) == (JobState.CANCELLED, asked.job)


def test_workers_that_wait_are_cancelled_without_being_started(tmp_path: Path) -> None:
    supervisor = Supervisor(tmp_path, "import time; time.sleep(60)", workers=2)
    supervisor.wait_for(0)
    supervisor.is_asked = True
    assert [(record.state, record.pid is None) for record in supervisor.join()] == [
        (JobState.CANCELLED, False),
        (JobState.CANCELLED, True),
    ]


def test_one_that_does_not_end_when_asked_is_killed_with_all_it_started(tmp_path: Path) -> None:
    script = """
import signal, subprocess, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
print(child.pid, flush=True); time.sleep(60)
"""
    supervisor = Supervisor(tmp_path, script, grace_s=0.5)
    supervisor.wait_for(0, lambda record: Path(record.log).read_text().endswith("\n"))
    supervisor.is_asked = True
    (record,) = supervisor.join()
    assert (record.state, record.exit_code) == (JobState.CANCELLED, 137)
    assert process_start(int(Path(record.log).read_text())) is None


def test_a_worker_that_ends_leaves_nothing_it_started(tmp_path: Path) -> None:
    child = "import time; time.sleep(60)"
    script = f"import subprocess,sys; print(subprocess.Popen([sys.executable, '-c', {child!r}]).pid, flush=True)"
    (record,) = Supervisor(tmp_path, script).join()
    assert record.state is JobState.COMPLETED
    deadline = time.monotonic() + 300
    while process_start(int(Path(record.log).read_text())) is not None:
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_what_cannot_be_recorded_is_recorded_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written = JobFolder.write
    refused: list[int] = []

    def refuse(self: JobFolder, worker: int, record: JobRecord) -> None:
        if len(refused) < 5:
            refused.append(worker)
            raise OSError(30, "Read-only file system")
        written(self, worker, record)

    monkeypatch.setattr(JobFolder, "write", refuse)
    (record,) = Supervisor(tmp_path, "print('done')").join()
    assert record.state is JobState.COMPLETED
    assert len(refused) == 5


def test_a_run_that_is_deleted_does_not_keep_its_supervisor(tmp_path: Path) -> None:
    supervisor = Supervisor(tmp_path, "import time; time.sleep(0.5)")
    supervisor.wait_for(0)
    supervisor.folder.path.rename(tmp_path / "elsewhere")
    assert supervisor.join() == []
