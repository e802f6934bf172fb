"""Servers that use Ray: it is up before they are, without a blocked loop, and at the address that is configured."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from gymnast.compat.nemo_gym.ray_node import _checkout_paths, _worker_setup, add_worker_setup, start_ray
from gymnast.errors import StartError
from tests.contract.nemo_gym_policy import policy
from tests.contract.test_nemo_gym_hosting import RESPONSE, Configure, block, living, written

RAY = """
import signal, threading

starts, is_up, failures, by_value = [], False, [], []

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
    pickling = ModuleType("ray.cloudpickle")
    vars(pickling)["register_pickle_by_value"] = lambda package: module.by_value.append(package.__name__)
    monkeypatch.setitem(sys.modules, "ray.cloudpickle", pickling)
    written(tmp_path, "graded", APP.format(grading="ray_grading"))
    (tmp_path / "resources_servers/graded/ray_grading.py").write_text(GRADING)
    monkeypatch.delitem(sys.modules, "ray_grading", raising=False)
    return module


async def test_ray_is_up_before_the_first_request_and_leaves_sigterm_alone(configure: Configure, ray: Any) -> None:
    """It started inside the first verification, and its SIGTERM handler replaced the one that drains a run."""
    handler = signal.getsignal(signal.SIGTERM)
    async with living(configure(initial={"graded": block("graded"), **policy(["hello"])})) as cell:
        [start] = ray.starts
        assert {**start, "runtime_env": ...} == {
            "ignore_reinit_error": True,
            "include_dashboard": False,
            "runtime_env": ...,
        }
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


async def test_functions_of_an_entry_file_are_sent_to_workers_by_value(configure: Configure, ray: Any) -> None:
    """A `@ray.remote` function of `app.py` failed in Ray's worker: No module named 'gymnast_hosted'."""
    async with living(configure(initial={"graded": block("graded"), **policy(["hello"])})):
        assert ray.by_value == ["gymnast_hosted"]


def test_a_ray_client_is_sent_no_functions_as_settings(ray: Any) -> None:
    start_ray("graded", "ray://10.0.0.1:10001")
    assert ray.starts == [{"ignore_reinit_error": True, "address": "ray://10.0.0.1:10001"}]


def test_workers_of_ray_import_the_surface_and_modules_of_the_checkout(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They imported the checkout's own `nemo_gym`, or failed: No module named 'resources_servers'."""
    written(tmp_path, "graded", "")
    (tmp_path / "resources_servers/graded/comparing.py").write_text("EQUAL = 1\n")
    (tmp_path / "nemo_gym").mkdir()
    (tmp_path / "nemo_gym/__init__.py").write_text("")
    for path in (str(tmp_path), str(tmp_path / "resources_servers/graded")):
        monkeypatch.syspath_prepend(path)
    monkeypatch.chdir(tmp_path)
    assert add_worker_setup({"env_vars": {"A": "b"}})["env_vars"] == {"A": "b"}
    assert add_worker_setup({"worker_process_setup_hook": "mine"}) == {"worker_process_setup_hook": "mine"}
    paths = [path for path in _checkout_paths() if path.startswith(str(tmp_path))]  # not those of other tests
    worker = f"""
import json, sys
from gymnast.compat.nemo_gym.ray_node import _worker_setup
_worker_setup({paths!r})()
sys.path.insert(0, {str(tmp_path)!r})  # the driver's folder, as Ray does after the setup
import nemo_gym, comparing, resources_servers.graded.comparing
print(json.dumps([nemo_gym.__file__, comparing.EQUAL]))
"""
    environ = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    command = [sys.executable, "-P", "-c", worker]
    done = subprocess.run(command, cwd=tmp_path.parent, env=environ, capture_output=True, text=True, check=True)
    file, equal = json.loads(done.stdout)
    assert not file.startswith(str(tmp_path))
    assert equal == 1


def test_a_worker_without_gymnast_still_finds_the_modules(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A cluster's nodes may have other packages than the machine that connects to it."""
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setitem(sys.modules, "gymnast.runtime.surface_import", None)
    _worker_setup([str(tmp_path)])()
    assert sys.path[-1] == str(tmp_path)
