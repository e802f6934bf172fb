"""How a worker of a run is started, and how its job and its files are named: the same for every executor."""

from __future__ import annotations

import getpass
import socket
import sys
import time
from typing import TYPE_CHECKING

from gymnast.errors import NotFoundError
from gymnast.executors.executor import Submission, WorkerRequest
from gymnast.store.chunk_layout import ChunkLayout
from gymnast.store.paths import RunPaths

if TYPE_CHECKING:
    from pathlib import Path


def worker_command(request: WorkerRequest, *, die_with_parent: bool, python: str = sys.executable) -> tuple[str, ...]:
    """The command of a worker. With `die_with_parent`, it ends with the process that started it, however that ends."""
    module = "gymnast.chunks.die_with_parent" if die_with_parent else "gymnast.cli.main"
    return (python, "-P", "-m", module, "worker", str(request.run), *request.arguments)


def worker_log_path(request: WorkerRequest, number: int, worker: int) -> Path:
    folder = request.logs or RunPaths(request.run).logs
    return folder.resolve() / f"{request.name}-{number}-{worker}.log"


def submission_folder(run: Path, number: int) -> Path:
    return ChunkLayout.of(RunPaths(run)).submissions / str(number)


def select_workers(workers: int, submission_job: str, jobs: tuple[str, ...]) -> list[int]:
    """The workers that these jobs name: all of a submission, or some. Raises NotFoundError for an unknown job."""
    if not jobs or submission_job in jobs:
        return list(range(workers))
    names = {f"{submission_job}_{worker}": worker for worker in range(workers)}
    unknown = [job for job in jobs if job not in names]
    if unknown:
        raise NotFoundError(
            f"there is no job '{unknown[0]}' here", next=f"its jobs are {submission_job}_0 to _{workers - 1}"
        )
    return [names[job] for job in jobs]


def make_intent(executor: str, request: WorkerRequest, number: int, details: dict[str, str]) -> Submission:
    """A submission that is about to start: its workers, its user and its host."""
    by = f"{getpass.getuser()}@{socket.gethostname()}"
    return Submission(
        number=number, executor=executor, jobs=(), workers=request.count, at=time.time(), by=by, details=details
    )
