"""Writes the tables of a fictional office. The same seed gives the same office.

python -m gymnast.builtin.resources_servers.workplace_assistant.make_tables --seed 1 --out my_office
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

import yaml

from .tables import (
    BOARDS,
    CUSTOMER_COLUMNS,
    EMAIL_COLUMNS,
    EVENT_COLUMNS,
    LISTS,
    PRODUCTS,
    SOURCES,
    STATUSES,
    TASK_COLUMNS,
    VISIT_COLUMNS,
)

_WORDS: Final = yaml.safe_load(Path(__file__).with_name("vocabulary.yaml").read_text(encoding="utf-8"))
SHIPPED_SEED: Final = 14
TODAY: Final = date(2025, 3, 14)
EMAILS, TASKS, CUSTOMERS = 480, 300, 200
_DEVELOPERS, _SELLERS = 10, 6

Values = Sequence[str]


def make_tables(seed: int) -> Mapping[str, str]:
    """The CSV files of an office, by name."""
    rng = random.Random(f"workplace_assistant/{seed}")  # noqa: S311 - a fictional office, not secrets
    people = _people(rng)
    developers, sellers = people[:_DEVELOPERS], people[_DEVELOPERS : _DEVELOPERS + _SELLERS]
    return {
        "email_addresses.csv": _csv(["email_address"], ([address] for address in people)),
        "emails.csv": _csv(EMAIL_COLUMNS, _with_ids(_emails(rng, people))),
        "calendar_events.csv": _csv(EVENT_COLUMNS, _with_ids(_events(rng, people))),
        "analytics_data.csv": _csv(VISIT_COLUMNS, _visits(rng)),
        "project_tasks.csv": _csv(TASK_COLUMNS, _with_ids(_tasks(rng, developers))),
        "customer_relationship_manager_data.csv": _csv(CUSTOMER_COLUMNS, _with_ids(_customers(rng, sellers))),
    }


def _people(rng: random.Random) -> list[str]:
    lasts = rng.sample(_WORDS["last_names"], len(_WORDS["last_names"]))
    names = zip(_WORDS["first_names"], lasts, strict=True)
    people = [f"{first}.{last}@{_WORDS['domain']}".lower() for first, last in names]
    rng.shuffle(people)
    return people


def _emails(rng: random.Random, people: Sequence[str]) -> list[Values]:
    moments = sorted(_working_moment(rng, rng.randrange(1, 61)) for _ in range(EMAILS))
    return [_email(rng, rng.choice(people), moment) for moment in moments]


def _email(rng: random.Random, person: str, moment: datetime) -> Values:
    topic = rng.choice(_WORDS["topics"])
    first = person.split(".", maxsplit=1)[0].title()
    box = rng.choices(["inbox", "outbox"], [3, 1])[0]
    parts = [
        f"Hi {first}," if box == "outbox" else "Hello,",
        rng.choice(_WORDS["openings"]).format(topic=topic),
        rng.choice(_WORDS["middles"]),
        rng.choice(_WORDS["closings"]),
        "Robin" if box == "outbox" else first,
    ]
    return box, person, rng.choice(_WORDS["subjects"]).format(topic=topic), f"{moment}", "\n".join(parts)


def _events(rng: random.Random, people: Sequence[str]) -> list[Values]:
    """A calendar without overlaps: every working day is filled from nine o'clock."""
    events: list[Values] = []
    for offset in range(-39, 29):
        day = TODAY + timedelta(days=offset)
        at = datetime(day.year, day.month, day.day, 9)  # noqa: DTZ001 - the office's local time
        while day.weekday() < 5 and at.hour < 17:
            length = rng.choice((30, 30, 60, 60, 90))
            if rng.random() < 0.62:
                events.append((rng.choice(_WORDS["events"]), rng.choice(people), f"{at}", str(length)))
            at += timedelta(minutes=length)
    return events


