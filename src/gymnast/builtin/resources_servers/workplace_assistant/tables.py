"""The tables of the office: read once from CSV files and shared, with the changes of each session on top.

A session costs nothing until it changes something: rows are never copied, only replaced.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from gymnast.kit import DataError

Row = Mapping[str, str]

CASE_SENSITIVE: Final = frozenset({"status", "list_name", "board"})
"""Columns compared with case; in all others `Ann@X` equals `ann@x`."""

EMAIL_COLUMNS: Final = ("email_id", "inbox/outbox", "sender/recipient", "subject", "sent_datetime", "body")
EVENT_COLUMNS: Final = ("event_id", "event_name", "participant_email", "event_start", "duration")
TASK_COLUMNS: Final = ("task_id", "task_name", "assigned_to_email", "list_name", "due_date", "board")
CUSTOMER_COLUMNS: Final = (
    *("customer_id", "assigned_to_email", "customer_name", "customer_email", "customer_phone", "last_contact_date"),
    *("product_interest", "status", "follow_up_by", "notes"),
)
VISIT_COLUMNS: Final = (
    *("date_of_visit", "visitor_id", "page_views", "session_duration_seconds", "traffic_source", "user_engaged"),
)
PLOT_COLUMNS: Final = ("plot_id", "file_path")


@dataclass(frozen=True, slots=True)
class Table:
    """Rows by id, in the order of their file. The first column is the id."""

    name: str
    columns: Sequence[str]
    rows: Mapping[str, Row]

    @property
    def key(self) -> str:
        return self.columns[0]

    @property
    def last_id(self) -> int:
        return max(map(int, self.rows), default=0)


class Sheet:
    """A table as one session sees it."""

    __slots__ = ("_changed", "_last_id", "table")

    def __init__(self, table: Table, last_id: int) -> None:
        self.table = table
        self._last_id = last_id
        self._changed: dict[str, Row | None] = {}

    def get(self, row_id: str) -> Row | None:
        """The row with an id."""
        return self._changed[row_id] if row_id in self._changed else self.table.rows.get(row_id)

    def __iter__(self) -> Iterator[Row]:
        for row_id, row in self.table.rows.items():
            now = self._changed.get(row_id, row)
            if now is not None:
                yield now
        for row_id, added in self._changed.items():
            if added is not None and row_id not in self.table.rows:
                yield added

    def add(self, values: Row) -> str:
        """Append a row. Its id is one above the highest ever used, so that it depends on the calls alone."""
        self._last_id += 1
        row_id = f"{self._last_id:08d}"
        self._changed[row_id] = {self.table.key: row_id, **values}
        return row_id

    def update(self, row: Row, column: str, value: str) -> None:
        """Replace a value of a row."""
        self._changed[row[self.table.key]] = {**row, column: value}

    def delete(self, row: Row) -> None:
        """Remove a row."""
        self._changed[row[self.table.key]] = None

    def changes(self) -> dict[str, Row | None]:
        """The differences from the table, by id, normalized for comparison; None for a deleted row."""
        changed: dict[str, Row | None] = {}
        for row_id, row in self._changed.items():
            was, now = _comparable(self.table.rows.get(row_id)), _comparable(row)
            if was != now:
                changed[row_id] = now
        return changed


@dataclass(frozen=True, slots=True)
class OfficeTables:
    """All tables of an office in their initial state."""

    emails: Table
    events: Table
    tasks: Table
    customers: Table
    visits: Sequence[Row]
    addresses: Sequence[str]
    last_ids: Mapping[str, int]

    def values(self, table: Table, column: str) -> list[str]:
        """The distinct values of a column, in order of appearance."""
        return list(dict.fromkeys(row[column] for row in table.rows.values() if row[column]))


def is_nemo_gym_folder(folder: Path) -> bool:
    """Whether a folder has NeMo Gym's layout: tables below `processed`, addresses below `raw`."""
    return (folder / "processed").is_dir() and not (folder / "emails.csv").is_file()


