"""Writes the tables of an invented office. The same seed gives the same office.

python -m gymnast.hub.resources_servers.workplace_assistant.make_tables --seed 1 --out my_office
"""

from __future__ import annotations

import argparse
import csv
import io
import random
from collections.abc import Iterable, Mapping, Sequence
from datetime import date, datetime, timedelta
from pathlib import Path
from typing import Final

from gymnast.hub.resources_servers.workplace_assistant import vocabulary as words
from gymnast.hub.resources_servers.workplace_assistant.premises import BOARDS, LISTS, PRODUCTS, SOURCES, STATUSES
from gymnast.hub.resources_servers.workplace_assistant.tables import (
    CUSTOMER_COLUMNS,
    EMAIL_COLUMNS,
    EVENT_COLUMNS,
    TASK_COLUMNS,
    VISIT_COLUMNS,
)

SHIPPED_SEED: Final = 14
TODAY: Final = date(2025, 3, 14)
EMAILS, TASKS, CUSTOMERS = 480, 300, 200
_DEVELOPERS, _SELLERS = 10, 6

Values = Sequence[str]


def make_tables(seed: int) -> Mapping[str, str]:
    """The CSV files of an office, by name."""
    chance = random.Random(f"workplace_assistant/{seed}")  # noqa: S311 - an invented office, no secrets
    people = _people(chance)
    developers, sellers = people[:_DEVELOPERS], people[_DEVELOPERS : _DEVELOPERS + _SELLERS]
    return {
        "email_addresses.csv": _csv(["email_address"], ([address] for address in people)),
        "emails.csv": _csv(EMAIL_COLUMNS, _numbered(_emails(chance, people))),
        "calendar_events.csv": _csv(EVENT_COLUMNS, _numbered(_events(chance, people))),
        "analytics_data.csv": _csv(VISIT_COLUMNS, _visits(chance)),
        "project_tasks.csv": _csv(TASK_COLUMNS, _numbered(_tasks(chance, developers))),
        "customer_relationship_manager_data.csv": _csv(CUSTOMER_COLUMNS, _numbered(_customers(chance, sellers))),
    }


def _people(chance: random.Random) -> list[str]:
    lasts = chance.sample(words.LAST_NAMES, len(words.LAST_NAMES))
    names = zip(words.FIRST_NAMES, lasts, strict=True)
    people = [f"{first}.{last}@{words.DOMAIN}".lower() for first, last in names]
    chance.shuffle(people)
    return people


def _emails(chance: random.Random, people: Sequence[str]) -> list[Values]:
    moments = sorted(_working_moment(chance, chance.randrange(1, 61)) for _ in range(EMAILS))
    return [_email(chance, chance.choice(people), moment) for moment in moments]


def _email(chance: random.Random, person: str, moment: datetime) -> Values:
    topic = chance.choice(words.TOPICS)
    first = person.split(".", maxsplit=1)[0].title()
    box = chance.choices(["inbox", "outbox"], [3, 1])[0]
    parts = [
        f"Hi {first}," if box == "outbox" else "Hello,",
        chance.choice(words.OPENINGS).format(topic=topic),
        chance.choice(words.MIDDLES),
        chance.choice(words.CLOSINGS),
        "Robin" if box == "outbox" else first,
    ]
    return box, person, chance.choice(words.SUBJECTS).format(topic=topic), f"{moment}", "\n".join(parts)


def _events(chance: random.Random, people: Sequence[str]) -> list[Values]:
    """A calendar without overlaps: every working day is walked through from nine o'clock."""
    events: list[Values] = []
    for offset in range(-39, 29):
        day = TODAY + timedelta(days=offset)
        at = datetime(day.year, day.month, day.day, 9)  # noqa: DTZ001 - the office's own clock
        while day.weekday() < 5 and at.hour < 17:
            length = chance.choice((30, 30, 60, 60, 90))
            if chance.random() < 0.62:
                events.append((chance.choice(words.EVENTS), chance.choice(people), f"{at}", str(length)))
            at += timedelta(minutes=length)
    return events


