"""A conversation of two models: the policy, with its tools, and a simulated user with a persona and a goal.

The policy's turn is a tool loop that ends with a message; then the user speaks. The environment scores the whole
conversation. If the user's model fails, the attempt fails as `user_failed`: it is retried, and never scored.
"""

from __future__ import annotations

from typing import Any, Final, Literal, cast

from pydantic import PositiveFloat, PositiveInt, ValidationError, field_validator

from gymnast.builtin.responses_api_agents.simple_agent.app import SimpleAgent, SimpleAgentSettings
from gymnast.kit import (
    CallError,
    CreateParams,
    InvalidBody,
    JsonObject,
    JudgeLimits,
    JudgeModel,
    ModelRef,
    Response,
    Scope,
    ServerContext,
    Task,
    input_items,
    message_text,
    new_id,
    request_verdict,
    seed_session,
    sum_usage,
)

from .user import DONE, OUT_OF_SCOPE, RULES, TRANSFERRED, Scenario, SimulatedUser

_USER: Final = "user"
_ENDINGS: Final = frozenset({DONE, TRANSFERRED, OUT_OF_SCOPE})


class SimulatedUserAgentSettings(SimpleAgentSettings):
    user_model_server: ModelRef
    """The model that plays the user."""
    user_responses_create_params: dict[str, Any] = {}
    """Sampling parameters of the user's calls."""
    user_rules: str = RULES
    """How every user behaves; the scenario of the row follows."""
    user_max_tries: PositiveInt = 3
    """Calls per message of the user: retries follow transient errors and empty or truncated responses."""
    user_timeout_s: PositiveFloat = 300.0
    greeting: str | None = "Hello! How can I help you?"
    """The policy's first message, which no model writes; null if the row's input already has the user's first one."""
    max_turns: PositiveInt = 50
    """Messages of the user; beyond, the conversation is truncated."""
    max_rollout_cost: PositiveFloat | None = None
    """Cost of both models in a rollout, by their prices; beyond, the conversation is truncated."""
    max_rollout_tokens: PositiveInt | None = None
    """Tokens of both models in a rollout; beyond, the conversation is truncated."""
    out_of_scope: Literal["fail", "score"] = "fail"
    """What happens if the user says that its scenario does not let it continue: no score, or the environment's."""

    @field_validator("user_responses_create_params")
    @classmethod
    def _check_params(cls, value: dict[str, Any]) -> dict[str, Any]:
        if {"input", "tools"} & value.keys():
            raise ValueError("the user's `input` is the conversation, and it has no `tools`")
        return value


class SimulatedUserTask(Task):
    user: Scenario


