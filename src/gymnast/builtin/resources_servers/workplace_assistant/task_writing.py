"""Building blocks of task templates: the office and a random generator, a request, and reference calls."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from typing import Final

from .tables import OfficeData, Row, Table

_MAILS: Final = (
    ("Room change", "We meet on the second floor today."),
    ("Slides", "Could you send me the slides of last week?"),
    ("Thank you", "Thank you for your help with the report."),
    ("Short question", "Who looks after the printer on our floor?"),
    ("Reminder", "Please remember to fill in your timesheet."),
    ("Plan for April", "Here is the plan for April, as promised."),
    ("Open points", "Please go through the open points before our next meeting."),
    ("Lunch", "Shall we have lunch together on Thursday?"),
)


@dataclass(frozen=True, slots=True)
class Call:
    name: str
    arguments: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Request:
    """A request and the calls that fulfil it."""

    text: str
    category: str
    calls: Sequence[Call]


class TaskWriter:
    """Picks random rows, people and times of an office for templates."""

    def __init__(self, rng: random.Random, office_data: OfficeData) -> None:
        self.rng = rng
        self.office_data = office_data
        self.tables = office_data.tables
        self.today = date.fromisoformat(office_data.now[:10])

    def pick(self, choices: Iterable[str]) -> str:
        return self.rng.choice(sorted(set(choices)))

    def row(self, table: Table, test: Callable[[Row], bool] = lambda _: True) -> Row:
        return self.rng.choice([row for row in table.rows.values() if test(row)])

    def rows(self, table: Table, **values: str) -> list[Row]:
        return [row for row in table.rows.values() if all(row[name] == text for name, text in values.items())]

    def unique_row(self, table: Table, column: str, test: Callable[[Row], bool] = lambda _: True) -> Row:
        """A random row that is uniquely identified by its value in a column."""
        counts = Counter(row[column].lower() for row in table.rows.values())
        return self.row(table, lambda row: counts[row[column].lower()] == 1 and test(row))

    def colleague(self, *others: str) -> str:
        return self.pick(address for address in self.tables.addresses if address not in others)

    def assignee(self, table: Table, *others: str) -> str:
        """A random person who has rows of a table."""
        return self.pick(
            row["assigned_to_email"] for row in table.rows.values() if row["assigned_to_email"] not in others
        )

    def day(self, first: int, last: int) -> str:
        """A random working day between two offsets from today."""
        days = [self.today + timedelta(days=offset) for offset in range(first, last + 1)]
        return f"{self.rng.choice([day for day in days if day.weekday() < 5])}"

    def time(self) -> str:
        return f"{self.rng.randint(9, 16):02d}:{self.rng.choice(('00', '30'))}"

    def mail(self) -> tuple[str, str]:
        """A random subject and body."""
        return self.rng.choice(_MAILS)


def person_name(address: str) -> str:
    """The name behind an address: Ada Mori for `ada.mori@x`."""
    return address.split("@", maxsplit=1)[0].replace(".", " ").title()


def send_email_call(person: str, subject: str, body: str) -> Call:
    """Send an e-mail."""
    return Call("email_send_email", {"recipient": person, "subject": subject, "body": body})


def create_event_call(name: str, person: str, start: str, length: str) -> Call:
    """Create an event."""
    values = {"event_name": name, "participant_email": person, "event_start": start, "duration": length}
    return Call("calendar_create_event", values)


def update_event_call(row: Row, field: str, value: str) -> Call:
    return Call("calendar_update_event", {"event_id": row["event_id"], "field": field, "new_value": value})


def create_plot_call(first: str, last: str, value: str, kind: str) -> Call:
    values = {"time_min": first, "time_max": last, "value_to_plot": value, "plot_type": kind}
    return Call("analytics_create_plot", values)


def create_task_call(name: str, person: str, list_name: str, due: str, board: str) -> Call:
    values = {"task_name": name, "assigned_to_email": person, "list_name": list_name, "due_date": due, "board": board}
    return Call("project_management_create_task", values)


def update_task_call(row: Row, field: str, value: str) -> Call:
    return Call("project_management_update_task", {"task_id": row["task_id"], "field": field, "new_value": value})


def update_customer_call(row: Row, field: str, value: str) -> Call:
    values = {"customer_id": row["customer_id"], "field": field, "new_value": value}
    return Call("customer_relationship_manager_update_customer", values)
