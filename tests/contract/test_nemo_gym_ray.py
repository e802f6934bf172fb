"""Servers that use Ray: it is up before they are, without a blocked loop, and at the address that is configured."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from gymnast.compat.nemo_gym.ray_node import start_ray
from gymnast.errors import StartError
from tests.contract.nemo_gym_policy import policy
from tests.contract.test_nemo_gym_hosting import RESPONSE, Configure, block, living, written

RAY = """
import signal, threading

starts, is_up, failures = [], False, []

class RemoteFunction:
    def remote(self):
        assert is_up, "Ray would start inside a request"
        return 0.5

def remote(function):
    return RemoteFunction()

def is_initialized():
    return is_up

def init(**options):
    global is_up
    starts.append(options)
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # as Ray does
    if failures:
        raise Exception(failures.pop())
    is_up = True

def shutdown():
    pass
"""
APP = """
from nemo_gym.base_resources_server import (
    BaseResourcesServerConfig, BaseVerifyRequest, BaseVerifyResponse, SimpleResourcesServer,
)
from {grading} import grade


class Graded(SimpleResourcesServer):
    config: BaseResourcesServerConfig

    async def verify(self, body: BaseVerifyRequest) -> BaseVerifyResponse:
        return BaseVerifyResponse(**body.model_dump(), reward=grade.remote())
"""
GRADING = """
import ray

@ray.remote
def grade():
    return 0.5
"""
ROW = {"responses_create_params": {"input": "x"}, "response": RESPONSE}


@pytest.fixture
def ray(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A stand-in for Ray, which `make install` does not bring."""
    module = ModuleType("ray")
    module.__file__ = str(tmp_path / "ray" / "__init__.py")
    exec(RAY, vars(module))
    monkeypatch.setitem(sys.modules, "ray", module)
    written(tmp_path, "graded", APP.format(grading="ray_grading"))
    (tmp_path / "resources_servers/graded/ray_grading.py").write_text(GRADING)
    monkeypatch.delitem(sys.modules, "ray_grading", raising=False)
    return module


async def test_ray_is_up_before_the_first_request_and_leaves_sigterm_alone(configure: Configure, ray: Any) -> None:
    """It started inside the first verification, and its SIGTERM handler replaced the one that drains a run."""
    handler = signal.getsignal(signal.SIGTERM)
    async with living(configure(initial={"graded": block("graded"), **policy(["hello"])})) as cell:
        assert ray.starts == [{"ignore_reinit_error": True, "include_dashboard": False}]
        assert (await cell.calls.call("graded", "/verify", ROW)).body["reward"] == 0.5
    assert signal.getsignal(signal.SIGTERM) is handler


async def test_ray_head_node_address_is_where_servers_connect(configure: Configure, ray: Any) -> None:
    """The setting was accepted with a warning and had no effect: each process started a node of its own."""
    config = configure(
        initial={"graded": block("graded"), "ray_head_node_address": "10.0.0.1:6379", **policy(["hello"])}
    )
    async with living(config):
        assert [start["address"] for start in ray.starts] == ["10.0.0.1:6379"]


async def test_a_server_without_ray_does_not_start_it(configure: Configure, ray: Any, tmp_path: Path) -> None:
    written(tmp_path, "plain", APP.format(grading="plain_grading"))
    (tmp_path / "resources_servers/plain/plain_grading.py").write_text("grade = None\n")
    async with living(configure(initial={"plain": block("plain"), **policy(["hello"])})):
        assert ray.starts == []


def test_a_node_that_is_slow_to_start_gets_another_try(ray: Any, tmp_path: Path) -> None:
    """Processes of the first node are gone by then: they would slow down the second."""
    script = tmp_path / "ray" / "dashboard.py"
    script.parent.mkdir()
    script.write_text("import time\ntime.sleep(600)\n")
    idle = [sys.executable, "-c", "import time; time.sleep(600)"]
    ray.failures[:] = ["The current node timed out during startup."]
    with subprocess.Popen([sys.executable, str(script)]) as left, subprocess.Popen([*idle, "/opt/ray/x"]) as other:
        start_ray("graded", None)
        assert left.wait() == -signal.SIGKILL
        assert other.poll() is None  # not of Ray, although below a folder of that name
        other.kill()
    assert ray.is_up
    assert len(ray.starts) == 2


def test_a_node_that_never_starts_is_an_error_with_a_next_step(ray: Any) -> None:
    ray.failures[:] = ["The current node timed out during startup."]
    with pytest.raises(StartError, match="graded uses Ray, and its node did not start: The current node") as caught:
        start_ray("graded", None, start_for_s=0)
    assert "ray start --head" in (caught.value.next or "")
    ray.failures[:] = ["no route"]
    with pytest.raises(StartError, match=r"could not connect to Ray at 10\.0\.0\.1:1: no route"):
        start_ray("graded", "10.0.0.1:1")
