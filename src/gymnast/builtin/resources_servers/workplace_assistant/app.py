"""An office assistant: 27 tools over e-mail, calendar, website figures, project board and customers.

Scored by comparing the state after its calls with the state after the reference calls.
"""

from __future__ import annotations

import ast
import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, field_validator

from gymnast.builtin.resources_servers.workplace_assistant.checks import is_moment
from gymnast.builtin.resources_servers.workplace_assistant.office import Office
from gymnast.builtin.resources_servers.workplace_assistant.office_data import OfficeData, make_office_data
from gymnast.builtin.resources_servers.workplace_assistant.scoring import Call, Replay, differences, replay
from gymnast.builtin.resources_servers.workplace_assistant.tables import load_tables
from gymnast.builtin.resources_servers.workplace_assistant.toolbox import (
    OfficeTools,
    clean_arguments,
    unknown_tool_message,
)
from gymnast.kit import (
    Attempt,
    Environment,
    EnvironmentSettings,
    InvalidBody,
    NotFoundError,
    Reply,
    Request,
    ServerContext,
    Task,
    Tool,
    ToolError,
    Verdict,
    parse_arguments,
)

SHIPPED_TABLES = Path(__file__).parent / "data"
_MAX_DIFFERENCES = 8


class WorkplaceSettings(EnvironmentSettings):
    data_dir: str | None = None
    """A folder with your own tables, with the same columns."""
    current_time: str = "2025-03-14 09:00:00"
    """The current time in the office, which sent e-mails get."""
    new_rows_in_any_order: bool = False
    """Whether e-mails, events, tasks, customers and plots may be added in a different order than the reference."""
    failing_reference: Literal["refuse", "ignore"] = "refuse"
    """What to do with a row whose reference calls fail on these tables, where doing nothing would score 1."""

    @field_validator("current_time")
    @classmethod
    def _is_moment(cls, value: str) -> str:
        if not is_moment(value):
            raise ValueError(f"current_time must be a time such as 2025-03-14 09:00:00, not '{value}'")
        return value


class ReferenceCall(BaseModel):
    """A call of the reference solution."""

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
            raise ValueError(f"expected a JSON object, got {value[:80]!r}")
        return parsed


class WorkplaceTask(Task):
    ground_truth: tuple[ReferenceCall, ...]
    id: int | str | None = None
    category: str | None = None
    environment_name: str | None = None

    @field_validator("ground_truth", mode="before")
    @classmethod
    def _from_text(cls, value: Any) -> Any:
        return _parse_list(value) if isinstance(value, str) else value

    @property
    def calls(self) -> list[Call]:
        return [(call.name, call.arguments) for call in self.ground_truth]


class WorkplaceVerdict(Verdict):
    category: str | None
    environment_name: str | None
    differing_tables: list[str]
    """Any of emails, calendar, plots, project_tasks, customers."""
    differences: list[str]
    """The first few rows that differ from the reference."""
    refused_calls: int
    """Calls of changing tools that were rejected."""


class WorkplaceAssistant(OfficeTools, Environment[WorkplaceTask, Office]):
    """Each rollout has its own office, on top of shared tables."""

    settings: WorkplaceSettings
    scores_without_session: ClassVar[bool] = True

    def __init__(self, name: str, settings: WorkplaceSettings, context: ServerContext) -> None:
        super().__init__(name, settings, context)
        self.office_data = _load_office_data(settings)

    async def open(self, task: WorkplaceTask) -> Office:
        await self._reference(task)
        return Office(self.office_data)

    async def verify(self, attempt: Attempt[WorkplaceTask, Office]) -> WorkplaceVerdict:
        task = attempt.task
        expected = await self._reference(task)
        matches = await replay(self.tools, _calls_made(attempt), self.office_data)
        any_order = self.settings.new_rows_in_any_order
        await asyncio.sleep(0)
        wrong = differences(expected.office, matches.office, any_order=any_order)
        texts = [f"{table}: {text}" for table, texts in wrong.items() for text in texts]
        return WorkplaceVerdict(
            reward=float(not wrong),
            category=task.category,
            environment_name=task.environment_name,
            differing_tables=list(wrong),
            differences=texts[:_MAX_DIFFERENCES],
            refused_calls=len(matches.rejected),
        )

    async def _reference(self, task: WorkplaceTask) -> Replay:
        done = await replay(self.tools, task.calls, self.office_data)
        unknown = [(n, f"unknown tool '{name}'") for n, (name, _) in enumerate(task.calls) if name not in self.tools]
        if self.settings.failing_reference == "refuse" and (done.rejected or unknown):
            position, why = (done.rejected + unknown)[0]
            text = f"this reference call fails on the tables of {self.name}: {why}. Is data_dir right?"
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
            return Reply(404, {"error": unknown_tool_message(request.path[1:], self.tools)})
        return super()._no_route(request)


def _calls_made(attempt: Attempt[WorkplaceTask, Office]) -> Iterator[Call]:
    """The model's calls, parsed lazily, because a model may make thousands.

    Calls of tools that the row does not offer never reached the office and are left out.
    """
    offered = {tool.get("name") for tool in attempt.params.get("tools") or ()}
    for item in attempt.output:
        if item.get("type") == "function_call" and (not offered or item["name"] in offered):
            yield item["name"], parse_arguments(item["arguments"])


def _load_office_data(settings: WorkplaceSettings) -> OfficeData:
    folder = SHIPPED_TABLES if settings.data_dir is None else Path(settings.data_dir).expanduser()
    if not folder.is_dir():
        raise NotFoundError(
            f"the folder '{folder}' does not exist",
            where="setting data_dir of workplace_assistant",
            next="set data_dir to a folder with emails.csv and the other tables, or leave it out",
        )
    return make_office_data(load_tables(folder), settings.current_time)


def _parse_list(text: str) -> Any:
    """Parse a list that was stored as text, as JSON or as a Python literal."""
    if not text.strip():
        return []
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        try:
            return ast.literal_eval(text)
        except (ValueError, SyntaxError, RecursionError, MemoryError) as error:
            raise ValueError("ground_truth must be a list, or the text of one") from error
