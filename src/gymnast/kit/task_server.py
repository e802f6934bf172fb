"""What every environment shares: the typed task, sessions with expiry, metrics, and names for its failures."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any, ClassVar, Generic, get_args, get_origin

from pydantic import PositiveFloat, PositiveInt, ValidationError

from gymnast.errors import JudgeError
from gymnast.kit.attempt import SessionT, Task, TaskT
from gymnast.kit.metrics import aggregate
from gymnast.kit.sessions import NoSession, Sessions
from gymnast.kit.settings import Settings
from gymnast.types.failure import FailureDetail, Stage, bounded
from gymnast.wire.server import HttpError, Server, Surroundings
from gymnast.wire.validate import InvalidBody, detail_of, require_field, require_object

if TYPE_CHECKING:
    from gymnast.config.instances import ServerKind
    from gymnast.types.json import JsonObject
    from gymnast.wire.message import Request

_STAGES = {"/seed_session": Stage.SEED, "/reset": Stage.SEED, "/verify": Stage.VERIFY, "/close_session": Stage.CLOSE}
_KINDS = {Stage.SEED: "seed_error", Stage.VERIFY: "verifier_error", Stage.TOOL: "tool_error", Stage.CLOSE: "seed_error"}


class EnvironmentSettings(Settings):
    """Settings every environment has."""

    session_ttl_s: PositiveFloat = 3600.0
    """A session that nobody used for this long is closed."""
    max_sessions: PositiveInt | None = None
    """Rollouts in flight in this environment at most; the collector keeps to it."""
    expose_tools_over_mcp: bool = False
    """Offer the tools to MCP clients too, at /mcp; the reply of /seed_session then says how."""


class TaskServer(Server, Generic[TaskT, SessionT]):
    """Base of `Environment` and `StepEnvironment`; authors subclass those."""

    kind: ClassVar[ServerKind] = "resources_servers"
    task_type: ClassVar[type[Task]] = Task
    settings: EnvironmentSettings

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        for base in getattr(cls, "__orig_bases__", ()):
            arguments = get_args(base)
            origin = get_origin(base)
            if isinstance(origin, type) and issubclass(origin, TaskServer) and isinstance(arguments[0], type):
                cls.task_type = arguments[0]

    def __init__(self, name: str, settings: EnvironmentSettings, surroundings: Surroundings) -> None:
        super().__init__(name, surroundings)
        self.settings = settings
        self.sessions: Sessions[SessionT] = Sessions(settings.session_ttl_s, self.close)
        self._sweeper: asyncio.Task[None] | None = None
        self.route("POST", "/aggregate_metrics", self._aggregate_metrics)

    async def close(self, session: SessionT) -> None:
        """Release what a session holds. Called once for each session that was opened."""

    async def start(self) -> None:
        self._sweeper = asyncio.create_task(self._sweep_for_ever())

    async def stop(self) -> None:
        if self._sweeper is not None:
            self._sweeper.cancel()
            await asyncio.gather(self._sweeper, return_exceptions=True)
        await self.sessions.close_all()

    def task_of(self, row: JsonObject) -> TaskT:
        """The row's fields as the environment's task."""
        try:
            return self.task_type.model_validate(row)  # type: ignore[return-value]
        except ValidationError as error:
            raise InvalidBody(detail_of(error)) from error

    @contextlib.contextmanager
    def missing_session_is_a_failure(self, request: Request) -> Any:
        """A session that is not there fails the attempt; it is nothing the model could mend."""
        try:
            yield
        except NoSession as error:
            stage = _STAGES.get(request.path, Stage.TOOL)
            kind = "session_expired" if error.expired else _KINDS[stage]
            text = f"{self.name}{request.path}: {error}"
            raise HttpError(
                400, str(error), failure=FailureDetail(kind, stage, text, instance=self.name, status=400)
            ) from error

    def failure_for(self, request: Request, error: Exception) -> FailureDetail:
        stage = _STAGES.get(request.path, Stage.TOOL)
        return FailureDetail(
            "judge_failed" if isinstance(error, JudgeError) else _KINDS[stage],
            stage,
            f"{self.name} raised {type(error).__name__} at {request.path}: {bounded(str(error), 500)}",
            instance=self.name,
            status=500,
            body=bounded(repr(error)),
        )

    async def _aggregate_metrics(self, request: Request) -> JsonObject:
        rows = require_field(require_object(request.body), "verify_responses")
        if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
            detail = {
                "type": "list_type",
                "loc": ["body", "verify_responses"],
                "msg": "Input should be a list of objects",
                "input": None,
            }
            raise InvalidBody([detail])
        return aggregate(rows)

    async def _sweep_for_ever(self) -> None:
        while True:
            await asyncio.sleep(min(30.0, self.settings.session_ttl_s / 2))
            swept = await self.sessions.sweep()
            if swept:
                self.log.warning("closed %d sessions that nobody used for %g s", swept, self.settings.session_ttl_s)
