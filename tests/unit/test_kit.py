"""The kit: tools from signatures, sessions, what verify may return, metrics, extraction."""

from __future__ import annotations

import asyncio
import math
import statistics
from collections.abc import Callable
from typing import Annotated, Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, Field

from gymnast.errors import UserError
from gymnast.kit import (
    Attempt,
    Environment,
    EnvironmentSettings,
    Step,
    StepEnvironment,
    Task,
    ToolError,
    ToolOutput,
    Verdict,
    tool,
)
from gymnast.kit.extract import find_boxed, last_boxed, unwrap_text
from gymnast.kit.metrics import aggregate, own_numbers, usage_numbers
from gymnast.kit.packages import require_package
from gymnast.kit.sessions import NoSession, Sessions
from gymnast.kit.tools import collect_tools
from gymnast.wire.calls import Calls, Scope, Transport
from gymnast.wire.http_client import HttpClient
from gymnast.wire.server import ServerContext
from gymnast.wire.transports import InProcessTransport
from tests.helpers.waiting import eventually

RESPONSE: dict[str, Any] = {
    "id": "r",
    "created_at": 1.0,
    "model": "m",
    "object": "response",
    "parallel_tool_calls": True,
    "tool_choice": "auto",
    "tools": [],
    "output": [],
}
ROW: dict[str, Any] = {"responses_create_params": {"input": "x"}}


def hosted(make: Callable[[ServerContext], Any]) -> tuple[Any, Calls]:
    """A server and calls to it in this process."""
    transports: dict[str, Transport] = {}
    calls = Calls(transports)
    server = make(ServerContext(calls, HttpClient()))
    transports["env"] = InProcessTransport(server)
    return server, calls


# --- tools -----------------------------------------------------------------------------------------------------------


class Item(BaseModel):
    name: str
    count: int = 1


class Shop(Environment[Task, None]):
    parallel_tools = True

    @tool
    async def order(
        self,
        items: list[Item],
        speed: Literal["slow", "fast"],
        note: str | None = None,
        limit: Annotated[int, Field(ge=1, description="At most this many.")] = 10,
    ) -> dict[str, Any]:
        """Order things.

        Long explanation.

        Args:
            items: What to order.
            speed: How fast.
        """
        return {"ordered": sum(item.count for item in items), "speed": speed, "limit": limit}

    @tool
    async def plain(self) -> str:
        """Say something."""
        return 'it said "hi"'

    @tool
    async def refuse(self) -> None:
        """Refuse."""
        raise ToolError("out of stock")

    async def verify(self, attempt: Attempt[Task, None]) -> float:
        return 1.0


def shop() -> tuple[Shop, Calls]:
    return hosted(lambda context: Shop("env", EnvironmentSettings(), context))


def test_a_tools_schema_comes_from_its_signature() -> None:
    declared = shop()[0].tools["order"].declaration()
    assert declared["name"] == "order"
    assert declared["description"] == "Order things.\n\nLong explanation."
    schema = declared["parameters"]
    assert schema is not None
    assert schema["required"] == ["items", "speed"]
    assert schema["properties"]["items"]["description"] == "What to order."
    assert schema["properties"]["speed"] == {"description": "How fast.", "enum": ["slow", "fast"], "type": "string"}
    assert schema["properties"]["limit"]["description"] == "At most this many."
    assert schema["properties"]["limit"]["minimum"] == 1
    assert schema["additionalProperties"] is False
    assert "title" not in str(schema)
    assert declared["strict"] is False  # not all arguments are required
    assert shop()[0].tools["plain"].declaration()["strict"] is True


async def test_arguments_arrive_typed_and_wrong_ones_are_422() -> None:
    _, calls = shop()
    reply = await calls.call("env", "/order", {"items": [{"name": "a", "count": 2}, {"name": "b"}], "speed": "fast"})
    assert reply.body == {"ordered": 3, "speed": "fast", "limit": 10}
    bad = await calls.call("env", "/order", {"items": [{"count": 2}], "speed": "warp", "limit": 0})
    assert bad.status == 422
    assert {tuple(entry["loc"]) for entry in bad.body["detail"]} == {
        ("body", "items", 0, "name"),
        ("body", "speed"),
        ("body", "limit"),
    }


@pytest.mark.parametrize("body", [[], "x", 5, True])
async def test_arguments_that_are_no_object_are_refused_as_by_fastapi(body: Any) -> None:
    _, calls = shop()
    (entry,) = (await calls.call("env", "/order", body)).body["detail"]
    message = "Input should be a valid dictionary or object to extract fields from"
    assert entry == {"type": "model_attributes_type", "loc": ["body"], "msg": message, "input": body}