class SimulatedUserAgent(SimpleAgent):
    """Runs the conversation with one environment, one policy and one user."""

    task_type = SimulatedUserTask
    settings: SimulatedUserAgentSettings

    def __init__(self, name: str, settings: SimulatedUserAgentSettings, context: ServerContext) -> None:
        super().__init__(name, settings, context)
        limits = JudgeLimits(None, settings.user_max_tries, settings.user_timeout_s, pause_s=0.2)
        model = JudgeModel(self.calls, settings.user_model_server.name, limits)
        self._user = SimulatedUser(model, settings.user_responses_create_params, settings.user_rules)

    async def run(self, row: JsonObject, params: CreateParams, scope: Scope) -> JsonObject:
        scenario = _read_scenario(row)
        environment = self.settings.resources_server.name
        offers = await seed_session(self.calls, environment, row, scope, self.settings)
        try:
            parallel = bool(offers.get("supports_parallel_tools"))
            response, facts = await self._talk(scenario, params, scope, parallel=parallel)
            verdict = await request_verdict(self.calls, environment, row, response, scope, self.settings)
            return {**verdict, "conversation": facts}
        except BaseException:
            if offers.get("supports_explicit_close"):
                await self.close_session(scope)
            raise

    async def _talk(
        self, scenario: Scenario, params: CreateParams, scope: Scope, *, parallel: bool
    ) -> tuple[Response, JsonObject]:
        """The conversation until one side ends it or a limit is reached."""
        history = input_items(params)
        produced: list[JsonObject] = [_message(self.settings.greeting)] if self.settings.greeting is not None else []
        usage, turns, end = None, 0, None
        turn: JsonObject = {}
        is_users_turn = self.settings.greeting is not None or not any(item.get("role") == _USER for item in history)
        while True:
            if is_users_turn:
                message = await self._user.speak(scenario, _select_dialogue(history + produced), scope)
                turns, end = turns + 1, message.end
                self._check_end(end, scenario, is_first=not turn)
                produced.append({"type": "message", "role": _USER, "content": message.text})
                if end is not None:
                    break
            is_users_turn = True
            request = cast("CreateParams", {**params, "input": history + produced})
            turn = cast("JsonObject", await self._converse(request, scope, parallel=parallel))
            produced += turn["output"]
            usage = sum_usage(usage, turn.get("usage"))
            end = _truncation(turn) or self._limit_reached(turns, scope)
            if end is not None:
                break
        response = {**turn, "output": produced, "usage": usage}
        if end not in _ENDINGS:
            response["incomplete_details"] = response.get("incomplete_details") or {"reason": end}
        return cast("Response", response), {"ended_by": end, "user_turns": turns}

    def _check_end(self, end: str | None, scenario: Scenario, *, is_first: bool) -> None:
        """Raises CallError if the user ends a conversation in which the policy has not had a turn yet."""
        if end is None:
            return
        if is_first:
            raise CallError(self._user.failure("the simulated user ended the conversation in its first message"))
        if end == OUT_OF_SCOPE and self.settings.out_of_scope == "fail":
            text = f"the simulated user cannot continue within its scenario: {scenario.goal[:200]}"
            raise CallError(self._user.failure(text))

    def _limit_reached(self, turns: int, scope: Scope) -> str | None:
        settings = self.settings
        used = scope.progress.usage_counter if scope.progress is not None else None
        if turns >= settings.max_turns:
            return "max_turns"
        if used is None or (settings.max_rollout_cost is None and settings.max_rollout_tokens is None):
            return None
        if settings.max_rollout_tokens is not None and used.tokens > settings.max_rollout_tokens:
            return "max_rollout_tokens"
        if settings.max_rollout_cost is None:
            return None
        if used.cost is None:
            self.warn_once("max_rollout_cost has no effect: a model has no prices")
            return None
        return "max_rollout_cost" if used.cost > settings.max_rollout_cost else None


def _read_scenario(row: JsonObject) -> Scenario:
    try:
        return Scenario.model_validate(row.get(_USER))
    except ValidationError as error:
        problem = "; ".join(f"{'.'.join(map(str, part['loc']))}: {part['msg']}" for part in error.errors())
        raise InvalidBody.of_field(f"the row needs a scenario with a `goal`: {problem}", _USER) from error


def _message(text: str) -> JsonObject:
    part = {"type": "output_text", "text": text, "annotations": []}
    return {"type": "message", "role": "assistant", "id": new_id("msg_"), "status": "completed", "content": [part]}


def _select_dialogue(items: list[Any]) -> list[JsonObject]:
    """What both sides said: no system prompt, no tool calls, no reasoning."""
    messages = [item for item in items if item.get("type", "message") == "message"]
    return [item for item in messages if item.get("role") in {_USER, "assistant"} and message_text(item).strip()]


def _truncation(turn: JsonObject) -> str | None:
    """Why a turn of the policy did not end with a message."""
    if turn.get("incomplete_details"):
        return str(turn["incomplete_details"].get("reason") or "incomplete")
    last = turn["output"][-1] if turn["output"] else {}
    return None if last.get("type") == "message" and message_text(last).strip() else "max_steps"