def _visits(chance: random.Random) -> list[Values]:
    visits: list[Values] = []
    visitors: list[str] = [str(number) for number in chance.sample(range(1000, 10_000), 2000)]
    returning: list[str] = []
    for offset in range(-72, 0):
        for _ in range(chance.randint(3, 13)):
            again = returning and chance.random() < 0.12
            visitor = chance.choice(returning) if again else visitors.pop()
            returning.append(visitor)
            pages = chance.randint(1, 15)
            seconds = pages * chance.randint(4, 40)
            source = chance.choices(SOURCES, [3, 2, 4, 2])[0]
            engaged = pages >= 4 and seconds >= 60 and chance.random() < 0.8
            visits.append(
                (f"{TODAY + timedelta(days=offset)}", visitor, str(pages), str(seconds), source, str(engaged))
            )
    return visits


def _tasks(chance: random.Random, developers: Sequence[str]) -> list[Values]:
    things = [(thing, board) for board in BOARDS for thing in words.TASK_THINGS[board]]
    names = [(f"{verb} {thing}", board) for thing, board in things for verb in words.TASK_VERBS]
    found = chance.sample(names, TASKS)
    return [_task(chance, name, board, chance.choice(developers)) for name, board in found]


def _task(chance: random.Random, name: str, board: str, person: str) -> Values:
    list_name = chance.choices(LISTS, [4, 3, 2, 3])[0]
    # Most of what is open is due in the future, so that few tasks are overdue.
    days = chance.randint(-45, 0) if list_name == "Completed" else chance.randint(-6, 30)
    return name, person, list_name, f"{_weekday(TODAY + timedelta(days=days))}", board


def _customers(chance: random.Random, sellers: Sequence[str]) -> list[Values]:
    names = [(first, last) for first in words.CUSTOMER_FIRST for last in words.CUSTOMER_LAST]
    found = chance.sample(names, CUSTOMERS)
    return [_customer(chance, first, last, chance.choice(sellers)) for first, last in found]


def _customer(chance: random.Random, first: str, last: str, seller: str) -> Values:
    contact = _weekday(TODAY - timedelta(days=chance.randint(1, 120)))
    follow_up = _weekday(TODAY + timedelta(days=chance.randint(-10, 40)))
    return (
        seller,
        f"{first} {last}",
        f"{first}.{last}@{chance.choice(words.CUSTOMER_DOMAINS)}".lower(),
        f"555-{chance.randrange(100, 1000)}-{chance.randrange(10_000):04d}",
        f"{contact}",
        chance.choice(PRODUCTS),
        chance.choices(STATUSES, [4, 3, 2, 2, 2])[0],
        f"{follow_up}",
        chance.choice(words.NOTES),
    )


def _working_moment(chance: random.Random, days_ago: int) -> datetime:
    day = _weekday(TODAY - timedelta(days=days_ago))
    start = datetime(day.year, day.month, day.day, 8)  # noqa: DTZ001 - the office's own clock
    return start + timedelta(seconds=chance.randrange(10 * 3600))


def _weekday(day: date) -> date:
    return day - timedelta(days=max(0, day.weekday() - 4))


def _numbered(rows: Iterable[Values]) -> list[Values]:
    return [(f"{number:08d}", *row) for number, row in enumerate(rows, start=1)]


def _csv(columns: Sequence[str], rows: Iterable[Values]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(rows)
    return text.getvalue()


def main(arguments: Sequence[str] | None = None) -> None:
    """The command: write the tables into a folder."""
    parser = argparse.ArgumentParser(description="Write the tables of an invented office.")
    parser.add_argument("--seed", type=int, default=SHIPPED_SEED)
    parser.add_argument("--out", type=Path, required=True, help="folder for the CSV files")
    asked = parser.parse_args(arguments)
    asked.out.mkdir(parents=True, exist_ok=True)
    for name, text in make_tables(asked.seed).items():
        (asked.out / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
