"""The base class of step environments (reset, step, close), played turn by turn by `gymnasium_agent`."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Any, Generic

from pydantic import BaseModel, ConfigDict, FiniteFloat

from gymnast.kit.attempt import Attempt, SessionT, TaskT
from gymnast.kit.task_server import EnvironmentSettings, TaskServer
from gymnast.types.task import PARAMS, correlation_id
from gymnast.wire.calls import Scope
from gymnast.wire.validate import require_field, require_object, validate_params, validate_response

if TYPE_CHECKING:
    from gymnast.types.json import JsonObject
    from gymnast.wire.message import Request
    from gymnast.wire.server import ServerContext


class ToolOutput(BaseModel):
    """The output of one of the model's tool calls."""

    model_config = ConfigDict(frozen=True)
    call_id: str
    output: str


class Step(BaseModel):
    """The result of one step: the next observation, this step's reward, and whether the episode is over."""

    model_config = ConfigDict(extra="forbid")
    observation: str | None = None
    reward: FiniteFloat = 0.0
    terminated: bool = False
    truncated: bool = False
    tool_outputs: list[ToolOutput] = []
    info: dict[str, Any] = {}


class StepEnvironment(TaskServer[TaskT, SessionT], Generic[TaskT, SessionT]):
    """A resources server that is reset once per rollout and stepped with each model turn."""

    def __init__(self, name: str, settings: EnvironmentSettings, context: ServerContext) -> None:
        super().__init__(name, settings, context)
        if settings.expose_tools_over_mcp:
            raise ValueError("'expose_tools_over_mcp': a step environment has no tools to expose")
        self.route("POST", "/reset", self._reset)
        self.route("POST", "/step", self._step)
        self.route("POST", "/close", self._close)

    @abstractmethod
    async def reset(self, task: TaskT) -> tuple[SessionT, str | None]:
        """Start an episode. Returns its state, and the first observation unless the row's input suffices."""

    @abstractmethod
    async def step(self, turn: Attempt[TaskT, SessionT]) -> Step:
        """Apply the model's turn. `turn.session` is the state that `reset` returned."""

    async def _reset(self, request: Request) -> JsonObject:
        row = require_object(request.body)
        params = require_field(row, PARAMS)
        if not request.validated:
            validate_params(params, loc=("body", PARAMS))
        state, observation = await self.reset(self.parse_task(row))
        await self.sessions.open(request.session_id, state)
        return {"observation": observation, "info": {"supports_explicit_close": True}}

    async def _step(self, request: Request) -> JsonObject:
        row = require_object(request.body)
        params, response = require_field(row, PARAMS), require_field(row, "response")
        if not request.validated:
            validate_response(response, loc=("body", "response"))
        task, scope = self.parse_task(row), Scope(request.rollout_id or correlation_id(row), request.progress)
        with self.fail_without_session(request):
            async with self.sessions.use(request.session_id, exclusive=True) as session:
                step = await self.step(Attempt(task, params, response, session, scope))
        if step.terminated or step.truncated:
            await self.sessions.close(request.session_id)
        return _reply(step)

    async def _close(self, request: Request) -> JsonObject:
        await self.sessions.close(request.session_id)
        return {}


def _reply(step: Step) -> JsonObject:
    info = dict(step.info)
    if step.tool_outputs:
        info["tool_outputs"] = [output.model_dump() for output in step.tool_outputs]
    return {
        "observation": step.observation,
        "reward": float(step.reward),
        "terminated": step.terminated,
        "truncated": step.truncated,
        "info": info,
    }
