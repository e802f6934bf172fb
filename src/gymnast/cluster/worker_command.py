"""How a worker of a run is started and what its job is called: the same for every executor that starts it itself."""

from __future__ import annotations

import getpass
import socket
import sys
import time
from typing import TYPE_CHECKING

from gymnast.cluster.executor import Submission
from gymnast.errors import NotFoundError
from gymnast.store.chunk_layout import ChunkLayout
from gymnast.store.paths import RunPaths

if TYPE_CHECKING:
    from pathlib import Path

    from gymnast.cluster.executor import WorkersWanted


def worker_command(wanted: WorkersWanted, *, tethered: bool, python: str = sys.executable) -> tuple[str, ...]:
    """The command of a worker; a tethered one ends with the process that starts it, however that ends."""
    module = "gymnast.cluster.tethered" if tethered else "gymnast.cli.main"
    return (python, "-m", module, "worker", str(wanted.run), *wanted.arguments)


def worker_log(wanted: WorkersWanted, number: int, worker: int) -> Path:
    """The log of a worker."""
    folder = wanted.logs or RunPaths(wanted.run).logs
    return folder.resolve() / f"{wanted.name}-{number}-{worker}.log"


def job_folder(run: Path, number: int) -> Path:
    """Where a submission's workers are recorded."""
    return ChunkLayout.of(RunPaths(run)).submissions / str(number)


def chosen(workers: int, submitted: str, jobs: tuple[str, ...]) -> list[int]:
    """The workers meant by these jobs: all of them, or those of a submission's job that are named."""
    if not jobs or submitted in jobs:
        return list(range(workers))
    names = {f"{submitted}_{worker}": worker for worker in range(workers)}
    unknown = [job for job in jobs if job not in names]
    if unknown:
        raise NotFoundError(
            f"there is no job '{unknown[0]}' here", next=f"its jobs are {submitted}_0 to _{workers - 1}"
        )
    return [names[job] for job in jobs]


def intended(executor: str, wanted: WorkersWanted, number: int, details: dict[str, str]) -> Submission:
    """What is about to be started, by whom, and where."""
    by = f"{getpass.getuser()}@{socket.gethostname()}"
    return Submission(
        number=number, executor=executor, jobs=(), workers=wanted.count, at=time.time(), by=by, details=details
    )
