"""What all environments share: settings, the typed task, sessions that expire, metrics, and classified failures."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Literal, get_args, get_origin

from pydantic import PositiveFloat, PositiveInt, ValidationError

from gymnast.config.server_settings import Settings
from gymnast.errors import JudgeError
from gymnast.kit.attempt import SessionT, Task, TaskT
from gymnast.kit.custom_metrics import CustomMetrics
from gymnast.kit.metrics import aggregate
from gymnast.kit.sessions import NoSession, Sessions
from gymnast.types.encoding import show
from gymnast.types.failure import BODY_LIMIT, FailureDetail, FailureKind, Stage, message_of
from gymnast.wire.server import HttpError, Server, ServerContext
from gymnast.wire.validate import InvalidBody, error_detail, require_field, require_object

if TYPE_CHECKING:
    from gymnast.config.instances import ServerKind
    from gymnast.kit.process_pool import ProcessPool
    from gymnast.types.json import JsonObject
    from gymnast.wire.message import Request

_STAGES = {"/seed_session": Stage.SEED, "/reset": Stage.SEED, "/verify": Stage.VERIFY, "/close_session": Stage.CLOSE}
_KINDS = {
    Stage.SEED: FailureKind.SEED_ERROR,
    Stage.VERIFY: FailureKind.VERIFIER_ERROR,
    Stage.TOOL: FailureKind.TOOL_ERROR,
    Stage.CLOSE: FailureKind.SEED_ERROR,
}


class EnvironmentSettings(Settings):
    """Settings of every environment."""

    session_ttl_s: PositiveFloat = 3600.0
    """Close a session that was not used for this long."""
    max_sessions: PositiveInt | None = None
    """Maximum number of rollouts in flight in this environment; enforced by the collector."""
    expose_tools_over_mcp: bool = False
    """Also expose the tools to MCP clients, at /mcp; the reply of /seed_session says how to connect."""


class TaskServer(Server, Generic[TaskT, SessionT]):
    """Base class of `Environment` and `StepEnvironment`, which authors subclass."""

    kind: ClassVar[ServerKind] = "resources_servers"
    task_type: ClassVar[type[Task]] = Task
    custom_metrics: ClassVar[CustomMetrics] = CustomMetrics()
    """What `/aggregate_metrics` adds to the statistics of all numbers, e.g. `PassMajority()` for pass@k."""
    settings: EnvironmentSettings

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        for base in getattr(cls, "__orig_bases__", ()):
            arguments = get_args(base)
            origin = get_origin(base)
            if isinstance(origin, type) and issubclass(origin, TaskServer) and isinstance(arguments[0], type):
                cls.task_type = arguments[0]

    def __init__(self, name: str, settings: EnvironmentSettings, context: ServerContext) -> None:
        super().__init__(name, context)
        self.settings = settings
        self.sessions: Sessions[SessionT] = Sessions(settings.session_ttl_s, self.close)
        self._sweeper: asyncio.Task[None] | None = None
        self._pools: list[ProcessPool] = []
        self.route("POST", "/aggregate_metrics", self._aggregate_metrics)

    def own_pool(self, pool: ProcessPool) -> ProcessPool:
        """Close this pool when the environment stops."""
        self._pools.append(pool)
        return pool

    async def close(self, session: SessionT) -> None:
        """Release a session's resources. Called once for each session opened."""

    async def start(self) -> None:
        self._sweeper = asyncio.create_task(self._sweep_forever())

    async def stop(self) -> None:
        for pool in self._pools:
            await pool.close()
        if self._sweeper is not None:
            self._sweeper.cancel()
            await asyncio.gather(self._sweeper, return_exceptions=True)
        await self.sessions.close_all()

    def parse_task(self, row: JsonObject) -> TaskT:
        """Parse a row into the environment's task."""
        try:
            return self.task_type.model_validate(row)  # type: ignore[return-value]
        except ValidationError as error:
            raise InvalidBody(error_detail(error)) from error

    @contextlib.contextmanager
    def fail_without_session(self, request: Request) -> Any:
        """Report a missing session as a failure of the attempt: the model cannot recover from it."""
        try:
            yield
        except NoSession as error:
            stage = _STAGES.get(request.path, Stage.TOOL)
            kind = FailureKind.SESSION_EXPIRED if error.expired else _KINDS[stage]
            text = f"{self.name}{request.path}: {error}"
            raise HttpError(
                400, str(error), failure=FailureDetail(kind, stage, text, instance=self.name, status=400)
            ) from error

    def failure_for(self, request: Request, error: Exception) -> FailureDetail:
        stage = _STAGES.get(request.path, Stage.TOOL)
        return FailureDetail(
            FailureKind.JUDGE_FAILED if isinstance(error, JudgeError) else _KINDS[stage],
            stage,
            f"{self.name} raised {type(error).__name__} at {request.path}: {message_of(error, 500)}",
            instance=self.name,
            status=500,
            body=show(error, BODY_LIMIT),
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
        return aggregate(rows, self.custom_metrics)

    async def _sweep_forever(self) -> None:
        while True:
            await asyncio.sleep(min(30.0, self.settings.session_ttl_s / 2))
            closed = await self.sessions.sweep()
            if closed:
                self.log.warning("closed %d sessions that were unused for %g s", closed, self.settings.session_ttl_s)


Scoring = Literal["nemo_gym", "strict"]


class ScoringSettings(Settings):
    """Settings of an environment that has both kinds of rules."""

    scoring: Scoring = "nemo_gym"
    """`nemo_gym`: the reward that NeMo Gym gives. `strict`: no reward for answers that its rules accept wrongly."""
