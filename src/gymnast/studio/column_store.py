"""The columns of a run's lines in memory, growing with the run."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from gymnast.studio.line_columns import FAILED

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from gymnast.studio.line_columns import Lines

_MIN_SIZE: Final = 2048
_MAX_EXPECTED: Final = 1 << 22
_MAX_DISTINCT: Final = 50_000
"""Texts with more distinct values are no column: each page reads them from its records."""


class TextColumn:
    """Texts as numbers of a dictionary; -1 for none."""

    def __init__(self) -> None:
        self.numbers: dict[str, int] = {}
        self.codes = _Growing(np.int32, -1)

    @property
    def is_full(self) -> bool:
        return len(self.numbers) > _MAX_DISTINCT

    def add(self, start: int, values: Sequence[str | None], expected: int = 0) -> None:
        numbers = self.numbers
        if values and values.count(values[0]) == len(values):  # most columns are the same in many records
            first = values[0]
            code = -1 if first is None else numbers.setdefault(first, len(numbers))
            self.codes.put(start, np.full(len(values), code, np.int32), expected)
            return
        codes = [-1 if value is None else numbers.setdefault(value, len(numbers)) for value in values]
        self.codes.put(start, np.array(codes, np.int32), expected)


class _Growing:
    """An array that grows by a quarter at a time, or at once to the size that is expected.

    Only what was put into it takes memory: what lies beyond was never written.
    """

    def __init__(self, dtype: Any, fill: float) -> None:
        self._data = np.empty(0, dtype)
        self._fill = fill
        self._used = 0

    def put(self, start: int, values: NDArray[Any], expected: int = 0) -> None:
        end = start + len(values)
        self._reserve(end, expected)
        self._fill_to(start)
        self._data[start:end] = values
        self._used = end

    def first(self, count: int) -> NDArray[Any]:
        self._reserve(count, 0)
        self._fill_to(count)
        return self._data[:count]

    def _fill_to(self, count: int) -> None:
        if count > self._used:
            self._data[self._used : count] = self._fill
            self._used = count

    def _reserve(self, count: int, expected: int) -> None:
        if count > len(self._data):
            larger = np.empty(max(count, expected, len(self._data) * 5 // 4, _MIN_SIZE), self._data.dtype)
            larger[: self._used] = self._data[: self._used]
            self._data = larger


@dataclass(slots=True)
class Columns:
    """All lines of a run in memory."""

    count: int = 0
    fixed: dict[str, _Growing] = field(
        default_factory=lambda: {
            "keys": _Growing(np.int64, 0),
            "sources": _Growing(np.int32, 0),
            "offsets": _Growing(np.int64, 0),
            "sizes": _Growing(np.int32, 0),
            "output_bytes": _Growing(np.int32, 0),
            "flags": _Growing(np.uint8, 0),
        }
    )
    numbers: dict[str, _Growing] = field(default_factory=dict)
    texts: dict[str, TextColumn] = field(default_factory=dict)

    def add(self, lines: Lines, expected: int = 0) -> None:
        """Add lines to a run that will have about as many as expected."""
        expected = min(expected, _MAX_EXPECTED)
        for name, column in self.fixed.items():
            column.put(self.count, getattr(lines, name), expected)
        for name, values in lines.numbers.items():
            if name in self.numbers or not np.isnan(values).all():  # columns without any value take no memory
                self.numbers.setdefault(name, _Growing(np.float64, np.nan)).put(self.count, values, expected)
        for name, texts in lines.texts.items():
            if name not in self.texts and texts.count(None) == len(texts):
                continue
            own = self.texts.setdefault(name, TextColumn())
            if not own.is_full:
                own.add(self.count, texts, expected)
        self.count += len(lines)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The columns of a run's lines at one moment."""

    version: tuple[int, int]
    fixed: dict[str, NDArray[Any]]
    numbers: dict[str, NDArray[np.float64]]
    texts: dict[str, tuple[NDArray[np.int32], list[str]]]
    """Codes, and the texts they stand for."""
    paths: list[str]
    """The files that `sources` refers to."""

    def __len__(self) -> int:
        return len(self.fixed["keys"])

    @property
    def is_failure(self) -> NDArray[np.bool_]:
        is_failure: NDArray[np.bool_] = (self.fixed["flags"] & FAILED) != 0
        return is_failure
