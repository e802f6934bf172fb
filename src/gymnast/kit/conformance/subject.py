"""The environment under test and how it is played: a request of POST /verify as the calls an agent would make.

Where the environment keeps sessions, the tool calls in the response's output are made for real before it is scored; an
environment of steps is reset and given the output turn by turn.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal

from gymnast.errors import CallError
from gymnast.kit.attempt import Task, parse_arguments
from gymnast.types.failure import FailureDetail
from gymnast.types.responses import is_model_turn, response_object
from gymnast.types.task import FAILURE_CLASS, PARAMS
from gymnast.wire.calls import Calls, Scope
from gymnast.wire.message import Reply, error_text

if TYPE_CHECKING:
    from gymnast.kit.conformance.cases import Case
    from gymnast.types.json import JsonObject

Form = Literal["verify", "step"]
CALL_TIMEOUT_S: Final = 120.0


@dataclass(frozen=True, slots=True)
class Subject:
    """An environment that can be called, and what its folder holds."""

    instance: str
    calls: Calls
    form: Form
    stateful: bool
    task_type: type[Task] | None
    """None for an application that is not of our kit."""
    reopened: Callable[[float], AbstractAsyncContextManager[Calls]] | None = None
    """The same environment once more, its sessions expiring after that many seconds; None where that is not ours."""
    rows: Sequence[JsonObject] = ()
    rows_at: str = ""
    cases: Sequence[Case] = ()
    cases_at: str = ""
    agents: frozenset[str] = field(default_factory=frozenset)
    """The agents of the configuration that use this environment."""

    @property
    def base(self) -> JsonObject | None:
        """A good request to be varied: that of a case with full reward, or an example row that was answered."""
        full = next((case.request for case in self.cases if case.kind == "full_reward"), None)
        if full is not None or not self.rows:
            return full
        row = self.rows[0]
        return {**row, "response": response_to(row, [said("…")])}


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a play ended: the reward, or the reply that was no good."""

    path: str
    status: int
    body: Any = None
    reward: float | None = None
    failure: FailureDetail | None = None

    @property
    def is_judge_failure(self) -> bool:
        return isinstance(self.body, dict) and self.body.get(FAILURE_CLASS) == "judge_failed"

    def __str__(self) -> str:
        if self.reward is not None:
            return f"reward {self.reward:g}"
        if self.is_judge_failure:
            return f"judge_failed: {self.body.get('_ng_failure_judge_error')}"
        text = self.failure.message if self.failure else error_text(Reply(self.status, self.body))
        return f"{self.status or 'no answer'} from POST {self.path}: {text[:300]}"


async def play(subject: Subject, request: JsonObject) -> Outcome:
    """Play a request in a session of its own."""
    scope = Scope()
    if subject.form == "step":
        return await _play_steps(subject, request, scope)
    row = {key: value for key, value in request.items() if key != "response"}
    seeded = await post(subject, "/seed_session", row, scope)
    if seeded.status != 200:
        return seeded
    if subject.stateful:
        for name, arguments in _calls_in(request):
            used = await post(subject, f"/{name}", arguments, scope)
            if used.status >= 500 or used.failure is not None:
                return used
    return await post(subject, "/verify", request, scope)


async def post(subject: Subject, path: str, body: Any, scope: Scope | None = None) -> Outcome:
    """One call, with a moment for others before it."""
    await asyncio.sleep(0)
    try:
        reply = await subject.calls.call(subject.instance, path, body, scope, timeout_s=CALL_TIMEOUT_S)
    except CallError as error:
        return Outcome(path, 0, failure=error.detail)
    return Outcome(path, reply.status, reply.body, _reward_in(reply), reply.failure)


async def _play_steps(subject: Subject, request: JsonObject, scope: Scope) -> Outcome:
    row = {key: value for key, value in request.items() if key != "response"}
    begun = await post(subject, "/reset", row, scope)
    if begun.status != 200:
        return begun
    rewards: list[float] = []
    response = request.get("response")
    for turn in turns_of(response):
        taken = await post(subject, "/step", {**request, "response": turn}, scope)
        if taken.status != 200 or taken.reward is None:
            return taken
        rewards.append(taken.reward)
        if taken.body.get("terminated") or taken.body.get("truncated"):
            return Outcome("/step", 200, taken.body, math.fsum(rewards))
    await post(subject, "/close", {}, scope)
    return Outcome("/step", 200, taken.body, math.fsum(rewards))


def turns_of(response: Any) -> list[Any]:
    """A response as one response for each turn of the model; what the environment said in between is left out."""
    output = response.get("output") if isinstance(response, dict) else None
    if not isinstance(output, list) or not all(isinstance(item, dict) for item in output):
        return [response]
    turns: list[list[JsonObject]] = [[]]
    for item in output:
        if not is_model_turn(item):
            if turns[-1]:
                turns.append([])
            continue
        spoken = any(earlier.get("type", "message") == "message" for earlier in turns[-1])
        if spoken and item.get("type", "message") != "function_call":
            turns.append([])
        turns[-1].append(item)
    if not turns[-1] and len(turns) > 1:
        turns.pop()
    return [{**response, "output": turn} for turn in turns]


def response_to(row: JsonObject, output: list[Any]) -> Any:
    """A response object with this output."""
    params = row.get(PARAMS)
    return response_object(
        params if isinstance(params, dict) else {"input": ""},  # type: ignore[arg-type]
        output,
        response_id="resp_check",
        created_at=0.0,
        model="check",
        usage=None,
    )


def said(text: str) -> JsonObject:
    """An assistant message."""
    part = {"type": "output_text", "text": text, "annotations": []}
    return {"type": "message", "role": "assistant", "id": "msg_check", "status": "completed", "content": [part]}


def called(name: str, arguments: str) -> JsonObject:
    """A function call."""
    return {"type": "function_call", "call_id": "call_check", "name": name, "arguments": arguments}


def _calls_in(request: JsonObject) -> list[tuple[str, JsonObject]]:
    """The calls that an agent would have passed on: to declared tools, with arguments that are an object."""
    params, response = request.get(PARAMS), request.get("response")
    tools = params.get("tools") or () if isinstance(params, dict) else ()
    declared = {tool.get("name") for tool in tools if isinstance(tool, dict)}
    output = response.get("output") if isinstance(response, dict) else None
    found: list[tuple[str, JsonObject]] = []
    for item in output if isinstance(output, list) else ():
        if isinstance(item, dict) and item.get("type") == "function_call" and item.get("name") in declared:
            arguments = parse_arguments(item.get("arguments", ""))
            if arguments is not None:
                found.append((item["name"], arguments))
    return found


def _reward_in(reply: Reply) -> float | None:
    if reply.status != 200 or not isinstance(reply.body, dict) or FAILURE_CLASS in reply.body:
        return None
    reward = reply.body.get("reward")
    usable = isinstance(reward, (int, float)) and not isinstance(reward, bool) and math.isfinite(reward)
    return float(reward) if usable else None  # type: ignore[arg-type]
