"""The office with NeMo Gym's rules: its tools by name, calls of them, and whether two offices are equal.

All calls are replayed, and all tables must be equal. A reference stored as text has no calls there, and a call that
cannot be made is skipped.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from gymnast.kit import JsonObject

from .comparison import Comparison, Problem
from .nemo_gym_analytics import AnalyticsTool
from .nemo_gym_calendar import CalendarTool
from .nemo_gym_customers import CustomerRelationshipManagerTool
from .nemo_gym_frame import Cells, Frame, describe, equal
from .nemo_gym_mail import CompanyDirectoryTool, EmailTool
from .nemo_gym_projects import ProjectManagementTool
from .nemo_gym_suggestions import describe_call_error
from .tables import OfficeData, Row, Table
from .toolbox import CHANGING

_YIELD_EVERY: Final = 200
"""Calls after which a replay yields to the event loop."""


@dataclass(frozen=True, slots=True)
class Frames:
    """The tables of the files as frames, shared by all sessions."""

    emails: Frame
    events: Frame
    tasks: Frame
    customers: Frame
    visits: tuple[Cells, ...]
    addresses: tuple[str, ...]
    now: str


def make_frames(office_data: OfficeData) -> Frames:
    """The frames of an office; empty cells are missing values."""
    tables = office_data.tables
    visits = tuple({**_cells(row), "user_engaged": row["user_engaged"] == "True"} for row in tables.visits)
    return Frames(
        emails=_frame(tables.emails),
        events=_frame(tables.events),
        tasks=_frame(tables.tasks),
        customers=_frame(tables.customers),
        visits=visits,
        addresses=tuple(tables.addresses),
        now=office_data.now,
    )


class NeMoGymOffice:
    """The tables of one rollout, and the functions that work on them."""

    def __init__(self, frames: Frames) -> None:
        self.email = EmailTool(frames.emails.copy(), frames.now)
        self.calendar = CalendarTool(frames.events.copy())
        self.analytics = AnalyticsTool(frames.visits)
        self.projects = ProjectManagementTool(frames.tasks.copy())
        self.customers = CustomerRelationshipManagerTool(frames.customers.copy())
        owners = {
            "company_directory": CompanyDirectoryTool(frames.addresses),
            "email": self.email,
            "calendar": self.calendar,
            "analytics": self.analytics,
            "project_management": self.projects,
            "customer_relationship_manager": self.customers,
        }
        self.functions: dict[str, Callable[..., Any]] = {
            f"{prefix}_{name}": getattr(owner, name)
            for prefix, owner in owners.items()
            for name in vars(type(owner))
            if not name.startswith("_")
        }

    def call(self, name: str, arguments: Mapping[str, Any]) -> Any:
        """A tool's reply. An error is a text for the model."""
        given = {key: value for key, value in arguments.items() if value is not None}
        try:
            function = self.functions[name]
        except KeyError as error:
            return f"Error executing tool '{name}': {error}"
        try:
            return function(**given)
        except Exception as error:  # noqa: BLE001 - the model reads every error
            return f"Error executing tool '{name}': {describe_call_error(function, error)}"

    def frames(self) -> dict[str, Frame]:
        """The five tables that a score compares."""
        return {
            "emails": self.email.frame,
            "calendar": self.calendar.frame,
            "plots": self.analytics.plots,
            "project_tasks": self.projects.frame,
            "customers": self.customers.frame,
        }


async def replay_all(frames: Frames, calls: Iterable[tuple[str, str]]) -> tuple[NeMoGymOffice, list[Problem]]:
    """The office after calls, with their arguments as JSON, and the calls that failed."""
    office, failed = NeMoGymOffice(frames), []
    for position, (name, arguments) in enumerate(calls):
        if position % _YIELD_EVERY == _YIELD_EVERY - 1:
            await asyncio.sleep(0)
        if name not in office.functions:
            failed.append((position, f"unknown tool '{name}'"))
        elif name in CHANGING:
            problem = _try(office.functions[name], arguments)
            if problem is not None:
                failed.append((position, f"{name}: {problem}"))
    return office, failed


def _try(function: Callable[..., Any], arguments: str) -> str | None:
    """Make a call; what went wrong, if something did."""
    try:
        reply = function(**json.loads(arguments))
    except Exception as error:  # noqa: BLE001 - a call that fails is passed over
        return str(error)
    return None if _is_success(reply) else str(reply)


def table_differences(expected: NeMoGymOffice, actual: NeMoGymOffice) -> dict[str, list[str]]:
    """The rows that differ, by table; empty if the two offices are equal."""
    others = actual.frames()
    compared = {name: (frame, others[name]) for name, frame in expected.frames().items()}
    return {name: describe(*pair) for name, pair in compared.items() if not equal(*pair)}


def _is_success(reply: Any) -> bool:
    text = str(reply)
    return text.endswith(" successfully.") or text.isdecimal() or text.startswith("plots/")


def _frame(table: Table) -> Frame:
    return Frame(table.columns, [_cells(row) for row in table.rows.values()])


def _cells(row: Row) -> Cells:
    return {column: value or None for column, value in row.items()}


class NeMoGymRules:
    """What `scoring: nemo_gym` does with an office."""

    def __init__(self, office_data: OfficeData) -> None:
        self.shared = make_frames(office_data)

    def open(self) -> NeMoGymOffice:
        return NeMoGymOffice(self.shared)

    async def replay_reference(self, ground_truth: Sequence[JsonObject] | str) -> tuple[NeMoGymOffice, list[Problem]]:
        """The office after the reference calls, and the calls that fail."""
        calls = [] if isinstance(ground_truth, str) else [*map(_reference_call, ground_truth)]
        return await replay_all(self.shared, calls)

    async def compare(self, expected: NeMoGymOffice, output: Sequence[JsonObject], _: Collection[Any]) -> Comparison:
        """The tables that differ after the model's calls."""
        office, failed = await replay_all(self.shared, _calls_made(output))
        return Comparison(table_differences(expected, office), len(failed))


def _calls_made(output: Sequence[JsonObject]) -> Iterator[tuple[str, str]]:
    for item in output:
        if item.get("type") == "function_call":
            yield str(item["name"]), str(item["arguments"])


def _reference_call(call: JsonObject) -> tuple[str, str]:
    arguments = call.get("arguments", "")
    return str(call.get("name", "")), arguments if isinstance(arguments, str) else json.dumps(arguments)
