"""The workers of one submission, as small files on the shared file system: one record each.

The supervisor of a worker (a process on this host, an actor on a Ray node) writes its record. Any process may read it,
or request that the worker be stopped. Schedulers with their own accounting (Slurm) do not use it.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import msgspec

from gymnast.store.atomic import atomic_write, file_clock, read_fresh
from gymnast.types.job import JobState, JobView

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

TOUCH_INTERVAL_S: Final = 5.0
"""How often a supervisor touches the records of running workers."""


class JobRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A worker that was started, as far as its supervisor knows."""

    schema_version: int = 1
    job: str
    host: str
    node: str | None = None
    """The scheduler's name for the machine, if it is not the host name."""
    boot: str
    pid: int | None = None
    process_started: int | None = None
    state: JobState = JobState.RUNNING
    exit_code: int | None = None
    reason: str | None = None
    started_at: float
    ended_at: float | None = None
    log: str

    def view(self, state: JobState | None = None, reason: str | None = None) -> JobView:
        """The record for other processes. `state` and `reason` override it, if more is known."""
        return JobView(
            job=self.job,
            state=state or self.state,
            exit_code=self.exit_code,
            node=self.node or self.host,
            reason=reason or self.reason,
            started_at=self.started_at,
            ended_at=self.ended_at,
            log=self.log,
        )


_decoder: Final = msgspec.json.Decoder(JobRecord)


@dataclass(frozen=True, slots=True)
class JobFolder:
    """The records of one submission's workers, numbered from 0."""

    path: Path

    def create(self) -> None:
        self.path.mkdir(parents=True, exist_ok=True)

    def write(self, worker: int, record: JobRecord) -> None:
        atomic_write(self.path / f"{worker}.json", msgspec.json.encode(record))

    def read(self, worker: int) -> JobRecord | None:
        """The record of a worker; None if it was never started."""
        try:
            return _decoder.decode(read_fresh(self.path / f"{worker}.json"))
        except FileNotFoundError:
            return None

    def touch(self, worker: int) -> None:
        """Show that a worker's supervisor is alive."""
        os.utime(self.path / f"{worker}.json")

    def silent_s(self, worker: int) -> float:
        """Seconds since a worker's supervisor last touched its record, by the file system's clock."""
        return file_clock(self.path) - (self.path / f"{worker}.json").stat().st_mtime

    def request_stop(self, workers: Iterable[int]) -> None:
        """Request that the supervisors of these workers stop them."""
        for worker in workers:
            (self.path / f"{worker}.cancel").touch()

    def is_stop_requested(self, worker: int) -> bool:
        """Whether this worker is to be stopped."""
        return (self.path / f"{worker}.cancel").exists()
