"""Whether a server imports modules of its folder while it handles requests.

In a shared process they can be imported only together with the entry file: another server may have modules of the same
names. A separate process runs in the folder and keeps them.
"""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from gymnast.runtime.relative_files import AT_CREATION

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


def imports_own_modules_late(entry: Path, folder: Path) -> bool:
    """Whether a function of the entry file, or of a module of the folder that it uses, imports such a module."""
    pending, seen = [entry], {entry}
    while pending:
        path = pending.pop()
        for name, is_late in _imports(path, folder):
            files = [*_own_files(name, folder)]
            if is_late and files:
                return True
            new = [file for file in (files or _own_files(_without_checkout(name, folder), folder)) if file not in seen]
            seen.update(new)
            pending += new
    return False


def _imports(path: Path, folder: Path) -> Iterator[tuple[str, bool]]:
    """The modules that a file imports, each member as well, which may be one; and whether a function does."""
    try:
        tree = ast.parse(path.read_bytes())
    except (OSError, SyntaxError, ValueError):
        return  # importing it says so
    late = {
        inner
        for node in ast.walk(tree)
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and node.name not in AT_CREATION
        for inner in ast.walk(node)
        if isinstance(inner, (ast.Import, ast.ImportFrom))
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name, node in late) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            package = path.parent.relative_to(folder).parts if node.level else ()
            start = [*package[: len(package) - node.level + 1], *([node.module] if node.module else [])]
            # The entry file's own package stays: its relative imports work at any time.
            is_late = node in late and (not node.level or bool(package))
            yield from ((".".join([*start, alias.name]), is_late) for alias in node.names)


def _own_files(module: str, folder: Path) -> Iterator[Path]:
    """The files of the folder that an import of a module runs: its packages, and itself."""
    path = folder
    for part in module.split(".") if module else ():
        path /= part
        yield from (file for file in (path.with_suffix(".py"), path / "__init__.py") if file.is_file())


def _without_checkout(module: str, folder: Path) -> str:
    """A module of the folder that is imported from the checkout's root, which stays importable."""
    return module.removeprefix(f"{folder.parent.name}.{folder.name}.")
