"""The office of a session: its view of every table, and functions with which tools read and change it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from gymnast.kit import ToolError

from .checks import Check
from .tables import PLOT_COLUMNS, OfficeData, Row, Sheet, Table

_NO_PLOTS: Final = Table("plots", PLOT_COLUMNS, {})
_MAX_PAGE_SIZE: Final = 50


class Office:
    """The tables of one rollout."""

    __slots__ = ("customers", "emails", "events", "office_data", "plots", "tasks")

    def __init__(self, office_data: OfficeData) -> None:
        tables = office_data.tables
        self.office_data = office_data
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


def validate(office: Office, checks: Mapping[str, Check], values: Mapping[str, str]) -> Row:
    """Check the values; the first problem is a ToolError that the model can act on."""
    for name, text in values.items():
        problem = checks[name](office.office_data, text)
        if problem is not None:
            raise ToolError(f"{name} {problem}")
    return values


def require(sheet: Sheet, row_id: str, what: str) -> Row:
    """The row with an id, or an error for the model."""
    row = sheet.get(row_id)
    if row is None:
        raise ToolError(f"There is no {what} with the id '{row_id}'. Search for it first; ids are texts of 8 digits.")
    return row


def read_field(row: Row, field: str) -> dict[str, str]:
    if field not in row:
        raise ToolError(f"There is no field '{field}'. Fields: {', '.join(row)}.")
    return {field: row[field]}


def change(office: Office, sheet: Sheet, row: Row, checks: Mapping[str, Check], field: str, new_value: str) -> None:
    """Set one field of a row to a value that passes the field's check."""
    if field not in checks:
        raise ToolError(f"The field '{field}' cannot be changed. Fields that can: {', '.join(checks)}.")
    validate(office, checks, {field: new_value})
    sheet.update(row, field, new_value)


def within(value: str, low: str, high: str) -> bool:
    """Whether a date or time is between two others, inclusive; a date as a bound means the whole day."""
    if not value:
        return not (low or high)
    return value[: len(low)] >= low[: len(value)] and (not high or value[: len(high)] <= high[: len(value)])


def has_words(query: str, *texts: str) -> bool:
    """Whether the texts contain every word of a query, ignoring case."""
    haystack = " ".join(texts).lower()
    return all(word in haystack for word in query.lower().split())


def make_page(name: str, matches: Sequence[Row], page: int, page_size: int) -> dict[str, Any]:
    """A page of search results, with totals."""
    if page < 1 or not 1 <= page_size <= _MAX_PAGE_SIZE:
        raise ToolError(f"page must be 1 or more, page_size 1 to {_MAX_PAGE_SIZE}.")
    pages = -(-len(matches) // page_size)
    first = (page - 1) * page_size
    return {name: list(matches[first : first + page_size]), "page": page, "pages": pages, "total": len(matches)}