async def test_arguments_that_are_null_are_missing_unless_none_is_required() -> None:
    _, calls = shop()
    (entry,) = (await calls.call("env", "/order", None)).body["detail"]
    assert (entry["type"], entry["loc"], entry["msg"]) == ("missing", ["body"], "Field required")
    assert (await calls.call("env", "/plain", None)).status == 200


async def test_text_results_are_sent_as_text_and_tool_errors_as_errors() -> None:
    _, calls = shop()
    assert (await calls.call("env", "/plain", {})).text() == 'it said "hi"'
    refused = await calls.call("env", "/refuse", {})
    assert (refused.status, refused.body, refused.failure) == (400, {"error": "out of stock"}, None)


def test_reserved_and_sync_tools_are_refused() -> None:
    class Bad(Environment[Task, None]):
        @tool
        async def verify(self, attempt: Any) -> float:
            return 1.0

    class Sync(Environment[Task, None]):
        @tool  # type: ignore[type-var]
        def now(self) -> str:
            return "x"

        async def verify(self, attempt: Any) -> float:
            return 1.0

    context = ServerContext(Calls({}), HttpClient())
    with pytest.raises(TypeError, match="reserved"):
        Bad("env", EnvironmentSettings(), context)
    with pytest.raises(TypeError, match="async"):
        Sync("env", EnvironmentSettings(), context)


def test_tools_are_inherited_and_can_be_replaced() -> None:
    class Outlet(Shop):
        @tool
        async def plain(self) -> str:
            """Say less."""
            return "hm"

    server, _ = hosted(lambda context: Outlet("env", EnvironmentSettings(), context))
    assert set(collect_tools(server)) == {"order", "plain", "refuse"}
    assert server.tools["plain"].description == "Say less."


# --- sessions --------------------------------------------------------------------------------------------------------


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


async def test_sessions_expire_when_nobody_uses_them() -> None:
    closed: list[str] = []
    clock = Clock()

    async def close(state: str) -> None:
        closed.append(state)

    sessions: Sessions[str] = Sessions(10.0, close, clock=clock)
    await sessions.open("a", "A")
    await sessions.open("b", "B")
    clock.now = 8
    async with sessions.use("b", exclusive=False) as state:
        assert state == "B"
    clock.now = 12
    assert await sessions.sweep() == 1
    assert closed == ["A"]
    with pytest.raises(NoSession) as caught:
        async with sessions.use("a", exclusive=False):
            pass
    assert caught.value.expired
    with pytest.raises(NoSession, match="seed_session"):
        async with sessions.use("never", exclusive=False):
            pass


async def test_a_session_in_use_does_not_expire() -> None:
    clock = Clock()

    async def close(_: str) -> None:
        pytest.fail("closed while in use")

    sessions: Sessions[str] = Sessions(10.0, close, clock=clock)
    await sessions.open("a", "A")
    async with sessions.use("a", exclusive=True):
        clock.now = 100
        assert await sessions.sweep() == 0


async def test_exclusive_users_come_one_after_the_other() -> None:
    async def close(_: list[int]) -> None:
        pass

    sessions: Sessions[list[int]] = Sessions(10.0, close)
    order: list[int] = []
    await sessions.open("a", order)

    async def user(number: int) -> None:
        async with sessions.use("a", exclusive=True) as found:
            found.append(number)
            await asyncio.sleep(0.001)
            found.append(number)

    await asyncio.gather(*(user(number) for number in range(5)))
    assert order == [0, 0, 1, 1, 2, 2, 3, 3, 4, 4]


async def test_opening_again_closes_the_old_session() -> None:
    closed: list[str] = []

    async def close(state: str) -> None:
        closed.append(state)

    sessions: Sessions[str] = Sessions(10.0, close)
    await sessions.open("a", "first")
    await sessions.open("a", "second")
    await sessions.close_all()
    assert closed == ["first", "second"]
    assert len(sessions) == 0


class Held:
    closed = False


class Stateful(Environment[Task, Held]):
    held: list[Held]

    async def open(self, task: Task) -> Held:
        self.held = [*getattr(self, "held", []), Held()]
        return self.held[-1]

    async def close(self, session: Held) -> None:
        session.closed = True

    @tool
    async def touch(self, session: Held) -> str:
        """Touch."""
        return "touched"

    async def verify(self, attempt: Attempt[Task, Held]) -> float:
        assert not attempt.session.closed
        return 0.5


