"""An office assistant: 27 tools over e-mail, calendar, website figures, project board and customers.

Scored by comparing the state after its calls with the state after the reference calls.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar, Final, Literal, Self

from pydantic import field_validator, model_validator

from gymnast.kit import (
    Attempt,
    Environment,
    EnvironmentSettings,
    InvalidBody,
    JsonObject,
    NotFoundError,
    Reply,
    Request,
    ScoringSettings,
    ServerContext,
    Task,
    Tool,
    ToolError,
    Verdict,
    require_object,
)

from .checks import is_moment
from .nemo_gym_office import NeMoGymOffice, NeMoGymRules
from .office import Office
from .strict_rules import StrictRules
from .tables import OfficeData, is_nemo_gym_folder, load_tables, make_office_data
from .toolbox import OfficeTools, clean_arguments, unknown_tool_message

SHIPPED_TABLES: Final = Path(__file__).parent / "data"
SHIPPED_TIME: Final = "2025-03-14 09:00:00"
NEMO_GYM_TIME: Final = "2023-11-30 23:59:00"


class WorkplaceSettings(EnvironmentSettings, ScoringSettings):
    data_dir: str | None = None
    """A folder with your own tables, with the same columns; or NeMo Gym's folder `csv_data`."""
    current_time: str | None = None
    """The current time in the office, which sent e-mails get. By default 2025-03-14 09:00:00, the time of the built-in
    tables; 2023-11-30 23:59:00 for NeMo Gym's."""
    new_rows_in_any_order: bool = False
    """Whether e-mails, events, tasks, customers and plots may be added in a different order than the reference. Only
    with `scoring: strict`."""
    failing_reference: Literal["refuse", "ignore"] | None = None
    """What to do with a row whose reference calls fail on these tables, where doing nothing would score 1. By default
    `refuse`; `ignore` for tables of your own with `scoring: nemo_gym`."""

    @field_validator("current_time")
    @classmethod
    def _is_moment(cls, value: str | None) -> str | None:
        if value is not None and not is_moment(value):
            raise ValueError(f"current_time must be a time such as 2025-03-14 09:00:00, not '{value}'")
        return value

    @model_validator(mode="after")
    def _any_order_is_strict(self) -> Self:
        if self.new_rows_in_any_order and self.scoring != "strict":
            raise ValueError("new_rows_in_any_order needs scoring: strict")
        return self

    @property
    def refuses_failing_references(self) -> bool:
        lenient = self.scoring == "nemo_gym" and self.data_dir is not None
        return (self.failing_reference or ("ignore" if lenient else "refuse")) == "refuse"


class WorkplaceTask(Task):
    ground_truth: list[dict[str, Any]] | str
    id: int | str | None = None
    category: str | None = None
    environment_name: str | None = None


class WorkplaceVerdict(Verdict):
    category: str | None
    environment_name: str | None
    differing_tables: list[str]
    """Any of emails, calendar, plots, project_tasks, customers."""
    differences: list[str]
    """The first few rows that differ from the reference."""
    refused_calls: int
    """Calls of changing tools that were rejected."""


class WorkplaceAssistant(OfficeTools, Environment[WorkplaceTask, Office | NeMoGymOffice]):
    """Each rollout has its own office, on top of shared tables."""

    settings: WorkplaceSettings
    scores_without_session: ClassVar[bool] = True

    def __init__(self, name: str, settings: WorkplaceSettings, context: ServerContext) -> None:
        super().__init__(name, settings, context)
        self.office_data = _load_office_data(settings)
        self.rules: NeMoGymRules | StrictRules = (
            NeMoGymRules(self.office_data)
            if settings.scoring == "nemo_gym"
            else StrictRules(self.office_data, self.tools, any_order=settings.new_rows_in_any_order)
        )

    async def open(self, task: WorkplaceTask) -> Office | NeMoGymOffice:
        await self._reference(task)
        return self.rules.open()

    async def verify(self, attempt: Attempt[WorkplaceTask, Office | NeMoGymOffice]) -> WorkplaceVerdict:
        task = attempt.task
        expected = await self._reference(task)
        offered = {tool.get("name") for tool in attempt.params.get("tools") or ()}
        comparison = await self.rules.compare(expected, attempt.output, offered)
        return WorkplaceVerdict(
            reward=float(not comparison.differences),
            category=task.category,
            environment_name=task.environment_name,
            differing_tables=list(comparison.differences),
            differences=comparison.texts(),
            refused_calls=comparison.refused,
        )

    async def _reference(self, task: WorkplaceTask) -> Any:
        office, problems = await self.rules.replay_reference(task.ground_truth)
        if problems and self.settings.refuses_failing_references:
            position, why = problems[0]
            text = f"this reference call fails on the tables of {self.name}: {why}. Is data_dir right?"
            raise InvalidBody.of_field(text, "ground_truth", position)
        return office

    async def _call_tool(self, called: Tool, request: Request) -> Any:
        if self.settings.scoring == "nemo_gym":
            return await self._call_by_name(called.name, request)
        try:
            request.body = clean_arguments(called, request.body if request.body is not None else {})
        except ToolError as error:
            return Reply(400, {"error": str(error)})
        return await super()._call_tool(called, request)

    async def _call_by_name(self, name: str, request: Request) -> JsonObject:
        arguments = require_object(request.body)
        with self.fail_without_session(request):
            async with self.sessions.use(request.session_id, exclusive=True) as office:
                assert isinstance(office, NeMoGymOffice)
                return {"output": office.call(name, arguments)}

    def _no_route(self, request: Request) -> Reply:
        if request.method != "POST" or request.path.count("/") != 1:
            return super()._no_route(request)
        name = request.path[1:]
        if self.settings.scoring == "nemo_gym":
            with self.fail_without_session(request):
                self.sessions.use(request.session_id, exclusive=False)
            return Reply(200, {"output": f"Error executing tool '{name}': {name!r}"})
        return Reply(404, {"error": unknown_tool_message(name, self.tools)})


def _load_office_data(settings: WorkplaceSettings) -> OfficeData:
    folder = SHIPPED_TABLES if settings.data_dir is None else Path(settings.data_dir).expanduser()
    if not folder.is_dir():
        raise NotFoundError(
            f"the folder '{folder}' does not exist",
            where="setting data_dir of workplace_assistant",
            next="set data_dir to a folder with emails.csv and the other tables, or leave it out",
        )
    usual_time = NEMO_GYM_TIME if is_nemo_gym_folder(folder) else SHIPPED_TIME
    return make_office_data(load_tables(folder), settings.current_time or usual_time)
