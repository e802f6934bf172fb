"""What ships is written with what authors have: built-ins import `gymnast.kit` and their own package only."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import gymnast
from gymnast import kit

BUILTIN = Path(gymnast.__file__).parent / "builtin"


def imports(path: Path) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            found.add(node.module)
        elif isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
    return {name for name in found if name.split(".")[0] == "gymnast"}


def test_built_ins_need_nothing_but_the_kit() -> None:
    others = {
        f"{path.relative_to(BUILTIN)}: {name}"
        for path in sorted(BUILTIN.rglob("*.py"))
        for name in imports(path)
        if name != "gymnast.kit" and not name.startswith("gymnast.builtin")
    }
    assert not others


@pytest.mark.parametrize("name", sorted(kit.__all__))
def test_every_exported_name_is_there(name: str) -> None:
    assert getattr(kit, name) is not None
