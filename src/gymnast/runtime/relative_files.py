"""Whether a server opens files of its folder by a relative path while it handles requests.

Its imports and its creation run in its folder, and so does a separate process; requests in a shared process do not.
"""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_OPENING: Final = re.compile(
    r"""\b(?:open|Path|exists|is_?file|is_?dir|listdir|read_csv|read_json|read_parquet)\(\s*r?["']([^"'\n/][^"'\n]*)["']"""
)
AT_CREATION: Final = frozenset({"__init__", "model_post_init", "setup_webserver"})
"""The functions that run while a server is created."""


def reads_own_files(entry: Path, folder: Path) -> bool:
    """Whether a function of the entry file, or of a module of the folder that it names, opens such a file."""
    return any(_opens_in_function(text, folder) for text in _sources(entry, folder))


def _sources(entry: Path, folder: Path) -> Iterator[str]:
    if not entry.is_file():
        return
    text = entry.read_text(errors="replace")
    yield text
    for module in folder.glob("*.py"):
        if module != entry and re.search(rf"\bimport\b.*\b{module.stem}\b|\b{module.stem}\s+import\b", text):
            yield module.read_text(errors="replace")


def _opens_in_function(text: str, folder: Path) -> bool:
    lines = [
        text.count("\n", 0, match.start()) + 1
        for match in _OPENING.finditer(text)
        if match[1] not in {".", ".."} and (folder / match[1]).exists()
    ]
    if not lines:
        return False
    try:
        tree = ast.parse(text)
    except SyntaxError:
        return False  # importing it says so
    spans = [
        (node.lineno, node.end_lineno or node.lineno)
        for node in ast.walk(tree)
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and node.name not in AT_CREATION
    ]
    return any(first <= line <= last for line in lines for first, last in spans)
