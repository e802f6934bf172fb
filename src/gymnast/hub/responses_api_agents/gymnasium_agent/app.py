"""The step loop: reset an environment, give it each model turn, take its observation and reward until it ends."""

from __future__ import annotations

import math
import uuid
from typing import TYPE_CHECKING, Any

from pydantic import PositiveInt

from gymnast.errors import CallError
from gymnast.kit import Agent, AgentSettings, ModelRef, ResourcesRef
from gymnast.kit.agent import conversation_of
from gymnast.types.failure import FailureDetail, Stage, bounded
from gymnast.types.responses import sum_usage, with_defaults
from gymnast.types.task import PARAMS

if TYPE_CHECKING:
    from gymnast.types.items import CreateParams, Response
    from gymnast.types.json import JsonObject
    from gymnast.wire.calls import Scope


class GymnasiumAgentSettings(AgentSettings):
    resources_server: ResourcesRef
    model_server: ModelRef
    max_steps: PositiveInt = 10
    """Steps after which an episode is truncated."""


class GymnasiumAgent(Agent):
    """Runs episodes of a step environment. The reward of an attempt is the sum of its steps' rewards."""

    settings: GymnasiumAgentSettings

    async def run(self, row: JsonObject, params: CreateParams, scope: Scope) -> JsonObject:
        environment = self.settings.resources_server.name
        begun = await self.calls.expect(
            environment, "/reset", row, scope, stage=Stage.SEED, timeout_s=self.settings.seed_timeout_s, validated=True
        )
        info = _info(begun)
        try:
            return await self._episode(row, params, scope, begun.get("observation"), info)
        finally:
            if info.get("supports_explicit_close"):
                await self._close(environment, scope)

    async def respond(self, params: CreateParams, scope: Scope) -> Response:
        response: Response = await self.ask(self.settings.model_server.name, params, scope)
        return response

    async def aggregate_metrics(self, body: JsonObject) -> JsonObject:
        reply: JsonObject = await self.calls.expect(
            self.settings.resources_server.name, "/aggregate_metrics", body, stage=Stage.AGENT
        )
        return reply

    async def _episode(
        self, row: JsonObject, params: CreateParams, scope: Scope, observation: str | None, info: JsonObject
    ) -> JsonObject:
        history = conversation_of(params)
        produced = _observed(observation)
        usage, rewards = None, list[float]()
        while True:
            turn = await self.ask(self.settings.model_server.name, {**params, "input": history + produced}, scope)
            produced += turn["output"]
            usage = sum_usage(usage, turn.get("usage"))
            step = await self._step(row, turn, scope, idempotent=bool(info.get("supports_step_idempotency")))
            rewards.append(step["reward"])
            over = step.get("terminated") or step.get("truncated")
            if over or turn.get("incomplete_details") or len(rewards) == self.settings.max_steps:
                break
            produced += _tool_outputs(step) + _observed(step.get("observation"))
        return {
            PARAMS: with_defaults(row[PARAMS]),
            "response": {**turn, "output": produced, "usage": usage},
            "reward": math.fsum(rewards),
            "terminated": bool(step.get("terminated")),
            "truncated": not step.get("terminated"),
            "num_steps": len(rewards),
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
        text = f"{environment} answered /step with reward {reward!r}"
        detail = FailureDetail("verifier_bad_reply", Stage.VERIFY, text, instance=environment, body=bounded(str(step)))
        raise CallError(detail)

    async def _close(self, environment: str, scope: Scope) -> None:
        try:
            await self.calls.call(environment, "/close", {}, scope, stage=Stage.CLOSE, timeout_s=5.0)
        except CallError as error:
            self.log.warning("could not close the episode of rollout %s: %s", scope.rollout_id, error)


def _info(reply: Any) -> JsonObject:
    info = reply.get("info") if isinstance(reply, dict) else None
    return info if isinstance(info, dict) else {}


def _observed(observation: str | None) -> list[JsonObject]:
    return [] if observation is None else [{"type": "message", "role": "user", "content": observation}]


def _tool_outputs(step: JsonObject) -> list[JsonObject]:
    return [
        {"type": "function_call_output", "call_id": output["call_id"], "output": output["output"]}
        for output in _info(step).get("tool_outputs") or ()
    ]
