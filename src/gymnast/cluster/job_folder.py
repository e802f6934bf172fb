"""What is known of the workers of one submission, as small files on the shared file system: one record for each.

Whoever keeps a worker (a process on this host, an actor on a Ray node) writes its record; anybody may read it or ask
for the worker's end. Schedulers that keep books of their own (Slurm) need none of this.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from gymnast.cluster.executor import JobState, JobView
from gymnast.store.file_clock import file_clock
from gymnast.store.replacing import read_fresh, write_replacing

if TYPE_CHECKING:
    from collections.abc import Iterable

TOUCHED_EVERY_S: Final = 5.0
"""A keeper touches the records of workers that live."""
_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")


class JobRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A worker that was started, as far as its keeper knows."""

    schema_version: int = 1
    job: str
    host: str
    node: str | None = None
    """What its scheduler calls the machine, where that is not the host's name."""
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
        """The record as others see it; `state` is what a closer look has found."""
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
    """The records of one submission's workers, which are counted from 0."""

    path: Path

    def create(self) -> None:
        """Make it, with whatever is above it."""
        self.path.mkdir(parents=True, exist_ok=True)

    def write(self, worker: int, record: JobRecord) -> None:
        """Say how a worker stands."""
        write_replacing(self.path / f"{worker}.json", msgspec.json.encode(record))

    def read(self, worker: int) -> JobRecord | None:
        """How a worker stands; None if it was never started."""
        try:
            return _decoder.decode(read_fresh(self.path / f"{worker}.json"))
        except FileNotFoundError:
            return None

    def touch(self, worker: int) -> None:
        """Say that a worker's keeper lives."""
        os.utime(self.path / f"{worker}.json")

    def heard_s(self, worker: int) -> float:
        """How long ago a worker's keeper last said anything, by the file system's own clock."""
        return file_clock(self.path) - (self.path / f"{worker}.json").stat().st_mtime

    def ask_end(self, workers: Iterable[int]) -> None:
        """Ask the keepers of these workers to end them."""
        for worker in workers:
            (self.path / f"{worker}.cancel").touch()

    def is_asked_to_end(self, worker: int) -> bool:
        """Whether somebody asked for this worker's end."""
        return (self.path / f"{worker}.cancel").exists()


def boot_id() -> str:
    """This boot of this host: process ids mean nothing beyond it."""
    try:
        return _BOOT_ID.read_text(encoding="ascii").strip()
    except OSError:
        return ""
