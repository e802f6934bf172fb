"""An office assistant: 27 tools over e-mail, calendar, website figures, project board and customers.

Scored by the state its calls leave, compared with the state the reference calls leave.
"""

from __future__ import annotations

import ast
import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, field_validator

from gymnast.errors import NotFoundError
from gymnast.hub.resources_servers.workplace_assistant.checks import is_moment
from gymnast.hub.resources_servers.workplace_assistant.office import Office
from gymnast.hub.resources_servers.workplace_assistant.premises import Premises, premises_of
from gymnast.hub.resources_servers.workplace_assistant.scoring import Call, Replayed, differences, replay
from gymnast.hub.resources_servers.workplace_assistant.tables import load_tables
from gymnast.hub.resources_servers.workplace_assistant.toolbox import OfficeTools, clean_arguments, no_such_tool
from gymnast.kit import Attempt, Environment, EnvironmentSettings, Task, ToolError, Verdict
from gymnast.kit.attempt import parse_arguments
from gymnast.wire.message import Reply, Request
from gymnast.wire.validate import InvalidBody

if TYPE_CHECKING:
    from gymnast.kit.tools import Tool
    from gymnast.wire.server import Surroundings

SHIPPED_TABLES = Path(__file__).parent / "data"
_MOST_DIFFERENCES = 8


class WorkplaceSettings(EnvironmentSettings):
    data_dir: str | None = None
    """A folder with tables of your own, in the columns of ours."""
    current_time: str = "2025-03-14 09:00:00"
    """When it is in the office; sent e-mails carry it."""
    new_rows_in_any_order: bool = False
    """Whether e-mails, events, tasks, customers and plots may be added in another order than the reference does."""
    failing_reference: Literal["refuse", "ignore"] = "refuse"
    """What becomes of a row whose reference calls do not work on these tables: doing nothing would score 1 there."""

    @field_validator("current_time")
    @classmethod
    def _is_moment(cls, value: str) -> str:
        if not is_moment(value):
            raise ValueError(f"current_time '{value}' is no time such as 2025-03-14 09:00:00")
        return value


class ReferenceCall(BaseModel):
    """One call of the reference solution."""

    model_config = ConfigDict(frozen=True, extra="ignore")
    name: str
    arguments: dict[str, Any] = {}

    @field_validator("arguments", mode="before")
    @classmethod
    def _from_text(cls, value: Any) -> Any:
        if not isinstance(value, str):
            return value or {}
        parsed = parse_arguments(value)
        if parsed is None:
            raise ValueError(f"{value[:80]!r} is no JSON object")
        return parsed


class WorkplaceTask(Task):
    ground_truth: tuple[ReferenceCall, ...]
    id: int | str | None = None
    category: str | None = None
    environment_name: str | None = None

    @field_validator("ground_truth", mode="before")
    @classmethod
    def _from_text(cls, value: Any) -> Any:
        return _list_of(value) if isinstance(value, str) else value

    @property
    def calls(self) -> list[Call]:
        return [(call.name, call.arguments) for call in self.ground_truth]


class WorkplaceVerdict(Verdict):
    category: str | None
    environment_name: str | None
    differing_tables: list[str]
    """Of emails, calendar, plots, project_tasks, customers."""
    differences: list[str]
    """The first few rows that are not as they should be."""
    refused_calls: int
    """Calls that would have changed something, but were wrong."""


class WorkplaceAssistant(OfficeTools, Environment[WorkplaceTask, Office]):
    """Each rollout works in an office of its own, on tables that all share."""

    settings: WorkplaceSettings
    scores_without_session: ClassVar[bool] = True

    def __init__(self, name: str, settings: WorkplaceSettings, surroundings: Surroundings) -> None:
        super().__init__(name, settings, surroundings)
        self.premises = _premises(settings)

    async def open(self, task: WorkplaceTask) -> Office:
        await self._reference(task)
        return Office(self.premises)

    async def verify(self, attempt: Attempt[WorkplaceTask, Office]) -> WorkplaceVerdict:
        task = attempt.task
        expected = await self._reference(task)
        found = await replay(self.tools, _calls_made(attempt), self.premises)
        any_order = self.settings.new_rows_in_any_order
        await asyncio.sleep(0)
        wrong = differences(expected.office, found.office, any_order=any_order)
        texts = [f"{table}: {text}" for table, texts in wrong.items() for text in texts]
        return WorkplaceVerdict(
            reward=float(not wrong),
            category=task.category,
            environment_name=task.environment_name,
            differing_tables=list(wrong),
            differences=texts[:_MOST_DIFFERENCES],
            refused_calls=len(found.refused),
        )

    async def _reference(self, task: WorkplaceTask) -> Replayed:
        done = await replay(self.tools, task.calls, self.premises)
        unknown = [
            (n, f"there is no tool '{name}'") for n, (name, _) in enumerate(task.calls) if name not in self.tools
        ]
        if self.settings.failing_reference == "refuse" and (done.refused or unknown):
            position, why = (done.refused + unknown)[0]
            text = f"this reference call does not work on the tables of {self.name}: {why}. Is data_dir the right one?"
            loc = ["body", "ground_truth", position]
            raise InvalidBody([{"type": "value_error", "loc": loc, "msg": text, "input": None}])
        return done

    async def _call_tool(self, called: Tool, request: Request) -> Any:
        try:
            request.body = clean_arguments(called, request.body if request.body is not None else {})
        except ToolError as error:
            return Reply(400, {"error": str(error)})
        return await super()._call_tool(called, request)

    def _no_route(self, request: Request) -> Reply:
        if request.method == "POST" and request.path.count("/") == 1:
            return Reply(404, {"error": no_such_tool(request.path[1:], self.tools)})
        return super()._no_route(request)


def _calls_made(attempt: Attempt[WorkplaceTask, Office]) -> Iterator[Call]:
    """The model's calls, each parsed when it is asked for: that takes long where a model made thousands.

    One of a tool that the row does not offer never reached the office.
    """
    offered = {tool.get("name") for tool in attempt.params.get("tools") or ()}
    for item in attempt.output:
        if item.get("type") == "function_call" and (not offered or item["name"] in offered):
            yield item["name"], parse_arguments(item["arguments"])


def _premises(settings: WorkplaceSettings) -> Premises:
    folder = SHIPPED_TABLES if settings.data_dir is None else Path(settings.data_dir).expanduser()
    if not folder.is_dir():
        raise NotFoundError(
            f"the folder '{folder}' does not exist",
            where="setting data_dir of workplace_assistant",
            next="give a folder with emails.csv and the other tables, or leave data_dir out",
        )
    return premises_of(load_tables(folder), settings.current_time)


def _list_of(text: str) -> Any:
    """A list that was stored as text, as JSON or as Python writes it."""
    if not text.strip():
        return []
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        try:
            return ast.literal_eval(text)
        except (ValueError, SyntaxError, RecursionError, MemoryError) as error:
            raise ValueError("ground_truth is neither a list nor the text of one") from error
