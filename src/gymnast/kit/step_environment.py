"""The base class of environments that are stepped turn by turn (reset, step, close), for `gymnasium_agent`."""

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
    from gymnast.wire.server import Surroundings


class ToolOutput(BaseModel):
    """The answer to one of the model's calls."""

    model_config = ConfigDict(frozen=True)
    call_id: str
    output: str


class Step(BaseModel):
    """What one step gives: the next observation, the reward of this step, and whether the episode is over."""

    model_config = ConfigDict(extra="forbid")
    observation: str | None = None
    reward: FiniteFloat = 0.0
    terminated: bool = False
    truncated: bool = False
    tool_outputs: list[ToolOutput] = []
    info: dict[str, Any] = {}


class StepEnvironment(TaskServer[TaskT, SessionT], Generic[TaskT, SessionT]):
    """A resources server that is reset once and stepped with each model turn."""

    def __init__(self, name: str, settings: EnvironmentSettings, surroundings: Surroundings) -> None:
        super().__init__(name, settings, surroundings)
        if settings.expose_tools_over_mcp:
            raise ValueError("'expose_tools_over_mcp': an environment of steps has no tools to call; calls are steps")
        self.route("POST", "/reset", self._reset)
        self.route("POST", "/step", self._step)
        self.route("POST", "/close", self._close)

    @abstractmethod
    async def reset(self, task: TaskT) -> tuple[SessionT, str | None]:
        """Begin an episode: its state, and the first observation if the row's input is not enough."""

    @abstractmethod
    async def step(self, turn: Attempt[TaskT, SessionT]) -> Step:
        """Take the model's turn. `turn.session` is the state that `reset` returned."""

    async def _reset(self, request: Request) -> JsonObject:
        row = require_object(request.body)
        params = require_field(row, PARAMS)
        if not request.validated:
            validate_params(params, loc=("body", PARAMS))
        state, observation = await self.reset(self.task_of(row))
        await self.sessions.open(request.session_id, state)
        return {"observation": observation, "info": {"supports_explicit_close": True}}

    async def _step(self, request: Request) -> JsonObject:
        row = require_object(request.body)
        params, response = require_field(row, PARAMS), require_field(row, "response")
        if not request.validated:
            validate_response(response, loc=("body", "response"))
        task, scope = self.task_of(row), Scope(request.rollout_id or correlation_id(row), request.trail)
        with self.missing_session_is_a_failure(request):
            async with self.sessions.use(request.session_id, exclusive=True) as session:
                taken = await self.step(Attempt(task, params, response, session, scope))
        if taken.terminated or taken.truncated:
            await self.sessions.close(request.session_id)
        return _reply(taken)

    async def _close(self, request: Request) -> JsonObject:
        await self.sessions.close(request.session_id)
        return {}


def _reply(taken: Step) -> JsonObject:
    info = dict(taken.info)
    if taken.tool_outputs:
        info["tool_outputs"] = [output.model_dump() for output in taken.tool_outputs]
    return {
        "observation": taken.observation,
        "reward": float(taken.reward),
        "terminated": taken.terminated,
        "truncated": taken.truncated,
        "info": info,
    }
