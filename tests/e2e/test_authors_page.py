"""The page about the authors' API: its programs run, its project is collected, and it names everything in the kit."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from gymnast import kit
from tests.helpers.commands import BIN
from tests.helpers.jsonl import read_jsonl
from tests.helpers.parts import needs

PAGE = (Path(__file__).parents[2] / "docs" / "authors.md").read_text()
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```$", PAGE, flags=re.MULTILINE | re.DOTALL)
_FILE = re.compile(r"# ([\w/]+\.(?:py|yaml))\n")
PROGRAMS = [text for language, text in BLOCKS if language == "python" and not _FILE.match(text)]
COLLECTS = [text for language, text in BLOCKS if language == "bash"]


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """The files of the page, each at the path in its first line."""
    for _, text in BLOCKS:
        if heading := _FILE.match(text):
            path = tmp_path / heading[1]
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
    return tmp_path


def test_every_exported_name_is_on_the_page() -> None:
    words = set(re.findall(r"\w+", PAGE))
    assert sorted(set(kit.__all__) - words) == []


@pytest.mark.parametrize("number", range(len(PROGRAMS)))
def test_the_programs_run(tmp_path: Path, number: int) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAMS[number]], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(("name", "rollouts"), [("piggy", 2), ("poems", 1), ("program", 1)])
def test_the_project_is_collected(project: Path, name: str, rollouts: int) -> None:
    assert [record["reward"] for record in collect(project, name)] == [1.0] * rollouts


@needs("bubblewrap")
def test_the_sandboxed_environment_is_collected(project: Path) -> None:
    assert [record["reward"] for record in collect(project, "reverse")] == [1.0]


def collect(project: Path, name: str) -> list[dict[str, object]]:
    """The records of the page's command with this output."""
    (script,) = [text for text in COLLECTS if f"out/{name}.jsonl" in text]
    done = subprocess.run(
        ["bash", "-c", f"set -euo pipefail\n{script}"],
        cwd=project,
        env={**os.environ, "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return read_jsonl(project / "out" / f"{name}.jsonl")
