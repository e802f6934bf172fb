"""Runs the tests of a server with pytest, in its folder and with the packages that it requires."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final

from gymnast.config import read_environ
from gymnast.config.environ import child_environ
from gymnast.errors import UserError
from gymnast.runtime.venvs import ensure_venv, requirement_lines, unmet_requirements
from gymnast.store.lines import numbered_lines

if TYPE_CHECKING:
    from pathlib import Path

SURFACE_PLUGIN: Final = "gymnast.compat.pytest_surface"
_RUNNERS: Final = ("pytest", "pytest-asyncio")
EXAMPLES: Final = 5
"""How many example rows a server must have, and rollouts of them."""


def run_tests(folder: Path) -> int:
    """Run the tests; returns pytest's exit code."""
    if not (folder / "tests").is_dir():
        raise UserError("the server has no tests", where=str(folder), next="write tests/test_app.py")
    _refuse_without_pytest(folder)
    words = [python_for(folder), "-P", "-m", "pytest", *pytest_words(folder.resolve())]
    return subprocess.run(words, cwd=folder, env=child_environ({}), check=False).returncode  # noqa: S603 - our own command


def pytest_words(folder: Path) -> list[str]:
    """pytest's arguments for the tests of a server."""
    root = folder.parents[1]
    words = [str(folder / "tests"), f"--rootdir={root}", "-q", "-p", SURFACE_PLUGIN]
    words += ["-c", os.devnull, f"--confcutdir={root}", "-p", "no:cacheprovider"]  # no settings from parent folders
    return [*words, "-o", "asyncio_mode=auto", "-o", "asyncio_default_fixture_loop_scope=function"]


def _refuse_without_pytest(folder: Path) -> None:
    """Require pytest: servers list `nemo-gym[dev]`, which installs it there but not here."""
    listed = " ".join(requirement_lines(folder))
    missing = [name for name in _RUNNERS if find_spec(name.replace("-", "_")) is None and name not in listed]
    if missing:
        raise UserError(
            f"{' and '.join(missing)} {'is' if len(missing) == 1 else 'are'} not installed",
            where=sys.executable,
            next=f"{sys.executable} -m pip install {' '.join(missing)}",
        )


def python_for(folder: Path) -> str:
    """An interpreter with the packages that a server requires: ours if it has them, or a virtual environment's."""
    if not unmet_requirements(folder):
        return sys.executable
    cache = read_environ().cache_dir
    log = cache / "logs" / f"{folder.parent.name}-{folder.name}.venv.log"
    return str(asyncio.run(ensure_venv(folder, cache, log)))


def data_problems(folder: Path) -> list[str]:
    """Problems of a resources server's example data: it needs five rows, their metrics and five rollouts."""
    data = folder / "data"
    problems = [f"{path} is an unresolved metrics conflict" for path in sorted(data.glob("*conflict*"))]
    for name in ("example.jsonl", "example_rollouts.jsonl"):
        count = _lines(data / name)
        if count != EXAMPLES:
            problems.append(f"{data / name}: expected {EXAMPLES} rows, found {count or 'none'}")
    metrics = data / "example_metrics.json"
    try:
        examples = json.loads(metrics.read_bytes()).get("Number of examples")
    except (OSError, ValueError, AttributeError):
        examples = None
    if examples != EXAMPLES:
        problems.append(f"{metrics}: expected 'Number of examples' to be {EXAMPLES}")
    return problems


def _lines(path: Path) -> int | None:
    return sum(bool(line) for _, line in numbered_lines(path)) if path.is_file() else None
