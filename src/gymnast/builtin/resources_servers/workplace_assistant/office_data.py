"""The data that all sessions of an office share: its tables, and the names of lists, boards, statuses and products."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from gymnast.builtin.resources_servers.workplace_assistant.tables import OfficeTables, Row, Table

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

    def known(usual: Sequence[str], table: Table, column: str) -> Sequence[str]:
        return tuple(dict.fromkeys((*usual, *tables.values(table, column))))

    assignees = (
        *tables.values(tables.tasks, "assigned_to_email"),
        *tables.values(tables.customers, "assigned_to_email"),
    )
    return OfficeData(
        tables=tables,
        now=now,
        lists=known(LISTS, tables.tasks, "list_name"),
        boards=known(BOARDS, tables.tasks, "board"),
        statuses=known(STATUSES, tables.customers, "status"),
        products=known(PRODUCTS, tables.customers, "product_interest"),
        sources=tuple(sorted({*SOURCES, *(row["traffic_source"] for row in tables.visits)})),
        colleagues=frozenset(address.lower() for address in (*tables.addresses, *assignees)),
        email_texts={row_id: email_text(row) for row_id, row in tables.emails.rows.items()},
    )


def email_text(row: Row) -> str:
    """The searchable text of an e-mail: sender or recipient, subject and body, in lower case."""
    return f"{row['sender/recipient']} {row['subject']} {row['body']}".lower()
