"""The base class of agents: `/run` takes a row through an environment and answers with a scored verify row."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from pydantic import FiniteFloat, PositiveFloat, PositiveInt

from gymnast.errors import CallError
from gymnast.kit.settings import Settings
from gymnast.types.failure import FailureDetail, Stage
from gymnast.types.task import PARAMS, correlation_id
from gymnast.wire.calls import Scope
from gymnast.wire.message import Reply, Request
from gymnast.wire.server import Server, Surroundings
from gymnast.wire.validate import require_field, require_object, validate_params

if TYPE_CHECKING:
    from gymnast.config.instances import ServerKind
    from gymnast.types.items import CreateParams, Response
    from gymnast.types.json import JsonObject


def conversation_of(params: CreateParams) -> list[Any]:
    """The request's input as a list of items that can be extended."""
    given = params["input"]
    return [{"role": "user", "content": given}] if isinstance(given, str) else list(given)


class AgentSettings(Settings):
    """Settings every agent has. Each stage of an attempt has a deadline."""

    max_rollouts: PositiveInt | None = None
    """Rollouts in flight through this agent at most."""
    skip_verification: bool = False
    skip_verification_reward: FiniteFloat = 0.0
    token_id_capture: Literal[False] = False
    seed_timeout_s: PositiveFloat = 120.0
    model_timeout_s: PositiveFloat = 1800.0
    tool_timeout_s: PositiveFloat = 300.0
    verify_timeout_s: PositiveFloat = 600.0


class Agent(Server):
    """An agent server. Subclasses say how a row is run and how a bare conversation is continued."""

    kind: ClassVar[ServerKind] = "responses_api_agents"
    failure_kind: ClassVar[str] = "agent_error"
    failure_stage: ClassVar[Stage] = Stage.AGENT
    settings: AgentSettings

    def __init__(self, name: str, settings: AgentSettings, surroundings: Surroundings) -> None:
        super().__init__(name, surroundings)
        self.settings = settings
        self.route("POST", "/run", self._run)
        self.route("POST", "/v1/responses", self._responses)
        self.route("POST", "/aggregate_metrics", self._aggregate_metrics)

    @abstractmethod
    async def run(self, row: JsonObject, params: CreateParams, scope: Scope) -> JsonObject:
        """Run one attempt at a row and return its verify row. `params` are the row's, validated."""

    @abstractmethod
    async def respond(self, params: CreateParams, scope: Scope) -> Response:
        """Continue a conversation without seeding or verifying: the whole trajectory as one response."""

    @abstractmethod
    async def aggregate_metrics(self, body: JsonObject) -> JsonObject:
        """Metrics over verify rows."""

    async def ask(self, model: str, params: CreateParams, scope: Scope) -> Any:
        """One model call: the response object, checked to be one."""
        turn = await self.calls.expect(
            model,
            "/v1/responses",
            params,
            scope,
            stage=Stage.MODEL,
            timeout_s=self.settings.model_timeout_s,
            validated=True,
        )
        if isinstance(turn, dict) and isinstance(turn.get("output"), list):
            return turn
        text = f"{model} answered /v1/responses with something that is no response object"
        raise CallError(FailureDetail("model_bad_reply", Stage.MODEL, text, instance=model))

    async def _run(self, request: Request) -> JsonObject:
        row = require_object(request.body)
        params = validate_params(require_field(row, PARAMS), loc=("body", PARAMS))
        scope = Scope(request.rollout_id or correlation_id(row), request.trail, dict(request.cookies))
        return await self.run(row, params, scope)

    async def _responses(self, request: Request) -> Reply:
        params = validate_params(require_object(request.body))
        scope = Scope(request.rollout_id, request.trail, dict(request.cookies))
        response = await self.respond(params, scope)
        return Reply(200, response, cookies=scope.all_cookies())

    async def _aggregate_metrics(self, request: Request) -> JsonObject:
        if self.settings.skip_verification:
            self.log.warning("verification was skipped: there is nothing to aggregate")
            return {"group_level_metrics": [], "agent_metrics": {}, "key_metrics": {}}
        return await self.aggregate_metrics(require_object(request.body))
