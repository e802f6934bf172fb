"""The tool loop: seed a session, let the model speak and call tools until it answers, verify."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, cast

import orjson
from pydantic import PositiveInt

from gymnast.errors import CallError
from gymnast.kit import Agent, AgentSettings, ModelRef, ResourcesRef
from gymnast.kit.agent import conversation_of
from gymnast.kit.attempt import parse_arguments
from gymnast.kit.verify_call import verified
from gymnast.types.failure import Stage
from gymnast.types.responses import sum_usage
from gymnast.wire.classify import kind_of_reply, reply_failure

if TYPE_CHECKING:
    from gymnast.types.items import CreateParams, Response
    from gymnast.types.json import JsonObject
    from gymnast.wire.calls import Scope
    from gymnast.wire.message import Reply

# Replies that say the environment itself is in trouble; anything else it answers is for the model to read.
_ENVIRONMENT_DOWN = frozenset({502, 503, 504})


class SimpleAgentSettings(AgentSettings):
    resources_server: ResourcesRef
    model_server: ModelRef
    max_steps: PositiveInt | None = 64
    """Model calls an attempt may make; null leaves only the rollout's deadline."""


class SimpleAgent(Agent):
    """Runs the tool loop over one environment and one model."""

    settings: SimpleAgentSettings

    async def run(self, row: JsonObject, params: CreateParams, scope: Scope) -> JsonObject:
        environment = self.settings.resources_server.name
        offers = await self.calls.expect(
            environment, "/seed_session", row, scope, stage=Stage.SEED, timeout_s=self.settings.seed_timeout_s
        )
        offers = offers if isinstance(offers, dict) else {}
        try:
            parallel = bool(offers.get("supports_parallel_tools"))
            response = await self._converse(params, scope, parallel=parallel)
            return await verified(self.calls, environment, row, response, scope, self.settings)
        except BaseException:
            if offers.get("supports_explicit_close"):
                await self._close_session(environment, scope)
            raise

    async def respond(self, params: CreateParams, scope: Scope) -> Response:
        return await self._converse(params, scope, parallel=False)

    async def aggregate_metrics(self, body: JsonObject) -> JsonObject:
        reply: JsonObject = await self.calls.expect(
            self.settings.resources_server.name, "/aggregate_metrics", body, stage=Stage.AGENT
        )
        return reply

    async def _converse(self, params: CreateParams, scope: Scope, *, parallel: bool) -> Response:
        history = conversation_of(params)
        produced: list[JsonObject] = []
        usage, steps = None, 0
        while True:
            turn = await self.ask(self.settings.model_server.name, {**params, "input": history + produced}, scope)
            steps += 1
            produced += turn["output"]
            usage = sum_usage(usage, turn.get("usage"))
            if steps == self.settings.max_steps or _is_final(turn):
                return cast("Response", {**turn, "output": produced, "usage": usage})
            calls = _calls(turn)
            if calls:
                produced += await self._use_tools(calls, params, scope, parallel=parallel)

    async def _use_tools(
        self, calls: list[JsonObject], params: CreateParams, scope: Scope, *, parallel: bool
    ) -> list[JsonObject]:
        declared = {tool["name"] for tool in params.get("tools", ()) if tool.get("type") == "function"}
        if not parallel or len(calls) == 1:
            return [await self._use_tool(call, declared, scope) for call in calls]
        try:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(self._use_tool(call, declared, scope)) for call in calls]
        except BaseExceptionGroup as errors:  # raised inside `except*`, some releases of 3.11 wrap it again
            raise next((error for error in errors.exceptions if isinstance(error, CallError)), errors) from None
        return [task.result() for task in tasks]

    async def _use_tool(self, call: JsonObject, declared: set[str], scope: Scope) -> JsonObject:
        output = await self._tool_output(call["name"], call["arguments"], declared, scope)
        return {"type": "function_call_output", "call_id": call["call_id"], "output": output}

    async def _tool_output(self, name: str, arguments: str, declared: set[str], scope: Scope) -> str:
        if name not in declared:
            known = ", ".join(sorted(declared)) or "none"
            return _error(f"There is no tool '{name}'. Tools you may call: {known}.")
        parsed = parse_arguments(arguments)
        if parsed is None:
            return _error(f"Invalid tool call arguments: not a JSON object: {arguments[:200]}")
        environment = self.settings.resources_server.name
        reply = await self.calls.call(
            environment, f"/{name}", parsed, scope, stage=Stage.TOOL, timeout_s=self.settings.tool_timeout_s
        )
        if self._is_failure(reply):
            kind = kind_of_reply(Stage.TOOL, reply.status)
            raise CallError(
                reply_failure(reply, kind, Stage.TOOL, environment, f"/{name}", self.calls.address(environment))
            )
        return reply.text()

    def _is_failure(self, reply: Reply) -> bool:
        """A failure of the environment, as opposed to an answer that the model should read."""
        return not reply.ok and (reply.failure is not None or reply.status in _ENVIRONMENT_DOWN)

    async def _close_session(self, environment: str, scope: Scope) -> None:
        try:
            await self.calls.call(environment, "/close_session", {}, scope, stage=Stage.CLOSE, timeout_s=5.0)
        except CallError as error:
            self.log.warning("could not close the session of rollout %s: %s", scope.rollout_id, error)


def _calls(turn: JsonObject) -> list[JsonObject]:
    return [item for item in turn["output"] if item.get("type") == "function_call"]


def _is_final(turn: JsonObject) -> bool:
    """The model was cut off, or it answered without calling tools. Reasoning alone is not an answer."""
    if turn.get("incomplete_details"):
        return True
    answered = any(item.get("type") == "message" and item.get("role") == "assistant" for item in turn["output"])
    return answered and not _calls(turn)


def _error(text: str) -> str:
    return orjson.dumps({"error": text}).decode()
