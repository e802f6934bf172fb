"""The tests of a server's folder, run by pytest from the root of its checkout, with the packages that it asks for."""

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
from gymnast.runtime.venvs import ensure_venv, requirement_lines, unmet
from gymnast.store.lines import numbered_lines

if TYPE_CHECKING:
    from pathlib import Path

_RUNNERS: Final = ("pytest", "pytest-asyncio")
EXAMPLES: Final = 5
"""Rows that a server's example data has, and rollouts of them."""


def run_tests(folder: Path) -> int:
    """Run them; the exit code is pytest's."""
    if not (folder / "tests").is_dir():
        raise UserError("the server has no tests", where=str(folder), next="write tests/test_app.py")
    _refuse_without_pytest(folder)
    root = folder.resolve().parents[1]
    words = [python_for(folder), "-m", "pytest", str(folder.resolve() / "tests"), f"--rootdir={root}", "-q"]
    words += ["-c", os.devnull, f"--confcutdir={root}", "-p", "no:cacheprovider"]  # no settings of somewhere above
    words += ["-o", "asyncio_mode=auto", "-o", "asyncio_default_fixture_loop_scope=function"]
    return subprocess.run(words, cwd=root, env=child_environ({}), check=False).returncode  # noqa: S603 - our own words


def _refuse_without_pytest(folder: Path) -> None:
    """Servers list `nemo-gym[dev]`, which brings it there; here it is asked for."""
    listed = " ".join(requirement_lines(folder))
    missing = [name for name in _RUNNERS if find_spec(name.replace("-", "_")) is None and name not in listed]
    if missing:
        raise UserError(
            f"{' and '.join(missing)} {'is' if len(missing) == 1 else 'are'} not installed",
            where=sys.executable,
            next=f"{sys.executable} -m pip install {' '.join(missing)}",
        )


def python_for(folder: Path) -> str:
    """An interpreter that has the packages which a server asks for: ours where that has them."""
    if not unmet(folder):
        return sys.executable
    cache = read_environ().cache_dir
    log = cache / "logs" / f"{folder.parent.name}-{folder.name}.venv.log"
    return str(asyncio.run(ensure_venv(folder, cache, log)))


def data_problems(folder: Path) -> list[str]:
    """What is wrong with the example data that a resources server ships: five rows, their metrics, five rollouts."""
    data = folder / "data"
    found = [f"{path} is an unsettled metrics conflict" for path in sorted(data.glob("*conflict*"))]
    for name in ("example.jsonl", "example_rollouts.jsonl"):
        count = _lines(data / name)
        if count != EXAMPLES:
            found.append(f"{data / name} has {'no' if count is None else count} rows instead of {EXAMPLES}")
    metrics = data / "example_metrics.json"
    try:
        said = json.loads(metrics.read_bytes()).get("Number of examples")
    except (OSError, ValueError, AttributeError):
        said = None
    if said != EXAMPLES:
        found.append(f"{metrics} does not say that there are {EXAMPLES} examples")
    return found


def _lines(path: Path) -> int | None:
    return sum(bool(line) for _, line in numbered_lines(path)) if path.is_file() else None
