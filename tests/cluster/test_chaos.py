"""Storms: 5,000 rollouts whose workers are killed every few seconds, a disk that is full, clocks that are wrong.

Whatever happens, the merge is what an undisturbed run would have come to, byte for byte.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from gymnast.executors.executor import Executor
from gymnast.executors.local import LocalExecutor
from gymnast.executors.site import parse_site
from gymnast.executors.slurm.assembly import SlurmOptions
from gymnast.executors.slurm.executor import SlurmExecutor
from tests.cluster.chaos import Chaos
from tests.cluster.runs import SharedRun, shared_run, undisturbed, wait_for_all, wait_until
from tests.cluster.slurm_cluster import SlurmCluster
from tests.helpers.parts import needs
from tests.helpers.small_disk import Disk, small_disk

WORKERS = 40
REFUSED_S = 20.0
FAKETIME = Path("/usr/lib/x86_64-linux-gnu/faketime/libfaketime.so.1")


def large_run(folder: Path) -> SharedRun:
    """5,000 rollouts, of which 100 fail for good."""
    return shared_run(
        folder,
        tasks=625,
        repeats=8,
        failing=50,
        workers=WORKERS,
        chunk_rows=40,
        mean_s=1.0,
        concurrency=4,
        speculates=True,
    )


def stormy(run: SharedRun, executor: Executor, folder: Path) -> None:
    chaos = Chaos(run, executor, workers=WORKERS, every_s=2.0, seed=5)
    chaos.until_settled()
    assert chaos.kills >= 5
    assert run.merge() == undisturbed(folder, run)


def test_a_storm_over_local_workers(tmp_path: Path) -> None:
    stormy(large_run(tmp_path), LocalExecutor(grace_s=20), tmp_path)


def test_a_storm_over_slurm_jobs(slurm: SlurmCluster, tmp_path: Path) -> None:
    site = parse_site({"partition": "cpu"}, name="test")
    stormy(large_run(tmp_path), SlurmExecutor(SlurmOptions(site=site)), tmp_path)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    with small_disk(tmp_path / "disk", 8 << 10) as found:
        yield found


def test_a_file_system_that_refuses_writes_for_a_while(disk: Disk, tmp_path: Path) -> None:
    """Not only records and heartbeats: the workers' logs, too."""
    run = shared_run(disk.folder, tasks=150, chunk_rows=20, mean_s=0.4)
    executor = LocalExecutor(grace_s=20)
    submission = executor.submit(run.wanted(3), 1)
    wait_until(lambda: run.scored() > 20, "work")
    disk.leave(0)
    time.sleep(REFUSED_S)
    assert run.account().unsettled
    disk.make_room()
    views = wait_for_all(executor, submission)
    assert {view.state.value for view in views} == {"completed"}, views
    assert run.merge() == undisturbed(tmp_path, run)


@needs("faketime")
def test_clocks_that_disagree_by_hours(tmp_path: Path) -> None:
    run = shared_run(tmp_path, tasks=60, chunk_rows=10, mean_s=0.3)
    executor = LocalExecutor(grace_s=20)
    submissions = []
    for number, skew in enumerate(("-5h", "+0", "+5h"), 1):
        environment = {"LD_PRELOAD": str(FAKETIME), "FAKETIME": skew, "FAKETIME_DONT_FAKE_MONOTONIC": "1"}
        submissions.append(executor.submit(run.wanted(1, environment=environment), number))
    wait_until(lambda: run.scored() > 10, "work")
    account = run.account()
    assert {chunk.epoch for chunk in account.chunks} <= {0, 1}, "a living worker lost its chunk"
    assert (account.states["silent"], account.unknown) == (0, 0), "whoever looks thinks that a living worker is dead"
    for submission in submissions:
        assert {view.state.value for view in wait_for_all(executor, submission)} == {"completed"}
    assert run.merge() == undisturbed(tmp_path, run)
