"""One session's office: its view of every table, and how tools read and change it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from gymnast.hub.resources_servers.workplace_assistant.checks import Check
from gymnast.hub.resources_servers.workplace_assistant.premises import Premises
from gymnast.hub.resources_servers.workplace_assistant.tables import PLOT_COLUMNS, Row, Sheet, Table
from gymnast.kit.tools import ToolError

_NO_PLOTS: Final = Table("plots", PLOT_COLUMNS, {})
_LARGEST_PAGE: Final = 50


class Office:
    """What one rollout works on."""

    __slots__ = ("customers", "emails", "events", "plots", "premises", "tasks")

    def __init__(self, premises: Premises) -> None:
        tables = premises.tables
        self.premises = premises
        self.emails = Sheet(tables.emails, tables.last_ids[tables.emails.name])
        self.events = Sheet(tables.events, tables.last_ids[tables.events.name])
        self.tasks = Sheet(tables.tasks, tables.last_ids[tables.tasks.name])
        self.customers = Sheet(tables.customers, tables.last_ids[tables.customers.name])
        self.plots = Sheet(_NO_PLOTS, 0)

    @property
    def sheets(self) -> Mapping[str, Sheet]:
        """The five tables that a score compares."""
        return {
            "emails": self.emails,
            "calendar": self.events,
            "plots": self.plots,
            "project_tasks": self.tasks,
            "customers": self.customers,
        }


def checked(office: Office, checks: Mapping[str, Check], values: Mapping[str, str]) -> Row:
    """The values, each past its check; the first complaint is a ToolError that the model can act on."""
    for name, text in values.items():
        complaint = checks[name](office.premises, text)
        if complaint is not None:
            raise ToolError(f"{name} {complaint}")
    return values


def require(sheet: Sheet, row_id: str, what: str) -> Row:
    """The row under an id, or an error for the model."""
    row = sheet.get(row_id)
    if row is None:
        raise ToolError(f"There is no {what} with the id '{row_id}'. Search for it first; ids are texts of 8 digits.")
    return row


def field_of(row: Row, field: str) -> dict[str, str]:
    """One field of a row."""
    if field not in row:
        raise ToolError(f"There is no field '{field}'. Fields: {', '.join(row)}.")
    return {field: row[field]}


def change(office: Office, sheet: Sheet, row: Row, checks: Mapping[str, Check], field: str, new_value: str) -> None:
    """Set one field of a row to a value that passes the field's check."""
    if field not in checks:
        raise ToolError(f"The field '{field}' cannot be changed. Fields that can: {', '.join(checks)}.")
    checked(office, checks, {field: new_value})
    sheet.update(row, field, new_value)


def within(value: str, low: str, high: str) -> bool:
    """Whether a date or time lies between two, both included; a bound that is a date means the whole day."""
    if not value:
        return not (low or high)
    return value[: len(low)] >= low[: len(value)] and (not high or value[: len(high)] <= high[: len(value)])


def has_words(query: str, *texts: str) -> bool:
    """Whether every word of a query is in the texts, in either case."""
    haystack = " ".join(texts).lower()
    return all(word in haystack for word in query.lower().split())


def page_of(name: str, found: Sequence[Row], page: int, page_size: int) -> dict[str, Any]:
    """One page of what a search found, and how much there is."""
    if page < 1 or not 1 <= page_size <= _LARGEST_PAGE:
        raise ToolError(f"page must be 1 or more, page_size 1 to {_LARGEST_PAGE}.")
    pages = -(-len(found) // page_size)
    first = (page - 1) * page_size
    return {name: list(found[first : first + page_size]), "page": page, "pages": pages, "total": len(found)}
