"""The base class of agents: `/run` runs one attempt at a row and returns its scored verify row."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from pydantic import FiniteFloat, PositiveFloat, PositiveInt

from gymnast.config.server_settings import Settings
from gymnast.kit.agent_calls import call_model
from gymnast.types.failure import FailureKind, Stage
from gymnast.types.task import PARAMS, correlation_id
from gymnast.wire.calls import Scope
from gymnast.wire.message import Reply, Request
from gymnast.wire.server import Server, ServerContext
from gymnast.wire.validate import require_field, require_object, validate_params

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from gymnast.config.instances import ServerKind
    from gymnast.kit.attempt import Task
    from gymnast.types.items import CreateParams, Response
    from gymnast.types.json import JsonObject


def input_items(params: CreateParams) -> list[Any]:
    """The request's input as a new list of items."""
    value = params["input"]
    return [{"role": "user", "content": value}] if isinstance(value, str) else list(value)


class AgentSettings(Settings):
    """Settings of every agent. Each stage of an attempt has a timeout."""

    max_rollouts: PositiveInt | None = None
    """Maximum number of rollouts in flight through this agent."""
    skip_verification: bool = False
    skip_verification_reward: FiniteFloat = 0.0
    token_id_capture: Literal[False] = False
    seed_timeout_s: PositiveFloat = 120.0
    model_timeout_s: PositiveFloat = 1800.0
    tool_timeout_s: PositiveFloat = 300.0
    verify_timeout_s: PositiveFloat = 600.0


class Agent(Server):
    """An agent server. Subclasses define how to run a row and how to continue a plain conversation."""

    kind: ClassVar[ServerKind] = "responses_api_agents"
    failure_kind: ClassVar[FailureKind] = FailureKind.AGENT_ERROR
    failure_stage: ClassVar[Stage] = Stage.AGENT
    task_type: ClassVar[type[Task] | None] = None
    """The row fields that the agent itself reads: rows that lack them are named before the first call."""
    settings: AgentSettings

    def __init__(self, name: str, settings: AgentSettings, context: ServerContext) -> None:
        super().__init__(name, context)
        self.settings = settings
        self.route("POST", "/run", self._run)
        self.route("POST", "/v1/responses", self._responses)
        self.route("POST", "/aggregate_metrics", self._aggregate_metrics)

    @abstractmethod
    async def run(self, row: JsonObject, params: CreateParams, scope: Scope) -> JsonObject:
        """Run one attempt at a row and return its verify row. `params` are the row's, already validated."""

    async def prepare(self, row: JsonObject, params: CreateParams, scope: Scope) -> tuple[JsonObject, CreateParams]:
        """Complete a row before it is run; the record shows what was completed."""
        return row, params

    @abstractmethod
    async def respond(self, params: CreateParams, scope: Scope) -> Response:
        """Continue a conversation without seeding or verifying. Returns the whole trajectory as one response."""

    @abstractmethod
    async def aggregate_metrics(self, body: JsonObject) -> JsonObject:
        """Aggregate metrics over verify rows."""

    def call_model(self, model: str, params: CreateParams, scope: Scope) -> Awaitable[Any]:
        """Call a model and return its response object."""
        return call_model(self.calls, model, params, scope, self.settings.model_timeout_s)

    async def _run(self, request: Request) -> JsonObject:
        row = require_object(request.body)
        params = validate_params(require_field(row, PARAMS), loc=("body", PARAMS))
        scope = Scope(request.rollout_id or correlation_id(row), request.progress, dict(request.cookies))
        row, params = await self.prepare(row, params, scope)
        return await self.run(row, params, scope)

    async def _responses(self, request: Request) -> Reply:
        params = validate_params(require_object(request.body))
        scope = Scope(request.rollout_id, request.progress, dict(request.cookies))
        response = await self.respond(params, scope)
        return Reply(200, response, cookies=scope.all_cookies())

    async def _aggregate_metrics(self, request: Request) -> JsonObject:
        if self.settings.skip_verification:
            self.warn_once("verification is skipped: no metrics to aggregate")
            return {"group_level_metrics": [], "agent_metrics": {}, "key_metrics": {}}
        return await self.aggregate_metrics(require_object(request.body))
