"""A table as NeMo Gym's tools see it: rows with labels, columns of texts that may turn into columns of anything.

Its tools keep their tables in data frames, and some of their replies and scores follow from that: a deleted row leaves
a gap in the labels, a value that is not a text makes its column a mixed one, a search is a regular expression.
Rows are replaced and never changed, so that sessions share those of the files.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

from .nemo_gym_patterns import Search, compile_pattern
from .tables import CASE_SENSITIVE

_MAX_INTEGER: Final = 2**63
_AMBIGUOUS: Final = "The truth value of an array with more than one element is ambiguous. Use a.any() or a.all()"
_AMBIGUOUS_EMPTY: Final = (
    "The truth value of an empty array is ambiguous. Use `array.size > 0` to check that an array is not empty."
)
Cells = Mapping[str, Any]
"""A row; None stands for a missing value."""


class Frame:
    """The rows of one table in one session."""

    __slots__ = ("columns", "labels", "mixed", "rows")

    def __init__(self, columns: Sequence[str], rows: Sequence[Cells]) -> None:
        self.columns = tuple(columns)
        self.rows = list(rows)
        self.labels = list(range(len(rows)))
        self.mixed: frozenset[str] = frozenset()
        """Columns that have held something other than a text."""

    def copy(self) -> Frame:
        """An equal frame that can be changed on its own."""
        made = Frame.__new__(Frame)
        made.columns, made.rows, made.labels, made.mixed = self.columns, self.rows[:], self.labels[:], self.mixed
        return made

    def rows_with(self, column: str, value: Any) -> list[Cells]:
        """The rows with a value."""
        refuse_comparison("eq", value, len(self.rows), mixed=column in self.mixed)
        return [row for row in self.rows if row[column] == value]

    def has(self, column: str, value: Any) -> bool:
        """Whether a row has a value."""
        if isinstance(value, list) and column not in self.mixed:
            return self._has_list(column, value)
        refuse_comparison("eq", value, len(self.rows), mixed=column in self.mixed)
        return any(row[column] == value for row in self.rows)

    def _has_list(self, column: str, values: list[Any]) -> bool:
        """Whether a column of texts has a list: only one with a single value has an answer there."""
        cells = np.asarray(values, dtype=object).ravel()
        if cells.size != 1:
            raise ValueError(_AMBIGUOUS if cells.size else _AMBIGUOUS_EMPTY)
        if cells[0] is None:
            return False
        if len(self.rows) != 1:
            raise ValueError("Lengths must match to compare")
        return bool(self.rows[0][column] == values[0])

    def highest(self, column: str) -> Any:
        """The last value in the order of texts."""
        return max(row[column] for row in self.rows if row[column] is not None)

    def append(self, cells: Mapping[str, Any], *, renumber: bool) -> None:
        """Add a row: labelled 0, or with all labels renumbered."""
        row = {column: cells[column] for column in self.columns}
        self.mixed |= {column for column, value in row.items() if not isinstance(value, str)}
        self.rows.append(row)
        self.labels.append(0)
        if renumber:
            self.labels = list(range(len(self.rows)))

    def delete(self, column: str, value: Any) -> None:
        """Remove the rows with a value, and their labels."""
        kept = [position for position, row in enumerate(self.rows) if row[column] != value]
        self.rows = [self.rows[position] for position in kept]
        self.labels = [self.labels[position] for position in kept]

    def replace(self, column: str, value: Any, field: str, new_value: Any) -> None:
        """Set a field of the rows with a value."""
        places = [position for position, row in enumerate(self.rows) if row[column] == value]
        if field not in self.mixed and not isinstance(new_value, (str, list)):
            raise TypeError(_misfit(new_value))
        values = _spread(new_value, len(places))
        for position, cell in zip(places, values, strict=True):
            self.rows[position] = {**self.rows[position], field: cell}

    def match_texts(self, rows: Sequence[Cells], column: str, pattern: Any, *, missing: bool | None) -> list[bool]:
        """Whether each row's text matches a pattern. `missing` is the answer for a missing value, None for none."""
        if isinstance(pattern, str) and not rows and column not in self.mixed:
            return []
        search = compile_pattern(pattern, python=column in self.mixed)
        matches = [_search(search, row[column], missing=missing, mixed=column in self.mixed) for row in rows]
        if any(answer is None for answer in matches):
            raise ValueError("Cannot mask with non-boolean array containing NA / NaN values")
        return [bool(answer) for answer in matches]

    def filter(self, rows: Sequence[Cells], column: str, pattern: Any) -> Sequence[Cells]:
        """The rows whose text matches a pattern; all of them without a pattern."""
        if not pattern:
            return rows
        matches = self.match_texts(rows, column, pattern, missing=None)
        return [row for row, fits in zip(rows, matches, strict=True) if fits]

    def comparable(self) -> tuple[Any, ...]:
        """What a score compares: labels, kinds of columns, and cells without their case in most columns."""
        cells = [tuple(_lower(column, row[column]) for column in self.columns) for row in self.rows]
        return self.labels, self.mixed, cells


