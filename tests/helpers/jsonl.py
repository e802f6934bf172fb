"""JSONL files of tests, and the example rows that ship."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any


def write_jsonl(path: Path, rows: Sequence[Any]) -> Path:
    """Rows as a JSONL file."""
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def read_jsonl(path: Path) -> list[Any]:
    """A JSONL file as rows."""
    return [json.loads(line) for line in path.read_bytes().split(b"\n") if line]  # not splitlines: \u2028 is no newline


def example_rows(name: str) -> list[dict[str, Any]]:
    """The example rows of a shipped environment."""
    from gymnast.config.roots import BUILTIN

    return read_jsonl(BUILTIN / "resources_servers" / name / "data" / "example.jsonl")
