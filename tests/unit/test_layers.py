"""The shape of the code: imports go down only and in no circle, every module says what it owns, printing and the
environment have places."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import NamedTuple

SOURCE = Path(__file__).parents[2] / "src" / "gymnast"
ROOT = "gymnast"
RANK = {
    "types": 0,
    "errors": 1,
    "config": 2,
    "wire": 3,
    "store": 3,
    "tokens": 4,
    "runtime": 5,
    "endpoints": 5,
    "sandbox": 5,
    "kit": 6,
    "builtin": 7,
    "rollouts": 7,
    "hub": 8,
    "authoring": 8,
    "data": 8,
    "profile": 8,
    "chunks": 8,
    "sidecars": 8,
    "tracking": 8,
    "api": 9,
    "checks": 10,
    "train": 10,
    "report": 10,
    "doctor": 11,
    "benchmarks": 11,
    "results": 11,
    "executors": 10,
    "compat.nemo_gym": 11,
    "compat.nemo_skills": 11,
    "studio": 12,
    "cli": 13,
    "compat": 14,
    "__main__": 15,
}
"""By the longest name that fits a module. `compat` has our commands under NeMo Gym's names, so it is above `cli`, which
finds commands by the names of their modules."""


class Import(NamedTuple):
    """An import of a module of ours."""

    target: str
    only_for_types: bool


class Module(NamedTuple):
    """What the rules need to know of a source file."""

    name: str
    """Below gymnast; `gymnast` is the root."""
    path: str
    text: str
    has_docstring: bool
    imports: frozenset[Import]
    prints: bool


@cache
def modules() -> list[Module]:
    return [read_module(path) for path in sorted(SOURCE.rglob("*.py"))]


def read_module(path: Path) -> Module:
    text = path.read_text()
    tree = ast.parse(text)
    nodes = list(ast.walk(tree))
    for_types = {id(inner) for node in nodes if is_type_checking(node) for inner in ast.walk(node)}
    package = ".".join((ROOT, *path.relative_to(SOURCE).parts[:-1]))
    imports = frozenset(
        Import(target, id(node) in for_types) for node in nodes for target in imported_modules(node, package)
    )
    prints = any(
        isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "print" for node in nodes
    )
    relative = str(path.relative_to(SOURCE))
    return Module(module_name(path), relative, text, bool(ast.get_docstring(tree)), imports, prints)


def is_type_checking(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"


def imported_modules(node: ast.AST, package: str) -> Iterator[str]:
    """The modules of ours behind an import, or behind a name of the package root such as `gymnast.collect`."""
    if isinstance(node, ast.ImportFrom):
        assert node.level <= 1, "only siblings are imported by relative names"
        module = ".".join(filter(None, (package, node.module))) if node.level else node.module
        dotted = [f"{module}.{alias.name}" for alias in node.names]
    elif isinstance(node, ast.Import):
        dotted = [alias.name for alias in node.names]
    elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
        dotted = [f"{node.value.id}.{node.attr}"] if node.value.id == ROOT else []
    else:
        return
    yield from (resolve(name) for name in dotted if name.split(".")[0] == ROOT)


def resolve(dotted: str) -> str:
    """The module that a dotted name is, or is in. Names of the package root belong to where it takes them from."""
    dotted = root_names().get(dotted, dotted)
    while dotted not in known_names():
        dotted = dotted.rpartition(".")[0]
    return dotted.removeprefix(f"{ROOT}.")


@cache
def known_names() -> frozenset[str]:
    return frozenset({ROOT} | {f"{ROOT}.{module_name(path)}" for path in SOURCE.rglob("*.py")})


@cache
def root_names() -> dict[str, str]:
    tree = ast.parse((SOURCE / "__init__.py").read_text())
    nodes = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    names = {f"{ROOT}.{alias.name}": f"{node.module}.{alias.name}" for node in nodes for alias in node.names}
    return {name: target for name, target in names.items() if target.startswith(f"{ROOT}.")}


def module_name(path: Path) -> str:
    parts = path.relative_to(SOURCE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts) or ROOT


def layer_of(name: str) -> str:
    while name not in RANK:
        assert name, "a package without a rank"
        name = name.rpartition(".")[0]
    return name


def upward_imports(found: list[Module]) -> list[str]:
    return [
        f"{module.name} imports {target}"
        for module in found
        for target, _ in module.imports
        if ROOT not in {module.name, target} and layer_of(module.name) != layer_of(target)
        if RANK[layer_of(target)] >= RANK[layer_of(module.name)]
    ]


def find_cycle(found: list[Module]) -> list[str]:
    """A circle of imports, late ones included; those for annotations never run."""
    graph: dict[str, set[str]] = {}
    for module in found:
        targets = {target for target, for_types in module.imports if not for_types}
        graph.setdefault(module.name, set()).update(targets)
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


def test_imports_go_down_only() -> None:
    assert not upward_imports(modules())


def test_modules_do_not_import_each_other_in_a_circle() -> None:
    assert not find_cycle(modules())


def test_the_rules_see_what_breaks_them() -> None:
    def module(name: str, code: str) -> Module:
        targets = {target for node in ast.walk(ast.parse(code)) for target in imported_modules(node, ROOT)}
        imports = frozenset(Import(target, only_for_types=False) for target in targets)
        return Module(name, "", code, has_docstring=True, imports=imports, prints=False)

    through_root = module("wire.calls", "from gymnast import Collector")
    assert upward_imports([through_root]) == ["wire.calls imports api.collector"]
    through_root = module("kit.tools", "import gymnast\ngymnast.collect()")
    assert upward_imports([through_root]) == ["kit.tools imports api.collect"]
    assert upward_imports([module("wire.calls", "from gymnast import cli")]) == ["wire.calls imports cli"]
    assert upward_imports([module("wire.calls", "from gymnast import __version__")]) == []
    circle = [
        module("wire.calls", "from gymnast.wire import message"),
        module("wire.message", "def f():\n    from gymnast.wire.calls import Calls"),
    ]
    assert set(find_cycle(circle)) == {"wire.calls", "wire.message"}


def test_every_module_says_what_it_owns() -> None:
    assert len(modules()) > 500
    silent = [module for module in modules() if not module.has_docstring]
    assert not [module.path for module in silent if module.text or not module.path.endswith("__init__.py")]


MAX_ATTRIBUTES = 15
"""A class with more of them explains how they belong together."""


def attributes_of(definition: ast.ClassDef) -> set[str]:
    """The attributes that a class's methods set on `self`."""
    return {
        node.attr
        for node in ast.walk(definition)
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store)
        if isinstance(node.value, ast.Name) and node.value.id == "self"
    }


