"""The shape of the code: imports go down only, every module says what it owns, printing and environment have places."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

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
BESIDE = {("compat", "cli"), ("cli", "compat"), ("report", "profile"), ("train", "profile")}
"""compat's commands are the command line under other names, and `gymnast gym` is one of them; the report shows what the
profile computes, and samples of a run are read from the same files."""


class Module(NamedTuple):
    """What the rules need to know of a source file."""

    name: str
    text: str
    has_docstring: bool
    imports: frozenset[str]
    """Packages of ours."""
    prints: bool

    @property
    def package(self) -> str:
        return self.name.split("/")[0].removesuffix(".py")


@cache
def modules() -> list[Module]:
    return [read_module(path) for path in sorted(SOURCE.rglob("*.py"))]


def read_module(path: Path) -> Module:
    text = path.read_text()
    tree = ast.parse(text)
    nodes = list(ast.walk(tree))
    imports = frozenset(
        name.split(".")[1] for node in nodes for name in imported_names(node) if name.startswith("gymnast.")
    )
    prints = any(
        isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "print" for node in nodes
    )
    return Module(str(path.relative_to(SOURCE)), text, bool(ast.get_docstring(tree)), imports, prints)


def imported_names(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.ImportFrom):
        yield node.module or ""
    elif isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)


def test_imports_go_down_only() -> None:
    offenders = [
        f"{module.name} imports {other}"
        for module in modules()
        if module.package != "__init__"
        for other in module.imports - {module.package}
        if RANK[other] >= RANK[module.package] and (module.package, other) not in BESIDE
    ]
    assert not offenders


def test_every_module_says_what_it_owns() -> None:
    assert len(modules()) > 500
    silent = [module for module in modules() if not module.has_docstring]
    assert not [module.name for module in silent if module.text or not module.name.endswith("__init__.py")]


def test_only_the_command_line_prints() -> None:
    offenders = [module.name for module in modules() if module.prints and module.package not in {"cli", "compat"}]
    assert offenders in ([], ["runtime/cell.py"])  # request-boundary lines, asked for by a flag


def test_environment_variables_are_read_in_one_file() -> None:
    offenders = [module.name for module in modules() if "os.environ" in module.text or "os.getenv" in module.text]
    # A job's companion runs in containers without Gymnast, so it has a file of its own for them.
    assert offenders == ["cluster/components/companion/surroundings.py", "config/environ.py"]
