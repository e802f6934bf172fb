"""Compares the results of two queries. Pure; runs outside the sandbox.

Ignores the names of columns, but not their order. NULL equals NULL; numbers are equal up to a millionth.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

import msgspec

_TOLERANCE: Final = 1e-6
Row = Sequence[Any]


class Result(msgspec.Struct, frozen=True):
    """The rows that a query returned, and the tables if it changed any."""

    rows: list[list[Any]] | None = None
    """None for a statement that returns nothing."""
    tables: dict[str, list[list[Any]]] | None = None
    """By name and columns; None if nothing changed."""


class QueryOutput(msgspec.Struct, frozen=True):
    """The results of a query on the variants of a database. The first variant is the full database."""

    results: list[Result] = []
    failed_at: str | None = None
    """`context`, `query`, or `size` (the result is too large to compare)."""
    error: str | None = None
    populated: bool = False
    """Whether any table had a row initially."""


def same_result(actual: Result, expected: Result, *, ordered: bool) -> bool:
    """Whether a query has the same result as the reference."""
    if (actual.rows is None) != (expected.rows is None) or (actual.tables is None) != (expected.tables is None):
        return False
    if (
        actual.rows is not None
        and expected.rows is not None
        and not same_rows(actual.rows, expected.rows, ordered=ordered)
    ):
        return False
    if actual.tables is None or expected.tables is None:
        return True
    return actual.tables.keys() == expected.tables.keys() and all(
        same_rows(rows, expected.tables[name], ordered=False) for name, rows in actual.tables.items()
    )


def same_rows(actual: Sequence[Row], expected: Sequence[Row], *, ordered: bool) -> bool:
    """Compare row by row in order, or as multisets."""
    if len(actual) != len(expected):
        return False
    if not ordered:
        actual, expected = sorted(actual, key=_sort_key), sorted(expected, key=_sort_key)
    return all(_same_row(*rows) for rows in zip(actual, expected, strict=True))


def _same_row(actual: Row, expected: Row) -> bool:
    return len(actual) == len(expected) and all(map(_same_value, actual, expected))


def _same_value(left: Any, right: Any) -> bool:
    if isinstance(left, (int, float)) and isinstance(right, (int, float)):
        if isinstance(left, int) and isinstance(right, int):
            return left == right
        return math.isclose(left, right, rel_tol=_TOLERANCE, abs_tol=1e-9)
    return type(left) is type(right) and bool(left == right)


def _sort_key(row: Row) -> tuple[list[tuple[int, Any]], list[float]]:
    """Sort by exact values first and rounded numbers last, so that rows that differ only by rounding line up."""
    exact = [_rank(value) for value in row]
    return exact, [_round(value) for value in row if isinstance(value, (int, float))]


def _rank(value: Any) -> tuple[int, Any]:
    if value is None:
        return 0, ""
    if isinstance(value, (int, float)):
        return 1, ""
    return (2, value) if isinstance(value, str) else (3, str(value))


def _round(value: float) -> float:
    try:
        return float(f"{value:.5g}") + 0.0
    except OverflowError:
        return math.copysign(math.inf, value)
