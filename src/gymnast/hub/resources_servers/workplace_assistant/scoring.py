"""The score: replay the model's calls and the reference calls on fresh tables, and compare what they leave.

Only state counts. Reading changes nothing and costs nothing; a call that was refused leaves nothing; one change too
many is as wrong as one too few.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain, islice
from typing import Any, Final

from gymnast.hub.resources_servers.workplace_assistant.office import Office
from gymnast.hub.resources_servers.workplace_assistant.premises import Premises
from gymnast.hub.resources_servers.workplace_assistant.tables import Row, Sheet
from gymnast.hub.resources_servers.workplace_assistant.toolbox import CHANGING, clean_arguments
from gymnast.kit.tools import Tool, ToolError

Call = tuple[str, Any]
"""A tool's name and its arguments; None where the model's JSON could not be read."""

Changes = dict[str, Row | None]
"""What differs from the shared table, by id; None where a row is gone."""

_MOST_TOLD: Final = 8
"""Differences that are put into words, by table."""
_BREATH: Final = 200
"""Calls after which a replay lets others run: a model may repeat itself ten thousand times."""


@dataclass(frozen=True, slots=True)
class Replayed:
    """The office after some calls, and what was refused on the way: (position of the call, why)."""

    office: Office
    refused: list[tuple[int, str]]


async def replay(tools: Mapping[str, Tool], calls: Iterable[Call], premises: Premises) -> Replayed:
    """Make the calls that change something, in order, in an office that nobody has worked in."""
    office, refused = Office(premises), []
    for position, (name, arguments) in enumerate(calls):
        if position % _BREATH == _BREATH - 1:
            await asyncio.sleep(0)
        if name not in CHANGING:
            continue
        try:
            given = clean_arguments(tools[name], arguments)
            await tools[name].function(session=office, **given)
        except ToolError as error:
            refused.append((position, f"{name}: {error}"))
    return Replayed(office, refused)


def differences(expected: Office, found: Office, *, any_order: bool) -> dict[str, list[str]]:
    """By table, the first rows that are not as they should be. Nothing where the two offices are alike.

    `any_order`: rows that were added may have come in another order, and so have other ids.
    """
    compared = {
        name: _sheet_differences(sheet, found.sheets[name], any_order=any_order)
        for name, sheet in expected.sheets.items()
    }
    return {name: texts for name, texts in compared.items() if texts}


def _sheet_differences(expected: Sheet, found: Sheet, *, any_order: bool) -> list[str]:
    wanted, got = expected.changes(), found.changes()
    if wanted == got:
        return []
    bags: Iterable[str] = ()
    if any_order:
        bags = _bag_differences(expected, _take_added(expected, wanted), _take_added(found, got))
    ids = sorted(row_id for row_id in wanted.keys() | got.keys() if _differ(row_id, wanted, got))
    rows = (_row_difference(expected, row_id, wanted, got) for row_id in ids)
    return list(islice(chain(bags, rows), _MOST_TOLD))


def _differ(row_id: str, wanted: Changes, got: Changes) -> bool:
    return (row_id in wanted) != (row_id in got) or wanted[row_id] != got[row_id]


def _row_difference(sheet: Sheet, row_id: str, wanted: Changes, got: Changes) -> str:
    """What is wrong with a row, in words."""
    one, other = wanted.get(row_id), got.get(row_id)
    if row_id in wanted and row_id in got and one is not None and other is not None:
        columns = ", ".join(column for column in one if one[column] != other[column])
        return f"{row_id} differs in {columns}"
    negation, row = ("", one) if row_id in wanted else (" not", other)
    verb = "deleted" if row is None else "changed" if row_id in sheet.table.rows else "added"
    return f"{row_id} should{negation} have been {verb}"


def _take_added(sheet: Sheet, changes: Changes) -> Counter[tuple[str, ...]]:
    """The added rows without their ids, taken out of the changes."""
    added = [row_id for row_id in changes if row_id not in sheet.table.rows]
    rows = [changes.pop(row_id) or {} for row_id in added]
    return Counter(tuple(row[column] for column in sheet.table.columns[1:]) for row in rows)


def _bag_differences(sheet: Sheet, wanted: Counter[tuple[str, ...]], got: Counter[tuple[str, ...]]) -> Iterator[str]:
    def told(row: tuple[str, ...]) -> str:
        return ", ".join(f"{column} {text[:60]!r}" for column, text in zip(sheet.table.columns[1:], row, strict=True))

    for row in (wanted - got).elements():
        yield f"should have been added: {told(row)}"
    for row in (got - wanted).elements():
        yield f"should not have been added: {told(row)}"
