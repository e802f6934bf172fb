"""What templates are made of: the office and chance, a request, and the calls of a reference."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from typing import Final

from gymnast.hub.resources_servers.workplace_assistant.premises import Premises
from gymnast.hub.resources_servers.workplace_assistant.tables import Row, Table

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
    """A call of the reference."""

    name: str
    arguments: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Request:
    """What is asked, and what is to be done."""

    text: str
    category: str
    calls: Sequence[Call]


class Asker:
    """Chance and the office, with the questions that templates ask of them."""

    def __init__(self, chance: random.Random, premises: Premises) -> None:
        self.chance = chance
        self.premises = premises
        self.tables = premises.tables
        self.today = date.fromisoformat(premises.now[:10])

    def pick(self, choices: Iterable[str]) -> str:
        return self.chance.choice(sorted(set(choices)))

    def row(self, table: Table, test: Callable[[Row], bool] = lambda _: True) -> Row:
        return self.chance.choice([row for row in table.rows.values() if test(row)])

    def rows(self, table: Table, **values: str) -> list[Row]:
        return [row for row in table.rows.values() if all(row[name] == text for name, text in values.items())]

    def lone_row(self, table: Table, column: str, test: Callable[[Row], bool] = lambda _: True) -> Row:
        """A row that a value of one column is enough to name."""
        counts = Counter(row[column].lower() for row in table.rows.values())
        return self.row(table, lambda row: counts[row[column].lower()] == 1 and test(row))

    def colleague(self, *others: str) -> str:
        return self.pick(address for address in self.tables.addresses if address not in others)

    def holder(self, table: Table, *others: str) -> str:
        """Somebody who has rows of a table."""
        return self.pick(
            row["assigned_to_email"] for row in table.rows.values() if row["assigned_to_email"] not in others
        )

    def day(self, first: int, last: int) -> str:
        """A working day between two distances from today."""
        days = [self.today + timedelta(days=offset) for offset in range(first, last + 1)]
        return f"{self.chance.choice([day for day in days if day.weekday() < 5])}"

    def time(self) -> str:
        return f"{self.chance.randint(9, 16):02d}:{self.chance.choice(('00', '30'))}"

    def mail(self) -> tuple[str, str]:
        """A subject and a text."""
        return self.chance.choice(_MAILS)


def name_of(address: str) -> str:
    """`ada.mori@x` as Ada Mori."""
    return address.split("@", maxsplit=1)[0].replace(".", " ").title()


def mail_call(person: str, subject: str, body: str) -> Call:
    """Send an e-mail."""
    return Call("email_send_email", {"recipient": person, "subject": subject, "body": body})


def event_call(name: str, person: str, start: str, length: str) -> Call:
    """Create an event."""
    given = {"event_name": name, "participant_email": person, "event_start": start, "duration": length}
    return Call("calendar_create_event", given)


def event_update(row: Row, field: str, value: str) -> Call:
    """Change an event."""
    return Call("calendar_update_event", {"event_id": row["event_id"], "field": field, "new_value": value})


def plot_call(first: str, last: str, value: str, kind: str) -> Call:
    """Make a plot."""
    given = {"time_min": first, "time_max": last, "value_to_plot": value, "plot_type": kind}
    return Call("analytics_create_plot", given)


def task_call(name: str, person: str, list_name: str, due: str, board: str) -> Call:
    """Create a task."""
    given = {"task_name": name, "assigned_to_email": person, "list_name": list_name, "due_date": due, "board": board}
    return Call("project_management_create_task", given)


def task_update(row: Row, field: str, value: str) -> Call:
    """Change a task."""
    return Call("project_management_update_task", {"task_id": row["task_id"], "field": field, "new_value": value})


def customer_update(row: Row, field: str, value: str) -> Call:
    """Change a customer."""
    given = {"customer_id": row["customer_id"], "field": field, "new_value": value}
    return Call("customer_relationship_manager_update_customer", given)
