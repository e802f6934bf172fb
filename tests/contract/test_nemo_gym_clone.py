"""Work inside a checkout that has a folder `nemo_gym` of its own: every process that we start imports our surface."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from gymnast.compat.server_tests import SURFACE_PLUGIN
from gymnast.executors.executor import WorkerRequest
from gymnast.executors.worker_command import worker_command
from tests.helpers.command_functions import invoke_command

OTHER = "raise RuntimeError('the folder of the checkout was imported')\n"
APP = """
from pathlib import Path
from typing import Any

import measure
from nemo_gym.base_resources_server import BaseVerifyRequest, BaseVerifyResponse, SimpleResourcesServer


class Scale(SimpleResourcesServer):
    def model_post_init(self, context: Any) -> None:
        Path("weights.txt").read_text()

    async def verify(self, body: BaseVerifyRequest) -> BaseVerifyResponse:
        return BaseVerifyResponse(**body.model_dump(), reward=measure.REWARD)


if __name__ == "__main__":
    Scale.run_webserver()
"""
CONFIG = """
scale:
  resources_servers:
    scale: {entrypoint: app.py, domain: other}
scale_agent:
  responses_api_agents:
    simple_agent:
      entrypoint: app.py
      resources_server: {type: resources_servers, name: scale}
      model_server: {type: responses_api_models, name: policy_model}
      datasets:
      - {name: scale, type: benchmark, jsonl_fpath: data/scale.jsonl, prepare_script: benchmarks/scale/prepare.py}
"""
TESTS = """
from pathlib import Path

import app
import nemo_gym
from measure import REWARD

from resources_servers.scale import app as by_path


def test_imports() -> None:
    assert "gymnast" in Path(nemo_gym.__file__).read_text()
    assert REWARD == 0.5
    assert app.Scale.__name__ == by_path.Scale.__name__
    assert Path("weights.txt").read_text() == "1 2 3"
"""
PREPARE = """
from pathlib import Path

from nemo_gym.base_resources_server import BaseVerifyRequest
from benchmarks.scale.rows import ROW


def prepare() -> Path:
    path = Path("data/scale.jsonl")
    path.parent.mkdir(exist_ok=True)
    path.write_text(ROW)
    return path
"""
QUIET = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTEST_PLUGINS": "pytest_asyncio.plugin"}
"""Other plugins are slow to load."""


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    server = tmp_path / "resources_servers" / "scale"
    files = {
        tmp_path / "nemo_gym" / "__init__.py": OTHER,
        server / "app.py": APP,
        server / "measure.py": "REWARD = 0.5\n",
        server / "weights.txt": "1 2 3",
        server / "configs" / "scale.yaml": CONFIG,
        server / "requirements.txt": "-e nemo-gym[dev] @ ../../\n",
        server / "tests" / "test_app.py": TESTS,
        tmp_path / "benchmarks" / "scale" / "prepare.py": PREPARE,
        tmp_path / "benchmarks" / "scale" / "rows.py": 'ROW = \'{"responses_create_params": {"input": "q"}}\\n\'\n',
    }
    for path, text in files.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path


def run_python(cwd: Path, *words: str) -> subprocess.CompletedProcess[str]:
    environ = {**os.environ, **QUIET}
    return subprocess.run([sys.executable, *words], cwd=cwd, env=environ, capture_output=True, text=True, check=False)


def test_the_tests_of_a_server_run_in_its_folder(clone: Path, capfd: pytest.CaptureFixture[str]) -> None:
    done = invoke_command(clone, "ng_test", "+entrypoint=resources_servers/scale", env=QUIET)
    printed = capfd.readouterr().out
    assert done.code == 0, printed + done.err
    assert "1 passed" in printed


def test_plain_pytest_says_whose_surface_is_tested(clone: Path) -> None:
    words = ("-m", "pytest", "-c", os.devnull, "-p", "gymnast.compat.pytest_surface", "-p", "no:cacheprovider")
    done = run_python(clone, *words, "--collect-only", "resources_servers/scale")
    assert "the folder of the checkout was imported" not in done.stdout
    assert f"nemo_gym: Gymnast's; {clone / 'nemo_gym'} is not used" in done.stdout


def test_a_folder_named_on_the_command_line_is_the_one_here(clone: Path) -> None:
    """With `--pyargs`, which a clone's settings add, `pytest tests` in a server's folder ran the clone's own tests."""
    other = clone / "tests" / "test_core.py"
    other.parent.mkdir()
    (clone / "tests" / "__init__.py").touch()
    other.write_text("import a_package_that_is_not_here\n")
    (clone / "pyproject.toml").write_text('[tool.pytest.ini_options]\naddopts = "--pyargs"\n')
    words = ("-P", "-m", "pytest", "-p", "gymnast.compat.pytest_surface", "-p", "no:cacheprovider")
    for named in ("tests", "tests/test_app.py", "tests/test_app.py::test_imports"):
        done = run_python(clone / "resources_servers" / "scale", *words, named)
        assert done.returncode == 0, done.stdout + done.stderr
        assert "1 passed" in done.stdout


def test_a_server_is_loaded_with_our_surface(clone: Path) -> None:
    """`python -m` puts the current folder first on the path."""
    words = ("-m", "gymnast.compat", "ng_validate", "+config_paths=[resources_servers/scale/configs/scale.yaml]")
    done = run_python(clone, *words)
    assert done.returncode == 0, done.stdout + done.stderr


def test_settings_of_servers_do_not_decide_what_is_valid(clone: Path) -> None:
    """As in NeMo Gym, which reads files only; the same goes for YAML files that configure no server."""
    app = clone / "resources_servers" / "scale" / "app.py"
    app.write_text("import a_package_that_is_not_here\n" + APP)
    paths = "+config_paths=[resources_servers/scale/configs/scale.yaml]"
    done = invoke_command(clone, "ng_validate", paths)
    assert done.code == 0, done.err
    assert "note:" in done.err
    assert "No module named 'a_package_that_is_not_here'" in done.err
    (clone / "prompt.yaml").write_text("user: hello {name}\n")
    assert invoke_command(clone, "ng_validate", "+config_paths=[prompt.yaml]").code == 0
    broken = "a: {resources_servers: {nowhere: {entrypoint: app.py, domain: other}}}\n"
    (clone / "broken.yaml").write_text(broken)
    assert invoke_command(clone, "ng_validate", "+config_paths=[broken.yaml]").code == 1


def test_a_prepare_script_imports_the_surface_and_its_neighbours(clone: Path) -> None:
    done = invoke_command(clone, "ng_prepare_benchmark", "+config_paths=[resources_servers/scale/configs/scale.yaml]")
    assert done.code == 0, done.err
    assert (clone / "data" / "scale.jsonl").is_file()


def test_workers_do_not_search_the_current_folder(tmp_path: Path) -> None:
    request = WorkerRequest(run=tmp_path / "out.jsonl", count=1, name="n")
    for die_with_parent in (True, False):
        command = worker_command(request, die_with_parent=die_with_parent)
        assert command[1:3] == ("-P", "-m")


def test_the_plugin_is_registered_under_the_name_that_commands_load() -> None:
    """Under another name, pytest would refuse the second registration."""
    project = tomllib.loads((Path(__file__).parents[2] / "distributions/nemo-gym-surface/pyproject.toml").read_text())
    assert project["project"]["entry-points"]["pytest11"] == {SURFACE_PLUGIN: SURFACE_PLUGIN}
