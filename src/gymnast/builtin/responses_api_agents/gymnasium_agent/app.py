"""The step loop: reset an environment, pass it each model turn, collect observations and rewards until it ends."""

from __future__ import annotations

import math
import uuid
from typing import Any

from pydantic import PositiveInt

from gymnast.builtin.responses_api_agents.environment_agent import EnvironmentAgent, EnvironmentAgentSettings
from gymnast.kit import (
    PARAMS,
    CallError,
    CreateParams,
    FailureDetail,
    FailureKind,
    JsonObject,
    Scope,
    Stage,
    bounded,
    input_items,
    sum_usage,
    with_defaults,
)


class GymnasiumAgentSettings(EnvironmentAgentSettings):
    max_steps: PositiveInt = 10
    """Steps after which an episode is truncated."""


class GymnasiumAgent(EnvironmentAgent):
    """Runs episodes of a step environment. The reward of an attempt is the sum over its steps."""

    settings: GymnasiumAgentSettings

    async def run(self, row: JsonObject, params: CreateParams, scope: Scope) -> JsonObject:
        environment = self.settings.resources_server.name
        reply = await self.calls.expect(
            environment, "/reset", row, scope, stage=Stage.SEED, timeout_s=self.settings.seed_timeout_s, validated=True
        )
        info = _info(reply)
        try:
            return await self._episode(row, params, scope, reply.get("observation"), info)
        finally:
            if info.get("supports_explicit_close"):
                await self.close_session(scope, "/close")

    async def _episode(
        self, row: JsonObject, params: CreateParams, scope: Scope, observation: str | None, info: JsonObject
    ) -> JsonObject:
        history = input_items(params) + _observation_items(observation)
        produced: list[JsonObject] = []
        usage, reward, steps, is_over = None, 0.0, 0, False
        while not is_over and steps < self.settings.max_steps:
            turn = await self.call_model(
                self.settings.model_server.name, {**params, "input": history + produced}, scope
            )
            produced += turn["output"]
            usage = sum_usage(usage, turn.get("usage"))
            step = await self._step(row, turn, scope, idempotent=bool(info.get("supports_step_idempotency")))
            reward += step["reward"]
            steps += 1
            is_over = bool(step.get("terminated") or step.get("truncated"))
            if not is_over:
                produced += _tool_outputs(step) + _observation_items(step.get("observation"))
        return {
            PARAMS: {**with_defaults(row[PARAMS]), "input": history},
            "response": {**turn, "output": produced, "usage": usage},
            "reward": reward,
            "terminated": bool(step.get("terminated")),
            "truncated": bool(step.get("truncated")) or not is_over,
            "info": _info(step),
            "num_steps": steps,
        }

    async def _step(self, row: JsonObject, turn: JsonObject, scope: Scope, *, idempotent: bool) -> JsonObject:
        environment = self.settings.resources_server.name
        body = {**row, "response": turn}
        if idempotent:
            body["_ng_step_request_id"] = uuid.uuid4().hex
        step = await self.calls.expect(
            environment,
            "/step",
            body,
            scope,
            stage=Stage.VERIFY,
            timeout_s=self.settings.verify_timeout_s,
            validated=True,
        )
        reward = step.get("reward", 0.0) if isinstance(step, dict) else None
        if isinstance(step, dict) and isinstance(reward, (int, float)) and math.isfinite(reward):
            return {**step, "reward": float(reward)}
        text = f"{environment} replied to /step with reward {reward!r}"
        detail = FailureDetail(
            FailureKind.VERIFIER_BAD_REPLY, Stage.VERIFY, text, instance=environment, body=bounded(str(step))
        )
        raise CallError(detail)


def _info(reply: Any) -> JsonObject:
    info = reply.get("info") if isinstance(reply, dict) else None
    return info if isinstance(info, dict) else {}


def _observation_items(observation: str | None) -> list[JsonObject]:
    return [{"type": "message", "role": "user", "content": observation}] if observation else []


def _tool_outputs(step: JsonObject) -> list[JsonObject]:
    return [
        {"type": "function_call_output", "call_id": output["call_id"], "output": output["output"]}
        for output in _info(step).get("tool_outputs") or ()
    ]
