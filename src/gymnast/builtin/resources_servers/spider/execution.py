"""Runs two queries on a SQLite file and compares their results. Called in another process, which may be killed.

Results are equal if some order of the columns makes them equal as multisets of rows, or as lists if the reference has
an ORDER BY. The file is opened read-only; statements other than queries are refused.
"""

from __future__ import annotations

import re
import sqlite3
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, Final

Row = tuple[Any, ...]
_ALLOWED: Final = frozenset({sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_FUNCTION, 33})  # 33: recursive
_MAX_ROWS: Final = 200_000
_MAX_VALUE_BYTES: Final = 1 << 26
_DISTINCT: Final = re.compile(r"('(?:[^']|'')*'|\"(?:[^\"]|\"\")*\"|`[^`]*`)|\bdistinct\b", re.IGNORECASE)
_SPLIT_OPERATOR: Final = re.compile(r"([<>!]) =")
_CURRENT_YEAR: Final = re.compile(r"YEAR\s*\(\s*CURDATE\s*\(\s*\)\s*\)\s*", re.IGNORECASE)


def compare(path: str, reference: str, answer: str, keep_distinct: bool) -> dict[str, Any]:  # noqa: FBT001 - JSON call
    """`match` says whether the answer is right; it is None if the reference cannot be run. `detail` says why."""
    reference, answer = (_normalize(sql, keep_distinct=keep_distinct) for sql in (reference, answer))
    try:
        expected = _run(path, reference)
    except (sqlite3.Error, sqlite3.Warning, OSError, ValueError) as error:
        return {"match": None, "detail": f"the reference fails: {type(error).__name__}: {error}"}
    try:
        actual = _run(path, answer)
    except (sqlite3.Error, sqlite3.Warning, ValueError, OverflowError, MemoryError) as error:
        return {"match": False, "detail": f"the query fails: {type(error).__name__}: {error}"}
    ordered = "order by" in reference.lower()
    return {"match": same_results(expected, actual, ordered=ordered), "detail": None}


def _normalize(sql: str, *, keep_distinct: bool) -> str:
    sql = _CURRENT_YEAR.sub("2020", _SPLIT_OPERATOR.sub(r"\1=", sql))
    return sql if keep_distinct else _DISTINCT.sub(lambda match: match[1] or "", sql)


def _run(path: str, sql: str) -> list[Row]:
    if not Path(path).is_file():
        raise FileNotFoundError(f"database not found: {path}")
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as connection:
        connection.text_factory = lambda raw: raw.decode("utf-8", "ignore")
        connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _MAX_VALUE_BYTES)
        connection.set_authorizer(_authorize)
        rows = connection.execute(sql).fetchmany(_MAX_ROWS + 1)
        if len(rows) > _MAX_ROWS:
            raise ValueError(f"more than {_MAX_ROWS} rows")
        return rows


def _authorize(action: int, *_: Any) -> int:
    return sqlite3.SQLITE_OK if action in _ALLOWED else sqlite3.SQLITE_DENY


def same_results(expected: Sequence[Row], actual: Sequence[Row], *, ordered: bool) -> bool:
    """Whether two results are equal in some order of the columns."""
    if len(expected) != len(actual):
        return False
    if not expected:
        return True
    if len(expected[0]) != len(actual[0]):
        return False
    wanted = list(zip(*expected, strict=True))
    columns = list(zip(*actual, strict=True))
    multiset = Counter(expected)
    for order in _column_orders(wanted, columns, [], ordered=ordered):
        rows = list(zip(*(columns[index] for index in order), strict=True))
        if ordered or Counter(rows) == multiset:
            return True
    return False


def _column_orders(
    wanted: Sequence[Row], columns: Sequence[Row], chosen: list[int], *, ordered: bool
) -> Iterator[list[int]]:
    """Orders in which each column has the values that it must have; equal columns are tried once."""
    if len(chosen) == len(wanted):
        yield chosen
        return
    target, tried = wanted[len(chosen)], []
    for index, column in enumerate(columns):
        if index in chosen or column in tried:
            continue
        tried.append(column)
        if column == target if ordered else Counter(column) == Counter(target):
            yield from _column_orders(wanted, columns, [*chosen, index], ordered=ordered)
