"""Folders of servers as users lay them out, below the current folder."""

from __future__ import annotations

from pathlib import Path


def write_file(path: str, text: str) -> Path:
    """A file, with the folders that it needs."""
    file = Path(path)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    return file


def write_server(name: str, test: str | None) -> Path:
    """The folder of a resources server, with a test if it has one."""
    folder = write_file(f"resources_servers/{name}/app.py", "ANSWER = 42\n").parent
    if test is not None:
        write_file(f"resources_servers/{name}/tests/test_{name}.py", test)
    return folder
