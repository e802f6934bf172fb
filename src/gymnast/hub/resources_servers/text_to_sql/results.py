"""Whether two queries gave the same result. Pure, and always outside the sandbox.

Names of columns do not matter, their order does. NULL equals NULL; numbers are equal up to a millionth.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

import msgspec

_TOLERANCE: Final = 1e-6
Row = Sequence[Any]


class Result(msgspec.Struct, frozen=True):
    """What a query returned, and the tables it left if it changed any."""

    rows: list[list[Any]] | None = None
    """None for a statement that returns nothing."""
    tables: dict[str, list[list[Any]]] | None = None
    """By name and columns; None if nothing changed."""


class Answer(msgspec.Struct, frozen=True):
    """What running a query on the variants of a database gave. The first variant is the database as the row has it."""

    results: list[Result] = []
    failed_at: str | None = None
    """`context`, `query`, or `size` (the result is too large to compare)."""
    error: str | None = None
    populated: bool = False
    """Whether any table had a row to begin with."""


def same_result(ours: Result, theirs: Result, *, ordered: bool) -> bool:
    """Whether a query did what the reference did."""
    if (ours.rows is None) != (theirs.rows is None) or (ours.tables is None) != (theirs.tables is None):
        return False
    if ours.rows is not None and theirs.rows is not None and not same_rows(ours.rows, theirs.rows, ordered=ordered):
        return False
    if ours.tables is None or theirs.tables is None:
        return True
    mine, other = ours.tables, theirs.tables
    return mine.keys() == other.keys() and all(same_rows(mine[name], other[name], ordered=False) for name in mine)


def same_rows(ours: Sequence[Row], theirs: Sequence[Row], *, ordered: bool) -> bool:
    """Row by row in order, or as collections in which every row counts as often as it stands there."""
    if len(ours) != len(theirs):
        return False
    if not ordered:
        ours, theirs = sorted(ours, key=_sort_key), sorted(theirs, key=_sort_key)
    return all(_same_row(mine, other) for mine, other in zip(ours, theirs, strict=True))


def _same_row(mine: Row, other: Row) -> bool:
    return len(mine) == len(other) and all(_same_value(one, two) for one, two in zip(mine, other, strict=True))


def _same_value(one: Any, two: Any) -> bool:
    if isinstance(one, (int, float)) and isinstance(two, (int, float)):
        if isinstance(one, int) and isinstance(two, int):
            return one == two
        return math.isclose(one, two, rel_tol=_TOLERANCE, abs_tol=1e-9)
    return type(one) is type(two) and bool(one == two)


def _sort_key(row: Row) -> tuple[list[tuple[int, Any]], list[float]]:
    """Exact values first, rounded numbers last: rows that differ by rounding only meet their equals."""
    exact = [_rank(value) for value in row]
    return exact, [_rounded(value) for value in row if isinstance(value, (int, float))]


def _rank(value: Any) -> tuple[int, Any]:
    if value is None:
        return 0, ""
    if isinstance(value, (int, float)):
        return 1, ""
    return (2, value) if isinstance(value, str) else (3, str(value))


def _rounded(value: float) -> float:
    try:
        return float(f"{value:.5g}") + 0.0
    except OverflowError:
        return math.copysign(math.inf, value)
