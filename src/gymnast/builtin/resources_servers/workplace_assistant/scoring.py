"""Scores by replaying the model's calls and the reference calls on fresh tables and comparing the final state.

Only state counts. Reading changes nothing and costs nothing; a rejected call changes nothing; an extra change is as
wrong as a missing one.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain, islice
from typing import Any, Final

from gymnast.kit import Tool, ToolError

from .office import Office
from .tables import OfficeData, Row, Sheet
from .toolbox import CHANGING, clean_arguments

Call = tuple[str, Any]
"""A tool's name and its arguments; None if the model's JSON was invalid."""

Changes = dict[str, Row | None]
"""Differences from the shared table, by id; None for a deleted row."""

_MAX_DIFFERENCES: Final = 8
"""Differences described per table."""
_YIELD_EVERY: Final = 200
"""Calls after which a replay yields to the event loop: a model may repeat itself ten thousand times."""


@dataclass(frozen=True, slots=True)
class Replay:
    """The office after some calls, and the rejected ones: (position of the call, reason)."""

    office: Office
    rejected: list[tuple[int, str]]


async def replay(tools: Mapping[str, Tool], calls: Iterable[Call], office_data: OfficeData) -> Replay:
    """Make the calls that change something, in order, in a fresh office."""
    office, rejected = Office(office_data), []
    for position, (name, arguments) in enumerate(calls):
        if position % _YIELD_EVERY == _YIELD_EVERY - 1:
            await asyncio.sleep(0)
        if name not in CHANGING:
            continue
        try:
            clean = clean_arguments(tools[name], arguments)
            await tools[name].function(session=office, **clean)
        except ToolError as error:
            rejected.append((position, f"{name}: {error}"))
    return Replay(office, rejected)


def differences(expected: Office, actual: Office, *, any_order: bool) -> dict[str, list[str]]:
    """The first differing rows by table; empty if the two offices are equal.

    `any_order`: rows may have been added in a different order, and so have different ids.
    """
    compared = {
        name: _sheet_differences(sheet, actual.sheets[name], any_order=any_order)
        for name, sheet in expected.sheets.items()
    }
    return {name: texts for name, texts in compared.items() if texts}


def _sheet_differences(expected: Sheet, actual: Sheet, *, any_order: bool) -> list[str]:
    expected_changes, actual_changes = expected.changes(), actual.changes()
    if expected_changes == actual_changes:
        return []
    bags: Iterable[str] = ()
    if any_order:
        bags = _bag_differences(expected, _take_added(expected, expected_changes), _take_added(actual, actual_changes))
    ids = sorted(
        row_id
        for row_id in expected_changes.keys() | actual_changes.keys()
        if _differ(row_id, expected_changes, actual_changes)
    )
    rows = (_row_difference(expected, row_id, expected_changes, actual_changes) for row_id in ids)
    return list(islice(chain(bags, rows), _MAX_DIFFERENCES))


def _differ(row_id: str, expected_changes: Changes, actual_changes: Changes) -> bool:
    return (row_id in expected_changes) != (row_id in actual_changes) or expected_changes[row_id] != actual_changes[
        row_id
    ]


def _row_difference(sheet: Sheet, row_id: str, expected_changes: Changes, actual_changes: Changes) -> str:
    one, other = expected_changes.get(row_id), actual_changes.get(row_id)
    if row_id in expected_changes and row_id in actual_changes and one is not None and other is not None:
        columns = ", ".join(column for column in one if one[column] != other[column])
        return f"{row_id} differs in {columns}"
    negation, row = ("", one) if row_id in expected_changes else (" not", other)
    verb = "deleted" if row is None else "changed" if row_id in sheet.table.rows else "added"
    return f"{row_id} should{negation} have been {verb}"


def _take_added(sheet: Sheet, changes: Changes) -> Counter[tuple[str, ...]]:
    """Remove the added rows from the changes, and return them without their ids."""
    added = [row_id for row_id in changes if row_id not in sheet.table.rows]
    rows = [changes.pop(row_id) or {} for row_id in added]
    return Counter(tuple(row[column] for column in sheet.table.columns[1:]) for row in rows)


def _bag_differences(
    sheet: Sheet, expected_changes: Counter[tuple[str, ...]], actual_changes: Counter[tuple[str, ...]]
) -> Iterator[str]:
    def format_row(row: tuple[str, ...]) -> str:
        return ", ".join(f"{column} {text[:60]!r}" for column, text in zip(sheet.table.columns[1:], row, strict=True))

    for row in (expected_changes - actual_changes).elements():
        yield f"should have been added: {format_row(row)}"
    for row in (actual_changes - expected_changes).elements():
        yield f"should not have been added: {format_row(row)}"