async def test_a_forgotten_session_expires_and_says_so() -> None:
    server, calls = hosted(lambda found: Stateful("env", EnvironmentSettings(session_ttl_s=0.05), found))
    await server.start()
    scope = Scope()
    await calls.call("env", "/seed_session", ROW, scope)
    await eventually(lambda: server.held[0].closed)
    reply = await calls.call("env", "/touch", {}, scope)
    assert reply.status == 400
    assert reply.failure is not None
    assert reply.failure.kind == "session_expired"
    assert server.held[0].closed
    await server.stop()


async def test_stopping_closes_what_is_open() -> None:
    server, calls = hosted(lambda found: Stateful("env", EnvironmentSettings(), found))
    await server.start()
    await calls.call("env", "/seed_session", ROW, Scope())
    await server.stop()
    assert server.held[0].closed


async def test_close_session_frees_it_at_once() -> None:
    server, calls = hosted(lambda found: Stateful("env", EnvironmentSettings(), found))
    scope = Scope()
    assert (await calls.call("env", "/seed_session", ROW, scope)).body == {"supports_explicit_close": True}
    await calls.call("env", "/close_session", {}, scope)
    assert server.held[0].closed
    assert len(server.sessions) == 0


# --- verdicts --------------------------------------------------------------------------------------------------------


class Scoring(Environment[Task, None]):
    verdict: Any = 1.0

    async def verify(self, attempt: Attempt[Task, None]) -> Any:
        if isinstance(self.verdict, Exception):
            raise self.verdict
        return self.verdict


class Rich(Verdict):
    why: str
    parts: list[int]


async def scored(verdict: Any) -> Any:
    server, calls = hosted(lambda found: Scoring("env", EnvironmentSettings(), found))
    server.verdict = verdict
    return await calls.call("env", "/verify", {**ROW, "response": RESPONSE})


@pytest.mark.parametrize(("verdict", "reward"), [(1.0, 1.0), (0, 0.0), (True, 1.0), (-2.5, -2.5)])
async def test_numbers_are_rewards(verdict: Any, reward: float) -> None:
    body = (await scored(verdict)).body
    assert body["reward"] == reward
    assert isinstance(body["reward"], float)


async def test_a_typed_verdict_adds_its_fields() -> None:
    body = (await scored(Rich(reward=0.25, why="half", parts=[1, 2]))).body
    assert list(body) == ["responses_create_params", "response", "reward", "why", "parts"]


@pytest.mark.parametrize("verdict", [math.nan, math.inf, None, "good"])
async def test_what_is_not_a_finite_number_is_a_failure_and_never_a_reward(verdict: Any) -> None:
    reply = await scored(verdict)
    assert reply.status == 500
    assert reply.failure is not None
    assert reply.failure.kind == "verifier_bad_reply"


async def test_an_exception_of_the_verifier_is_a_failure_with_its_text() -> None:
    reply = await scored(ZeroDivisionError("division by zero"))
    assert reply.status == 500
    assert reply.failure is not None
    assert (reply.failure.kind, reply.failure.stage) == ("verifier_error", "verify")
    assert "ZeroDivisionError" in reply.failure.message


# --- attempts --------------------------------------------------------------------------------------------------------


def message(text: str) -> dict[str, Any]:
    part = {"type": "output_text", "text": text, "annotations": []}
    return {"type": "message", "role": "assistant", "id": "m", "status": "completed", "content": [part]}


def test_what_an_attempt_offers() -> None:
    output = [
        {"type": "reasoning", "id": "r", "summary": [{"type": "summary_text", "text": "secret answer"}]},
        message("first"),
        {"type": "function_call", "call_id": "1", "name": "f", "arguments": '{"a":1}'},
        {"type": "function_call_output", "call_id": "1", "output": "x"},
        {"type": "function_call", "call_id": "2", "name": "g", "arguments": "broken"},
        {"type": "message", "role": "user", "content": "observation"},
        message("second"),
    ]
    attempt: Attempt[Task, None] = Attempt(Task(), {}, {**RESPONSE, "output": output}, None)
    assert attempt.text == "firstsecond"
    assert attempt.last_text == "second"
    assert [(call.name, call.arguments) for call in attempt.tool_calls] == [("f", {"a": 1}), ("g", None)]
    assert not attempt.is_incomplete


# --- step environments -----------------------------------------------------------------------------------------------


class Walk(StepEnvironment[Task, list[str]]):
    async def reset(self, task: Task) -> tuple[list[str], str | None]:
        return [], "begin"

    async def step(self, turn: Attempt[Task, list[str]]) -> Step:
        turn.session.append(turn.last_text)
        outputs = [ToolOutput(call_id=call.call_id, output="done") for call in turn.tool_calls]
        over = len(turn.session) == 2
        return Step(observation=None if over else "go on", reward=0.5, terminated=over, tool_outputs=outputs)