def _visits(rng: random.Random) -> list[Values]:
    visits: list[Values] = []
    visitors: list[str] = [str(number) for number in rng.sample(range(1000, 10_000), 2000)]
    returning: list[str] = []
    for offset in range(-72, 0):
        for _ in range(rng.randint(3, 13)):
            again = returning and rng.random() < 0.12
            visitor = rng.choice(returning) if again else visitors.pop()
            returning.append(visitor)
            pages = rng.randint(1, 15)
            seconds = pages * rng.randint(4, 40)
            source = rng.choices(SOURCES, [3, 2, 4, 2])[0]
            engaged = pages >= 4 and seconds >= 60 and rng.random() < 0.8
            visits.append(
                (f"{TODAY + timedelta(days=offset)}", visitor, str(pages), str(seconds), source, str(engaged))
            )
    return visits


def _tasks(rng: random.Random, developers: Sequence[str]) -> list[Values]:
    things = [(thing, board) for board in BOARDS for thing in _WORDS["task_things"][board]]
    names = [(f"{verb} {thing}", board) for thing, board in things for verb in _WORDS["task_verbs"]]
    sample = rng.sample(names, TASKS)
    return [_task(rng, name, board, rng.choice(developers)) for name, board in sample]


def _task(rng: random.Random, name: str, board: str, person: str) -> Values:
    list_name = rng.choices(LISTS, [4, 3, 2, 3])[0]
    # Most open tasks are due in the future, so that few are overdue.
    days = rng.randint(-45, 0) if list_name == "Completed" else rng.randint(-6, 30)
    return name, person, list_name, f"{_weekday(TODAY + timedelta(days=days))}", board


def _customers(rng: random.Random, sellers: Sequence[str]) -> list[Values]:
    names = [(first, last) for first in _WORDS["customer_first"] for last in _WORDS["customer_last"]]
    sample = rng.sample(names, CUSTOMERS)
    return [_customer(rng, first, last, rng.choice(sellers)) for first, last in sample]


def _customer(rng: random.Random, first: str, last: str, seller: str) -> Values:
    contact = _weekday(TODAY - timedelta(days=rng.randint(1, 120)))
    follow_up = _weekday(TODAY + timedelta(days=rng.randint(-10, 40)))
    return (
        seller,
        f"{first} {last}",
        f"{first}.{last}@{rng.choice(_WORDS['customer_domains'])}".lower(),
        f"555-{rng.randrange(100, 1000)}-{rng.randrange(10_000):04d}",
        f"{contact}",
        rng.choice(PRODUCTS),
        rng.choices(STATUSES, [4, 3, 2, 2, 2])[0],
        f"{follow_up}",
        rng.choice(_WORDS["notes"]),
    )


def _working_moment(rng: random.Random, days_ago: int) -> datetime:
    day = _weekday(TODAY - timedelta(days=days_ago))
    start = datetime(day.year, day.month, day.day, 8)  # noqa: DTZ001 - the office's local time
    return start + timedelta(seconds=rng.randrange(10 * 3600))


def _weekday(day: date) -> date:
    return day - timedelta(days=max(0, day.weekday() - 4))


def _with_ids(rows: Iterable[Values]) -> list[Values]:
    return [(f"{number:08d}", *row) for number, row in enumerate(rows, start=1)]


def _csv(columns: Sequence[str], rows: Iterable[Values]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(rows)
    return text.getvalue()


def main(arguments: Sequence[str] | None = None) -> None:
    """The command: writes the tables into a folder."""
    parser = argparse.ArgumentParser(description="Write the tables of a fictional office.")
    parser.add_argument("--seed", type=int, default=SHIPPED_SEED)
    parser.add_argument("--out", type=Path, required=True, help="folder for the CSV files")
    options = parser.parse_args(arguments)
    options.out.mkdir(parents=True, exist_ok=True)
    for name, text in make_tables(options.seed).items():
        (options.out / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
