"""The table of rollouts, paged: filters, sorting and full-text search. And one rollout of it."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

import msgspec

from gymnast.errors import NotFoundError
from gymnast.report.safe_text import to_one_line
from gymnast.studio.library import describe_progress
from gymnast.studio.query import select_rows
from gymnast.studio.rollout_page import describe_rows, make_rollout, read_line, record_text
from gymnast.studio.run_table import NUMBER_COLUMNS, TEXT_COLUMNS
from gymnast.studio.search import search_rows
from gymnast.studio.task_table import TASK_COLUMNS

if TYPE_CHECKING:
    from gymnast.studio.library import Entry
    from gymnast.studio.query import Query
    from gymnast.studio.run_table import RunTable
    from gymnast.types.json import JsonObject

BUILT_IN: Final = frozenset({*NUMBER_COLUMNS, *TEXT_COLUMNS, *TASK_COLUMNS})
"""Columns that every run has; all others are fields of its records."""
_BEFORE: Final = 40
_AFTER: Final = 80
"""Characters around a match that are shown."""


def rollouts_page(entry: Entry, query: Query) -> JsonObject:
    """A page of rollouts."""
    started, table = time.perf_counter(), entry.table()
    rows, total, is_exact = find_rows(entry, table, query, (query.page + 1) * query.size)
    shown = rows[query.page * query.size : (query.page + 1) * query.size]
    described = describe_rows(table, shown)
    if query.words:
        for row, values in zip(shown, described, strict=True):
            values["match"] = _around(record_text(read_line(table, int(table.lines[row]))), query.words[0])
    return {"rows": described, **describe_page(entry, query, total, is_exact=is_exact, started=started)}


def find_rows(entry: Entry, table: RunTable, query: Query, needed: int) -> tuple[list[int], int, bool]:
    """The rows of a query, at least the first `needed` of them; their number, and whether that is exact."""
    order = (query.filters, query.sort, query.descending)
    rows = table.orders.get(order)
    if rows is None:
        rows = select_rows(query, len(table), table.column, BUILT_IN)
        table.keep_order(order, rows)
    if not query.words:
        return (rows[:needed].tolist() if needed < len(rows) else rows.tolist()), len(rows), True
    assert entry.index is not None
    matches = search_rows(entry.index, table, rows, query.words, needed)
    return matches.rows, matches.total, matches.is_exact


def describe_page(entry: Entry, query: Query, total: int, *, is_exact: bool, started: float) -> JsonObject:
    """Which part of how many rows a page shows, and how long finding them took."""
    return {
        "total": total,
        "total_is_exact": is_exact,
        "page": query.page,
        "size": query.size,
        "index": describe_progress(entry.progress),
        "ms": round((time.perf_counter() - started) * 1000, 1),
    }


def _around(text: str, word: str) -> str:
    """The text around the first occurrence of a word."""
    start = text.lower().find(word)
    if start < 0:
        return ""
    left, right = max(0, start - _BEFORE), start + len(word) + _AFTER
    return to_one_line(f"{'…' if left else ''}{text[left:right]}{'…' if right < len(text) else ''}", right - left + 2)


def rollout_page(entry: Entry, task: int, rollout: int, *, full: bool) -> JsonObject:
    """One rollout of a run."""
    table = entry.table()
    row = find_rollout(table, task, rollout)
    page = make_rollout(table, row, entry.token_texts(), full=full)
    notes = [own for (of, which), own in entry.annotations().items() if of == task and which in (None, rollout)]
    return {"run": entry.id, **page, "annotations": [msgspec.to_builtins(own) for own in notes]}


def find_rollout(table: RunTable, task: int, rollout: int) -> int:
    """The row of a rollout. Raises NotFoundError if it has no record."""
    row = table.row_of((task << 32) | rollout) if max(task, rollout) < 2**31 else None
    if row is None:
        raise NotFoundError(f"rollout {task}:{rollout} has no record", next="it may be in flight, or not started yet")
    return row


def raw_line(entry: Entry, task: int, rollout: int) -> bytes:
    """The line of a rollout."""
    table = entry.table()
    return read_line(table, int(table.lines[find_rollout(table, task, rollout)]))