def load_tables(folder: Path) -> OfficeTables:
    """Read the five tables and the company's addresses. Raises DataError for a missing file or column."""
    addresses = folder / "email_addresses.csv"
    if is_nemo_gym_folder(folder):
        folder, addresses = folder / "processed", folder / "raw" / addresses.name
    emails = _table(folder / "emails.csv", EMAIL_COLUMNS)
    events = _table(folder / "calendar_events.csv", EVENT_COLUMNS)
    tasks = _table(folder / "project_tasks.csv", TASK_COLUMNS)
    customers = _table(folder / "customer_relationship_manager_data.csv", CUSTOMER_COLUMNS)
    return OfficeTables(
        emails=emails,
        events=events,
        tasks=tasks,
        customers=customers,
        visits=tuple(_read(folder / "analytics_data.csv", VISIT_COLUMNS)),
        addresses=_addresses(addresses),
        last_ids={table.name: table.last_id for table in (emails, events, tasks, customers)},
    )


def _table(path: Path, columns: Sequence[str]) -> Table:
    rows: dict[str, Row] = {}
    for row in _read(path, columns):
        row_id = row[columns[0]]
        if not row_id.isdecimal() or row_id in rows:
            raise DataError(
                f"{columns[0]} '{row_id}' is {'a duplicate' if row_id in rows else 'not a number'}",
                where=str(path),
                next="ids must be distinct integers, usually of eight digits",
            )
        rows[row_id] = row
    return Table(path.stem, columns, rows)


def _read(path: Path, columns: Sequence[str]) -> Iterator[Row]:
    if not path.is_file():
        raise DataError(
            f"the table {path.name} is missing",
            where=str(path.parent),
            next=f"add it with the columns {', '.join(columns)}, or leave data_dir out to use the built-in tables",
        )
    with path.open(newline="", encoding="utf-8-sig") as file:
        reader = csv.DictReader(file, restval="")
        missing = [column for column in columns if column not in (reader.fieldnames or ())]
        if missing:
            raise DataError(
                f"missing columns: {', '.join(missing)}", where=str(path), next=f"columns: {', '.join(columns)}"
            )
        for row in reader:
            yield {column: row[column] for column in columns}


def _addresses(path: Path) -> Sequence[str]:
    """Read one address per line, with or without a header. Without the file the directory is empty."""
    if not path.is_file():
        return ()
    with path.open(newline="", encoding="utf-8-sig") as file:
        return tuple(cell.strip() for line in csv.reader(file) for cell in line if "@" in cell)


def _comparable(row: Row | None) -> Row | None:
    if row is None:
        return None
    return {column: value if column in CASE_SENSITIVE else value.lower() for column, value in row.items()}


LISTS: Final = ("Backlog", "In Progress", "In Review", "Completed")
BOARDS: Final = ("Back end", "Front end", "Design")
STATUSES: Final = ("Lead", "Qualified", "Proposal", "Won", "Lost")
PRODUCTS: Final = ("Software", "Hardware", "Services", "Consulting", "Training")
SOURCES: Final = ("direct", "referral", "search engine", "social media")


@dataclass(frozen=True, slots=True)
class OfficeData:
    """The data that all sessions share: the tables, the values they allow, and the current time."""

    tables: OfficeTables
    now: str
    lists: Sequence[str]
    boards: Sequence[str]
    statuses: Sequence[str]
    products: Sequence[str]
    sources: Sequence[str]
    colleagues: frozenset[str]
    email_texts: Mapping[str, str]
    """The searchable texts by id, precomputed because e-mails are many and long and never change."""


def make_office_data(tables: OfficeTables, now: str) -> OfficeData:
    """Collect the default names of lists, boards, statuses and products, and further ones that the tables use."""

    def list_values(usual: Sequence[str], table: Table, column: str) -> Sequence[str]:
        return tuple(dict.fromkeys((*usual, *tables.values(table, column))))

    assignees = (
        *tables.values(tables.tasks, "assigned_to_email"),
        *tables.values(tables.customers, "assigned_to_email"),
    )
    return OfficeData(
        tables=tables,
        now=now,
        lists=list_values(LISTS, tables.tasks, "list_name"),
        boards=list_values(BOARDS, tables.tasks, "board"),
        statuses=list_values(STATUSES, tables.customers, "status"),
        products=list_values(PRODUCTS, tables.customers, "product_interest"),
        sources=tuple(sorted({*SOURCES, *(row["traffic_source"] for row in tables.visits)})),
        colleagues=frozenset(address.lower() for address in (*tables.addresses, *assignees)),
        email_texts={row_id: email_text(row) for row_id, row in tables.emails.rows.items()},
    )


def email_text(row: Row) -> str:
    """The searchable text of an e-mail: sender or recipient, subject and body, in lower case."""
    return f"{row['sender/recipient']} {row['subject']} {row['body']}".lower()
