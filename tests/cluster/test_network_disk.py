"""Workers on several hosts of a real network file system, whose caches disagree and whose server goes away."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from gymnast.chunks.status import read_run_status
from gymnast.store.chunk_layout import ChunkLayout
from gymnast.store.paths import RunPaths
from gymnast.types.job import JobView
from tests.cluster.chaos import Chaos
from tests.cluster.network_disk import NetworkDisk, OnClients, network_disk
from tests.cluster.runs import SharedRun, shared_run, undisturbed, wait_for_all, wait_until

HOSTS = 3
AWAY_S = 8.0


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[NetworkDisk]:
    with network_disk(tmp_path / "disk", HOSTS) as found:
        yield found


def planned(disk: NetworkDisk, tasks: int) -> SharedRun:
    return shared_run(disk.clients[0] / "run", tasks=tasks, repeats=4, failing=50, chunk_rows=20, mean_s=0.4, workers=9)


def test_a_storm_over_hosts_whose_caches_disagree(disk: NetworkDisk, tmp_path: Path) -> None:
    run = planned(disk, tasks=300)
    executor = OnClients(disk)
    chaos = Chaos(run, executor, workers=9, every_s=2.0, seed=3)
    chaos.submissions.extend(executor.submit(run.wanted(3), number) for number in range(1, HOSTS + 1))
    chaos.until_settled()
    assert chaos.kills >= 3
    for client in disk.clients:
        seen = read_run_status(ChunkLayout.of(RunPaths(client / run.output.relative_to(disk.clients[0]))))
        assert (seen.requested, seen.unsettled) == (run.requested, 0)
    assert run.merge() == undisturbed(tmp_path, run)


@pytest.mark.parametrize("leave", ["dies", "hangs"])
def test_a_server_that_is_away_for_a_while(leave: str, disk: NetworkDisk, tmp_path: Path) -> None:
    run = planned(disk, tasks=150)
    executor = OnClients(disk)
    submissions = [executor.submit(run.wanted(2), number) for number in range(1, HOSTS + 1)]
    wait_until(lambda: run.scored() > 20, "work")
    go: Callable[[], None] = disk.kill_server if leave == "dies" else lambda: disk.signal_server(signal.SIGSTOP)
    come: Callable[[], None] = disk.start_server if leave == "dies" else lambda: disk.signal_server(signal.SIGCONT)
    go()
    time.sleep(AWAY_S)
    come()
    wait_until(lambda: answers(run.folder), "the file system again")
    for submission in submissions:
        views = wait_for_all(executor, submission)
        assert {view.state.value for view in views} == {"completed"}, [ending(view) for view in views]
    assert run.account().unsettled == 0
    assert run.merge() == undisturbed(tmp_path, run)


def answers(folder: Path) -> bool:
    try:
        return bool(list(folder.iterdir()))
    except OSError:
        return False


def ending(view: JobView) -> str:
    """The last lines of a job's log."""
    return "\n".join(Path(view.log).read_text().splitlines()[-30:]) if view.log else str(view)
