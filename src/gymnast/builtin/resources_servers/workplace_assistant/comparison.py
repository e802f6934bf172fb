"""The difference between two offices, for the verdict."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

Problem = tuple[int, str]
"""The position of a reference call that fails, and why."""

_MAX_DIFFERENCES: Final = 8


@dataclass(frozen=True, slots=True)
class Comparison:
    """The differing rows by table, and how many of the model's calls were rejected."""

    differences: Mapping[str, Sequence[str]]
    refused: int

    def texts(self) -> list[str]:
        """The first few differences."""
        texts = [f"{table}: {text}" for table, rows in self.differences.items() for text in rows]
        return texts[:_MAX_DIFFERENCES]
