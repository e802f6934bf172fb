"""The tool loop: seed a session, let the model call tools until it answers, verify."""

from __future__ import annotations

import asyncio
from typing import cast

import orjson
from pydantic import PositiveInt

from gymnast.builtin.responses_api_agents.environment_agent import EnvironmentAgent, EnvironmentAgentSettings
from gymnast.kit import (
    CallError,
    CreateParams,
    JsonObject,
    Reply,
    Response,
    Scope,
    Stage,
    input_items,
    kind_of_reply,
    parse_arguments,
    reply_failure,
    request_verdict,
    seed_session,
    sum_usage,
)

# Replies that mean the environment is down; any other error reply is for the model to read.
_ENVIRONMENT_DOWN = frozenset({502, 503, 504})


class SimpleAgentSettings(EnvironmentAgentSettings):
    max_steps: PositiveInt | None = 64
    """Model calls per attempt; with null only the rollout's timeout applies."""
    max_tool_calls: PositiveInt | None = 4096
    """Tool calls per attempt: a reply that exceeds them ends the attempt as truncated, like the last step."""


class SimpleAgent(EnvironmentAgent):
    """Runs the tool loop with one environment and one model."""

    settings: SimpleAgentSettings

    async def run(self, row: JsonObject, params: CreateParams, scope: Scope) -> JsonObject:
        environment = self.settings.resources_server.name
        offers = await seed_session(self.calls, environment, row, scope, self.settings)
        try:
            parallel = bool(offers.get("supports_parallel_tools"))
            response = await self._converse(params, scope, parallel=parallel)
            return await request_verdict(self.calls, environment, row, response, scope, self.settings)
        except BaseException:
            if offers.get("supports_explicit_close"):
                await self.close_session(scope)
            raise

    async def respond(self, params: CreateParams, scope: Scope) -> Response:
        return await self._converse(params, scope, parallel=False)

    async def _converse(self, params: CreateParams, scope: Scope, *, parallel: bool) -> Response:
        history = input_items(params)
        produced: list[JsonObject] = []
        usage, steps, tool_calls = None, 0, 0
        while True:
            turn = await self.call_model(
                self.settings.model_server.name, {**params, "input": history + produced}, scope
            )
            steps += 1
            produced += turn["output"]
            usage = sum_usage(usage, turn.get("usage"))
            if steps == self.settings.max_steps or _is_final(turn):
                return cast("Response", {**turn, "output": produced, "usage": usage})
            calls = _calls(turn)
            tool_calls += len(calls)
            if self.settings.max_tool_calls is not None and tool_calls > self.settings.max_tool_calls:
                cut = turn.get("incomplete_details") or {"reason": "max_tool_calls"}
                return cast("Response", {**turn, "output": produced, "usage": usage, "incomplete_details": cut})
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
        """Whether a reply is a failure of the environment, as opposed to an error for the model to read."""
        return not reply.ok and (reply.failure is not None or reply.status in _ENVIRONMENT_DOWN)


def _calls(turn: JsonObject) -> list[JsonObject]:
    return [item for item in turn["output"] if item.get("type") == "function_call"]


def _is_final(turn: JsonObject) -> bool:
    """Whether the model was truncated, or answered without calling tools. Reasoning alone is not an answer."""
    if turn.get("incomplete_details"):
        return True
    answered = any(item.get("type") == "message" and item.get("role") == "assistant" for item in turn["output"])
    return answered and not _calls(turn)


def _error(text: str) -> str:
    return orjson.dumps({"error": text}).decode()
