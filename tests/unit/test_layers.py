"""The shape of the code: imports go down only, importing is cheap and changes nothing."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[2] / "src" / "gymnast"
RANK = {
    "types": 0,
    "errors": 0.5,
    "config": 1,
    "wire": 2,
    "store": 2,
    "tokens": 2.5,
    "runtime": 3,
    "kit": 3,
    "hub": 4,
    "rollouts": 4,
    "authoring": 5,
    "data": 5,
    "profile": 5,
    "doctor": 5,
    "cluster": 5,
    "train": 5,
    "report": 5,
    "checks": 5.5,
    "compat": 6,
    "cli": 6,
}
MODULES = sorted(SOURCE.rglob("*.py"))


def package_of(path: Path) -> str:
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


def imported_packages(path: Path) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        names = [node.module] if isinstance(node, ast.ImportFrom) else []
        names += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        found |= {name.split(".")[1] for name in names if name and name.startswith("gymnast.")}
    return found


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_imports_go_down_only(path: Path) -> None:
    package = package_of(path)
    if package == "__init__":
        return
    for other in imported_packages(path) - {package}:
        # compat's commands are the command line under other names, and `gymnast gym` is one of them; the report shows
        # what the profile computes, and samples of a run are read from the same files
        beside = {("compat", "cli"), ("cli", "compat"), ("report", "profile"), ("train", "profile")}
        assert RANK[other] < RANK[package] or (package, other) in beside, f"{package} imports {other}"


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_every_module_says_what_it_owns(path: Path) -> None:
    if path.name != "__init__.py" or path.read_text():
        assert ast.get_docstring(ast.parse(path.read_text())), path


def test_importing_gymnast_loads_nothing_heavy_and_starts_nothing() -> None:
    code = """
import os, sys, threading
before, path = dict(os.environ), list(sys.path)
import gymnast
heavy = {"pydantic", "uvicorn", "omegaconf", "hydra", "asyncio", "typer", "rich"} & set(sys.modules)
assert not heavy, heavy
assert threading.active_count() == 1
assert before == dict(os.environ)
assert path == sys.path
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_only_the_command_line_prints() -> None:
    offenders = [
        str(path.relative_to(SOURCE))
        for path in MODULES
        if package_of(path) not in {"cli", "compat"}
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "print"
    ]
    assert offenders in ([], ["runtime/cell.py"])  # request-boundary lines, asked for by a flag


def test_environment_variables_are_read_in_one_file() -> None:
    offenders = [path for path in MODULES if "os.environ" in path.read_text() or "os.getenv" in path.read_text()]
    # A job's companion runs in containers without Gymnast, so it has a file of its own for them.
    companion = SOURCE / "cluster" / "components" / "companion" / "surroundings.py"
    assert offenders == [companion, SOURCE / "config" / "environ.py"]