def refuse_comparison(operator: str, value: Any, count: int, *, mixed: bool) -> None:
    """Raise what comparing a column with a value raises there."""
    if isinstance(value, list) and len(value) != count:
        raise ValueError(("Lengths must match to compare", (count,), (len(value),)))
    if isinstance(value, dict) and not mixed:
        raise NotImplementedError(f"{operator} not implemented for {type(value)}")
    if isinstance(value, int) and not -_MAX_INTEGER <= value < _MAX_INTEGER and not mixed:
        raise OverflowError("Python int too large to convert to C long")


def _misfit(value: Any) -> str:
    """The error for a value that is put into a column of texts."""
    if isinstance(value, dict):
        return "Invalid value for dtype 'str'. Value should be a string or missing value (or array of those)."
    wanted = "Value should be a string or missing value"
    return f"Invalid value '{value}' for dtype 'str'. {wanted}, got '{type(value).__name__}' instead."


def _search(search: Search, cell: Any, *, missing: bool | None, mixed: bool) -> bool | None:
    if isinstance(cell, str):
        return search(cell) is not None
    return missing if mixed else bool(missing)


def _spread(value: Any, count: int) -> list[Any]:
    """A list is taken as one value for each row."""
    if not isinstance(value, list):
        return [value] * count
    if len(value) != count:
        raise ValueError("Must have equal len keys and value when setting with an iterable")
    return value


def _lower(column: str, cell: Any) -> Any:
    if column in CASE_SENSITIVE:
        return cell
    return cell.lower() if isinstance(cell, str) else None


def equal(one: Frame, other: Frame) -> bool:
    """Whether a score takes two frames for equal."""
    return (one.labels, one.rows, one.mixed) == (other.labels, other.rows, other.mixed) or (
        one.comparable() == other.comparable()
    )


def describe(expected: Frame, actual: Frame) -> list[str]:
    """Describe the rows in which two frames differ."""
    key = expected.columns[0]
    wanted, present = ({str(row[key]): row for row in frame.rows} for frame in (expected, actual))
    texts = [f"{row_id} should not be there" for row_id in present if row_id not in wanted]
    texts += [f"{row_id} should be there" for row_id in wanted if row_id not in present]
    for row_id in wanted.keys() & present.keys():
        one, other = wanted[row_id], present[row_id]
        columns = [name for name in expected.columns if _lower(name, one[name]) != _lower(name, other[name])]
        texts += [f"{row_id} differs in {', '.join(columns)}"] if columns else []
    return sorted(texts) or ["the same rows in a different order, or with other kinds of values"]


def filter_range(
    rows: Sequence[Cells], column: str, *, low: Any = None, high: Any = None, mixed: bool = False
) -> list[Cells]:
    """The rows between two texts, in the order of texts; missing values are outside."""
    operator, bound = ("le", high) if low is None else ("ge", low)
    refuse_comparison(operator, bound, len(rows), mixed=mixed)
    if rows and not isinstance(bound, (str, list)) and not mixed:
        raise TypeError(f"Invalid comparison between dtype=str and {type(bound).__name__}")
    pairs = [(row, row[column], limit) for row, limit in zip(rows, _spread(bound, len(rows)), strict=True)]
    if low is None:
        return [row for row, cell, limit in pairs if cell is not None and cell <= limit]
    return [row for row, cell, limit in pairs if cell is not None and cell >= limit]


def make_page(name: str, rows: Sequence[Cells], page: Any, page_size: Any) -> dict[str, Any] | None:
    """A page of results; one that is beyond the last is the last. None if there are no results."""
    total = len(rows)
    pages = (total + page_size - 1) // page_size
    page = max(1, min(page, pages)) if pages > 0 else 1
    first = (page - 1) * page_size
    last = min(first + page_size, total)
    if not rows:
        return None
    return {
        name: list(rows[first:last]),
        "pagination": {f"total_{name}": total, "page": page, "page_size": page_size, "total_pages": pages},
    }


def show(cell: Any) -> str:
    """A cell in a sentence."""
    return "nan" if cell is None else str(cell)
