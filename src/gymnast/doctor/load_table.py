"""Reads doctor's tables (`tables/*.toml`): what log lines and failures mean, as data."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec

_FOLDER: Final = Path(__file__).parent / "tables"
_Row = TypeVar("_Row", bound=msgspec.Struct)


def load_table(name: str) -> dict[str, dict[str, Any]]:
    """The entries of `tables/<name>.toml`, in the order of the file."""
    return tomllib.loads((_FOLDER / f"{name}.toml").read_text(encoding="utf-8"))


def load_rows(name: str, row: type[_Row]) -> dict[str, _Row]:
    """The entries of a table as rows, by id. Raises msgspec.ValidationError if a field is wrong or missing."""
    return {row_id: msgspec.convert({"id": row_id, **fields}, row) for row_id, fields in load_table(name).items()}


def join_pattern(pattern: str | list[str]) -> str:
    """The regular expression that a table has as a text, or as a list of its alternatives."""
    return pattern if isinstance(pattern, str) else "|".join(pattern)