def unexplained_classes(text: str) -> list[str]:
    """Large classes whose docstring is one line, in a module that states no invariants either."""
    tree = ast.parse(text)
    if "Invariant" in (ast.get_docstring(tree) or ""):
        return []
    return [
        node.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef)
        if len(attributes_of(node)) > MAX_ATTRIBUTES and len((ast.get_docstring(node) or "").splitlines()) < 3
    ]


def test_large_classes_explain_their_attributes() -> None:
    assert not [f"{module.path}: {name}" for module in modules() for name in unexplained_classes(module.text)]
    body = "\n".join(f"        self.a{number} = {number}" for number in range(MAX_ATTRIBUTES + 1))
    large = f"class Large:\n    def __init__(self):\n{body}\n"
    assert unexplained_classes(large) == ["Large"]
    assert not unexplained_classes(f'"""A module.\n\nInvariants: none."""\n{large}')


_PROGRAMS = "builtin/agents/programs/"
"""Programs that agents run: they are not part of Gymnast's process."""


def test_only_the_command_line_prints() -> None:
    offenders = [
        module.path
        for module in modules()
        if module.prints and not module.path.startswith(("cli/", "compat/", _PROGRAMS))
    ]
    assert offenders in ([], ["runtime/cell.py"])  # request-boundary lines, asked for by a flag


def test_environment_variables_are_read_in_one_file() -> None:
    offenders = [
        module.path
        for module in modules()
        if ("os.environ" in module.text or "os.getenv" in module.text) and not module.path.startswith(_PROGRAMS)
    ]
    # A job's sidecar runs in containers without Gymnast, so it has a file of its own for them.
    assert offenders == ["config/environ.py", "sidecars/sidecar/host_environment.py"]
