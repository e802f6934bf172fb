"""A new environment works as it was written: it conforms, its own tests pass, and bad names are refused."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from gymnast import check_environment
from gymnast.authoring.scaffold import KINDS, Kind, scaffold, write_scaffold
from gymnast.config import compose, read_environ
from gymnast.errors import UserError
from gymnast.runtime.loader import load_entry
from gymnast.types.task import PARAMS
from tests.helpers.commands import Outcome
from tests.helpers.environments import host_environment
from tests.helpers.jsonl import read_jsonl


def test_each_kind_passes_its_own_tests(tmp_path: Path) -> None:
    for kind in KINDS:
        write_scaffold(scaffold(f"new_{kind.replace('-', '_')}", kind), tmp_path)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-W", "error", "."],
        cwd=tmp_path,
        env={**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},  # they need none
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "33 passed" in done.stdout


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_written_is_tidy(kind: Kind, tmp_path: Path) -> None:
    written = write_scaffold(scaffold("made_up", kind), tmp_path)
    sources = [str(path) for path in written if path.suffix == ".py"]
    config = str(Path(__file__).parents[2] / "pyproject.toml")
    for command in (["format", "--check"], ["check", "--ignore", "INP001,S101,RUF001"]):
        ruff = [sys.executable, "-m", "ruff", *command, "--no-cache", "--config", config, *sources]
        done = subprocess.run(ruff, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
    assert not any("{{" in path.read_text() for path in written)


def test_rows_declare_the_tools_as_the_environment_does(tmp_path: Path) -> None:
    write_scaffold(scaffold("made_up", "tools"), tmp_path)
    config = compose(read_environ(), environments=["made_up"], search_dirs=[tmp_path], stub_policy=True)
    server, _ = host_environment(load_entry(config.instance("made_up")))
    declared = [found.declaration() for found in server.tools.values()]
    for row in read_jsonl(tmp_path / "resources_servers" / "made_up" / "data" / "example.jsonl"):
        assert row[PARAMS]["tools"] == declared


@pytest.mark.parametrize("name", ["Mine", "my-env", "1st", "class", "", "a/b", "mcqa"])
def test_bad_names_are_refused(name: str) -> None:
    with pytest.raises(UserError):
        scaffold(name, "tools")


async def test_environments_of_the_same_name_in_other_folders_are_kept_apart(tmp_path: Path) -> None:
    for folder, kind in zip("abc", KINDS, strict=True):
        write_scaffold(scaffold("twin", kind), tmp_path / folder)
        report = await check_environment("twin", search_dirs=[tmp_path / folder])
        assert report.ok, str(report)


def test_the_command(invoke: Callable[..., Outcome], tmp_path: Path) -> None:
    made = invoke("gymnast", "env", "new", "mine", "--kind", "step", "--output-dir", "elsewhere")
    assert made.code == 0
    assert (tmp_path / "elsewhere" / "resources_servers" / "mine" / "app.py").exists()
    assert "gymnast check env mine --search-dir elsewhere" in made.out
    assert invoke("gymnast", "check", "env", "mine", "--search-dir", "elsewhere").code == 0
    again = invoke("gymnast", "env", "new", "mine", "--output-dir", "elsewhere")
    assert again.code == 2
    assert "already" in again.err
    assert invoke("gymnast", "env", "new", "mine", "--kind", "steps").code == 2