async def test_a_step_environment_steps_until_it_ends() -> None:
    server, calls = hosted(lambda found: Walk("env", EnvironmentSettings(), found))
    scope = Scope()
    begun = (await calls.call("env", "/reset", ROW, scope)).body
    assert begun == {"observation": "begin", "info": {"supports_explicit_close": True}}
    call = {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}
    first = (await calls.call("env", "/step", {**ROW, "response": {**RESPONSE, "output": [call]}}, scope)).body
    assert (first["observation"], first["reward"], first["terminated"]) == ("go on", 0.5, False)
    assert first["info"] == {"tool_outputs": [{"call_id": "c", "output": "done"}]}
    second = (await calls.call("env", "/step", {**ROW, "response": RESPONSE}, scope)).body
    assert second["terminated"]
    assert len(server.sessions) == 0
    late = await calls.call("env", "/step", {**ROW, "response": RESPONSE}, scope)
    assert late.status == 400


# --- metrics ---------------------------------------------------------------------------------------------------------


def test_numeric_fields_are_top_level_numbers_and_usage() -> None:
    row = {
        "reward": 1.0,
        "ok": True,
        "n": 3,
        "text": "x",
        "none": None,
        "list": [1],
        "_ng_task_index": 4,
        "response": {"usage": {"input_tokens": 5, "input_tokens_details": {"cached_tokens": 1}, "output_tokens": 6}},
    }
    assert own_numbers(row) == {"reward": 1.0, "ok": 1, "n": 3}
    assert usage_numbers(row) == {"input_tokens": 5, "output_tokens": 6}


@given(st.lists(st.tuples(st.integers(0, 3), st.floats(-10, 10), st.booleans()), min_size=1, max_size=20))
def test_aggregates_agree_with_the_standard_library(rows: list[tuple[int, float, bool]]) -> None:
    metrics = aggregate([{"_ng_task_index": task, "reward": reward, "ok": ok} for task, reward, ok in rows])
    rewards = [reward for _, reward, _ in rows]
    agent = metrics["agent_metrics"]
    assert agent["mean/reward"] == pytest.approx(statistics.fmean(rewards), abs=1e-9)
    assert agent["median/reward"] == pytest.approx(statistics.median(rewards))
    assert (agent["max/reward"], agent["min/reward"]) == (max(rewards), min(rewards))
    spread = statistics.stdev(rewards) if len(rewards) > 1 else 0.0
    assert agent["std/reward"] == pytest.approx(spread, abs=1e-9)
    assert [group["_ng_task_index"] for group in metrics["group_level_metrics"]] == sorted(
        {task for task, _, _ in rows}
    )
    assert metrics["key_metrics"] == {"mean/reward": agent["mean/reward"], "mean/ok": agent["mean/ok"]}


def test_maxima_are_integers_only_where_everything_is() -> None:
    whole = aggregate([{"reward": 1, "n": 2}, {"reward": 0, "n": 3}])["agent_metrics"]
    assert isinstance(whole["max/n"], int)
    mixed = aggregate([{"reward": 1.0, "n": 2}, {"reward": 0.0, "n": 3}])["agent_metrics"]
    assert isinstance(mixed["max/n"], float)
    assert aggregate([]) == {"group_level_metrics": [], "agent_metrics": {}, "key_metrics": {}}


# --- extraction ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (r"so \boxed{A}", ["A"]),
        (r"\boxed{A} or \boxed {B}", ["A", "B"]),
        (r"\boxed{\frac{1}{2}}", [r"\frac{1}{2}"]),
        (r"\boxed{\{1, 2\}}", [r"\{1, 2\}"]),
        (r"\boxed{unfinished", []),
        (r"\boxed{a \boxed{b} c}", [r"a \boxed{b} c", "b"]),
        ("no box } here {", []),
    ],
)
def test_boxed(text: str, found: list[str]) -> None:
    assert find_boxed(text) == found
    assert last_boxed(text) == (found[-1] if found else None)


def test_the_last_complete_box_counts() -> None:
    assert last_boxed(r"\boxed{A} and then \boxed{B") == "A"
    assert unwrap_text(r"\text{\textbf{B}}") == "B"


def test_hostile_text_costs_linear_time() -> None:
    assert last_boxed("\\boxed{" * 150_000) is None
    assert last_boxed("{" * 500_000 + "\\boxed{A}" + "}" * 10) == "A"


def test_a_package_that_is_missing_is_named_with_what_to_install() -> None:
    require_package("json", extra="math", where="env")
    with pytest.raises(UserError, match="env needs the package 'no-such-package'") as caught:
        require_package("no_such_package", extra="math", where="env")
    assert "pip install 'gymnast[math]'" in str(caught.value)
