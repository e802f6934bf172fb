"""The environment under test, and how to play it: turns a POST /verify request into the calls an agent would make.

If the environment has sessions, the tool calls in the response's output are really made before it is scored; a step
environment is reset and given the output turn by turn.
"""

from __future__ import annotations

import asyncio
import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal

from gymnast.errors import CallError
from gymnast.kit.attempt import Task, parse_arguments
from gymnast.types.failure import FailureDetail, FailureKind
from gymnast.types.responses import is_model_turn, make_response
from gymnast.types.task import FAILURE_CLASS, PARAMS
from gymnast.wire.calls import Calls, Scope
from gymnast.wire.message import Reply, error_text

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from contextlib import AbstractAsyncContextManager

    from gymnast.checks.conformance.cases import Case
    from gymnast.types.json import JsonObject

Form = Literal["verify", "step"]
CALL_TIMEOUT_S: Final = 120.0


@dataclass(frozen=True, slots=True)
class Subject:
    """A callable environment, with its rows and cases."""

    instance: str
    calls: Calls
    form: Form
    stateful: bool
    task_type: type[Task] | None
    """None for an application not built with the kit."""
    reopen: Callable[[float], AbstractAsyncContextManager[Calls]] | None = None
    """Starts the environment again with this session TTL in seconds; None if its sessions are not the kit's."""
    rows: Sequence[JsonObject] = ()
    rows_path: str = ""
    cases: Sequence[Case] = ()
    cases_path: str = ""
    tools: Sequence[JsonObject] = ()
    """The tools that the environment declares, which agents offer for rows that name none."""
    agents: frozenset[str] = field(default_factory=frozenset)
    """The agents of the configuration that use this environment."""

    @property
    def open_path(self) -> str:
        return "/reset" if self.form == "step" else "/seed_session"

    @property
    def score_path(self) -> str:
        return "/step" if self.form == "step" else "/verify"

    @property
    def close_path(self) -> str:
        return "/close" if self.form == "step" else "/close_session"

    @property
    def base(self) -> JsonObject | None:
        """A good request to vary: a full_reward case, or an example row with a response."""
        full = next((case.request for case in self.cases if case.kind == "full_reward"), None)
        if full is not None or not self.rows:
            return full
        row = self.rows[0]
        return {**row, "response": response_to(row, [assistant_message("…")])}


@dataclass(frozen=True, slots=True)
class Outcome:
    """How playing a request ended: with a reward, or with an error reply."""

    path: str
    status: int
    body: Any = None
    reward: float | None = None
    failure: FailureDetail | None = None

    @property
    def is_judge_failure(self) -> bool:
        return isinstance(self.body, dict) and self.body.get(FAILURE_CLASS) == FailureKind.JUDGE_FAILED.value

    def __str__(self) -> str:
        if self.reward is not None:
            return f"reward {self.reward:g}"
        if self.is_judge_failure:
            return f"judge_failed: {self.body.get('_ng_failure_judge_error')}"
        text = self.failure.message if self.failure else error_text(Reply(self.status, self.body))
        return f"{self.status or 'no reply'} from POST {self.path}: {text[:300]}"


async def play(subject: Subject, request: JsonObject) -> Outcome:
    """Play a request in its own session."""
    scope = Scope()
    if subject.form == "step":
        return await _play_steps(subject, request, scope)
    seeded = await post(subject, "/seed_session", row_of(request), scope)
    if seeded.status != 200:
        return seeded
    if subject.stateful:
        for name, arguments in _calls_in(request, subject.tools):
            outcome = await post(subject, f"/{name}", arguments, scope)
            if outcome.status >= 500 or outcome.failure is not None:
                return outcome
    return await post(subject, "/verify", request, scope)


def row_of(request: JsonObject) -> JsonObject:
    """A request without its response."""
    return {key: value for key, value in request.items() if key != "response"}


async def post(subject: Subject, path: str, body: Any, scope: Scope | None = None) -> Outcome:
    """Make one call, after yielding to other tasks."""
    await asyncio.sleep(0)
    try:
        reply = await subject.calls.call(subject.instance, path, body, scope, timeout_s=CALL_TIMEOUT_S)
    except CallError as error:
        return Outcome(path, 0, failure=error.detail)
    return Outcome(path, reply.status, reply.body, _reward_in(reply), reply.failure)


async def _play_steps(subject: Subject, request: JsonObject, scope: Scope) -> Outcome:
    reset = await post(subject, "/reset", row_of(request), scope)
    if reset.status != 200:
        return reset
    rewards: list[float] = []
    for turn in turns_of(request.get("response")):
        step = await post(subject, "/step", {**request, "response": turn}, scope)
        if step.status != 200 or step.reward is None:
            return step
        rewards.append(step.reward)
        if step.body.get("terminated") or step.body.get("truncated"):
            return Outcome("/step", 200, step.body, math.fsum(rewards))
    await post(subject, "/close", {}, scope)
    return Outcome("/step", 200, step.body, math.fsum(rewards))


def turns_of(response: Any) -> list[Any]:
    """Split a response into one response per model turn, without the environment's items in between."""
    output = response.get("output") if isinstance(response, dict) else None
    if not isinstance(output, list) or not all(isinstance(item, dict) for item in output):
        return [response]
    turns: list[list[JsonObject]] = [[]]
    for item in output:
        if not is_model_turn(item):
            if turns[-1]:
                turns.append([])
            continue
        has_message = any(earlier.get("type", "message") == "message" for earlier in turns[-1])
        if has_message and item.get("type", "message") != "function_call":
            turns.append([])
        turns[-1].append(item)
    if not turns[-1] and len(turns) > 1:
        turns.pop()
    return [{**response, "output": turn} for turn in turns]


def response_to(row: JsonObject, output: list[Any]) -> Any:
    params = row.get(PARAMS)
    return make_response(
        params if isinstance(params, dict) else {"input": ""},  # type: ignore[arg-type]
        output,
        response_id="resp_check",
        created_at=0.0,
        model="check",
        usage=None,
    )


def assistant_message(text: str) -> JsonObject:
    part = {"type": "output_text", "text": text, "annotations": []}
    return {"type": "message", "role": "assistant", "id": "msg_check", "status": "completed", "content": [part]}


def function_call(name: str, arguments: str) -> JsonObject:
    return {"type": "function_call", "call_id": "call_check", "name": name, "arguments": arguments}


def _calls_in(request: JsonObject, own_tools: Sequence[JsonObject]) -> list[tuple[str, JsonObject]]:
    """The calls an agent would forward: to tools that it offers, with an object as arguments."""
    params, response = request.get(PARAMS), request.get("response")
    tools = params.get("tools", own_tools) or () if isinstance(params, dict) else ()
    declared = {tool.get("name") for tool in tools if isinstance(tool, dict)}
    output = response.get("output") if isinstance(response, dict) else None
    calls: list[tuple[str, JsonObject]] = []
    for item in output if isinstance(output, list) else ():
        if isinstance(item, dict) and item.get("type") == "function_call" and item.get("name") in declared:
            arguments = parse_arguments(item.get("arguments", ""))
            if arguments is not None:
                calls.append((item["name"], arguments))
    return calls


def _reward_in(reply: Reply) -> float | None:
    if reply.status != 200 or not isinstance(reply.body, dict) or FAILURE_CLASS in reply.body:
        return None
    reward = reply.body.get("reward")
    usable = isinstance(reward, (int, float)) and not isinstance(reward, bool) and math.isfinite(reward)
    return float(reward) if usable else None  # type: ignore[arg-type]
