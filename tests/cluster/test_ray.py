"""The executor conformance suite on a real Ray cluster of three nodes, and what only Ray does: nodes that are lost."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from gymnast.errors import StartError
from gymnast.executors.ray import RayExecutor, RayOptions
from gymnast.types.job import JobState
from tests.cluster.conformance import ExecutorConformance, Refused
from tests.cluster.ray_nodes import ADDRESS
from tests.cluster.runs import shared_run, wait_for_all, wait_until
from tests.helpers.parts import PARTS

pytest.importorskip("ray", reason=PARTS["Ray"].reason)
pytestmark = [
    pytest.mark.filterwarnings("default"),  # Ray warns of files and futures of its own
]


@dataclass(frozen=True)
class Nodes:
    """A running cluster."""

    process: subprocess.Popen[str]
    address: str
    client_port: int

    def kill(self, number: int) -> None:
        """Take a node's power away; 0 is the head, which is not to be killed."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(f"kill {number}\n")
        self.process.stdin.flush()
        assert self.process.stdout.readline() == "killed\n"


@pytest.fixture(scope="module")
def nodes() -> Iterator[Nodes]:
    with running_nodes(3) as found:
        yield found


@contextmanager
def running_nodes(count: int, **environ: str) -> Iterator[Nodes]:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port = sock.getsockname()[1]
    command = [sys.executable, "-m", "tests.cluster.ray_nodes", str(count), "2", str(port)]
    patience = {"RAY_raylet_start_wait_time_s": "600"}  # on a busy machine
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env={**os.environ, **patience, **environ}
    )
    assert process.stdout is not None
    try:
        found = next((line for line in process.stdout if line.startswith(ADDRESS)), None)  # Ray talks, too
        assert found is not None, "no Ray cluster could be started"
        yield Nodes(process, found.removeprefix(ADDRESS).strip(), port)
    finally:
        process.communicate(timeout=300)


@pytest.fixture(autouse=True)
def _attach(request: pytest.FixtureRequest, nodes: Nodes) -> None:
    if request.instance is not None:
        request.instance.nodes = nodes


class TestRay(ExecutorConformance):
    nodes: Nodes
    start_s = 60.0

    def executor(self) -> RayExecutor:
        return RayExecutor(RayOptions(address=self.nodes.address, grace_s=20))

    def refused(self) -> Refused:
        missing = RayOptions(address=self.nodes.address, runtime_env={"working_dir": "/no/such/folder"})
        return Refused(RayExecutor(missing), "Ray did not start the workers: .*/no/such/folder")


def test_an_address_without_a_cluster_is_reported(tmp_path: Path) -> None:
    with pytest.raises(StartError, match="cannot reach the Ray cluster at"):
        RayExecutor(RayOptions(address="127.0.0.1:1")).submit(shared_run(tmp_path, tasks=1).wanted(1), 1)


def test_a_cluster_that_wants_a_token_is_reported(tmp_path: Path) -> None:
    """Once Ray has made one for a cluster of its own, every `ray start` of that user wants it from all clients."""
    with (
        running_nodes(1, RAY_AUTH_MODE="token", RAY_AUTH_TOKEN="4b" * 32) as guarded,
        pytest.raises(StartError, match="requires a token") as told,
    ):
        RayExecutor(RayOptions(address=guarded.address)).submit(shared_run(tmp_path, tasks=1).wanted(1), 1)
    assert "RAY_AUTH_MODE=token" in str(told.value.next)


def test_workers_are_started_and_ended_through_a_client_address(nodes: Nodes, tmp_path: Path) -> None:
    run = shared_run(tmp_path, tasks=10, chunk_rows=5)
    executor = RayExecutor(RayOptions(address=f"ray://127.0.0.1:{nodes.client_port}"))
    submission = executor.submit(run.wanted(2), 1)
    assert {view.state for view in wait_for_all(executor, submission)} == {JobState.COMPLETED}
    run.merge()


def test_workers_wait_for_room_and_are_cancelled_while_they_wait(nodes: Nodes, tmp_path: Path) -> None:
    run = shared_run(tmp_path, tasks=200, chunk_rows=20, mean_s=0.3)
    executor = RayExecutor(RayOptions(address=nodes.address, cpus=2))
    submission = executor.submit(run.wanted(4), 1)
    wait_until(
        lambda: sorted(view.state.value for view in executor.states(submission)) == ["pending"] + ["running"] * 3,
        "three run",
    )
    executor.cancel(submission)
    assert {view.state for view in wait_for_all(executor, submission)} == {JobState.CANCELLED}
    assert not run.holders()


def test_a_node_that_is_lost_costs_nothing_but_time(nodes: Nodes, tmp_path: Path) -> None:
    """The last test of this file: the node does not come back."""
    run = shared_run(tmp_path, tasks=120, chunk_rows=10, mean_s=0.3)
    executor = RayExecutor(RayOptions(address=nodes.address))
    submission = executor.submit(run.wanted(6), 1)
    wait_until(lambda: run.scored() > 20, "work")
    assert len({view.node for view in executor.states(submission)}) == 3
    nodes.kill(2)
    views = wait_for_all(executor, submission)
    states = sorted(view.state.value for view in views)
    assert states == ["completed"] * 4 + ["node_failed"] * 2, views
    run.merge()
