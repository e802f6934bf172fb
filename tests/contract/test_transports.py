"""One contract over three transports: the same calls give the same bodies, sessions, errors and cookies on each."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Any

import pytest

from gymnast.errors import CallError
from gymnast.kit import EnvironmentSettings
from gymnast.runtime.listener import Listener
from gymnast.runtime.ports import bind_socket
from gymnast.types.failure import Stage
from gymnast.wire.asgi import AccessGuard, ServerApp
from gymnast.wire.calls import Calls, Scope, Transport
from gymnast.wire.http_client import HttpClient
from gymnast.wire.server import ServerContext
from gymnast.wire.transports import AsgiTransport, HttpTransport, InProcessTransport

from .servers import Counting, foreign_app

ROW = {"responses_create_params": {"input": "count"}, "start": 3, "expected": 8}
RESPONSE = {
    "id": "resp_1",
    "created_at": 1.0,
    "model": "m",
    "object": "response",
    "output": [],
    "parallel_tool_calls": True,
    "tool_choice": "auto",
    "tools": [],
}


@dataclass
class Subject:
    """A server reached over one transport."""

    calls: Calls

    async def call(self, path: str, body: Any = None, scope: Scope | None = None, **options: Any) -> Any:
        return await self.calls.call("counting", path, body, scope, **options)


@pytest.fixture(params=["in-process", "asgi", "http"])
async def native(request: pytest.FixtureRequest) -> AsyncIterator[Subject]:
    """Our own counting environment over each transport."""
    async with reached(request.param) as found:
        yield found


@pytest.fixture(params=["in-process", "asgi", "http", "asgi foreign", "http foreign"])
async def subject(request: pytest.FixtureRequest) -> AsyncIterator[Subject]:
    """The same, and somebody else's over the two transports that it can speak."""
    async with reached(request.param) as found:
        yield found


@asynccontextmanager
async def reached(how: str) -> AsyncIterator[Subject]:
    transport, _, foreign = how.partition(" ")
    async with AsyncExitStack() as stack:
        client = await stack.enter_async_context(HttpClient())
        transports: dict[str, Transport] = {}
        calls = Calls(transports)
        server = Counting("counting", EnvironmentSettings(), ServerContext(calls, client))
        await server.start()
        stack.push_async_callback(server.stop)
        app: Any = foreign_app() if foreign else ServerApp(server)
        if transport == "in-process":
            transports["counting"] = InProcessTransport(server)
        elif transport == "asgi":
            transports["counting"] = AsgiTransport(app)
        else:
            sock = bind_socket("127.0.0.1", 0, what="test", hint="")
            listener = await stack.enter_async_context(Listener(AccessGuard(app, None), sock))
            transports["counting"] = HttpTransport(listener.url, client)
        yield Subject(calls)


async def test_liveness(subject: Subject) -> None:
    reply = await subject.call("/", method="GET")
    assert (reply.status, reply.body) == (200, {"status": "ok"})


async def test_a_session_lives_from_seed_to_verify(subject: Subject) -> None:
    scope = Scope("7-0")
    assert (await subject.call("/seed_session", ROW, scope)).status == 200
    assert (await subject.call("/add", {"amount": 2}, scope)).body == {"value": 5}
    assert (await subject.call("/add", {"amount": 3}, scope)).body == {"value": 8}
    verdict = (await subject.call("/verify", {**ROW, "response": RESPONSE}, scope)).body
    assert (verdict["reward"], verdict["found"]) == (1.0, 8)
    assert verdict["response"] == RESPONSE
    assert verdict["responses_create_params"]["input"] == "count"


async def test_sessions_do_not_see_each_other(subject: Subject) -> None:
    scopes = [Scope() for _ in range(50)]
    await asyncio.gather(*(subject.call("/seed_session", {**ROW, "start": n}, scope) for n, scope in enumerate(scopes)))
    replies = await asyncio.gather(*(subject.call("/add", {"amount": 100}, scope) for scope in scopes))
    assert [reply.body["value"] for reply in replies] == [100 + n for n in range(50)]


async def test_the_cookie_has_the_documented_name(subject: Subject) -> None:
    scope = Scope()
    await subject.call("/seed_session", ROW, scope)
    assert list(scope.jars["counting"]) == ["Counting___counting"]


async def test_a_body_that_does_not_fit_is_422_with_pydantic_detail(subject: Subject) -> None:
    reply = await subject.call("/add", {"amount": "many"}, await seeded(subject))
    assert reply.status == 422
    entry = reply.body["detail"][0]
    assert entry["loc"] == ["body", "amount"]
    assert entry["type"] == "int_parsing"
    assert entry["input"] == "many"
    assert "url" not in entry


async def test_a_missing_field_is_422(subject: Subject) -> None:
    reply = await subject.call("/seed_session", {"start": 1})
    assert reply.status == 422
    assert [(entry["type"], entry["loc"]) for entry in reply.body["detail"]] == [("missing", ["body", "expected"])]


async def test_an_unknown_route_is_404(subject: Subject) -> None:
    reply = await subject.call("/nowhere", {})
    assert (reply.status, reply.body) == (404, {"detail": "Not Found"})


async def test_the_wrong_method_is_405(subject: Subject) -> None:
    reply = await subject.call("/verify", None, method="GET")
    assert (reply.status, reply.body) == (405, {"detail": "Method Not Allowed"})


async def test_an_exception_is_500_with_its_repr_as_a_json_string(subject: Subject) -> None:
    reply = await subject.call("/explode", {})
    assert reply.status == 500
    assert reply.body == "RuntimeError('boom: ünïcode')"
    assert not reply.cookies  # a 500 carries no cookie


async def test_a_reply_as_text_is_what_a_model_is_shown(subject: Subject) -> None:
    reply = await subject.call("/add", {"amount": 1}, await seeded(subject))
    assert reply.text() == '{"value":4}'


async def test_expect_raises_with_the_stage_and_the_innermost_body(subject: Subject) -> None:
    with pytest.raises(CallError) as caught:
        await subject.calls.expect("counting", "/seed_session", {}, stage=Stage.SEED)
    detail = caught.value.detail
    assert (detail.kind, detail.stage, detail.status, detail.instance) == ("seed_rejected", "seed", 422, "counting")
    assert "start" in (detail.body or "")
    assert detail.chain[-1] == "counting/seed_session 422"


async def test_the_rollout_prefix_is_stripped(native: Subject) -> None:
    for prefix in ("/ng-rollout/12-3", "/ng-rollout/12-3-a1/training-token-capture"):
        reply = await native.call(f"{prefix}/shout", {"text": "hey"})
        assert (reply.status, reply.text()) == (200, "HEY")


async def test_failures_keep_their_kind_and_body_across_the_boundary(native: Subject) -> None:
    reply = await native.call("/ask_inner", {})
    assert reply.status == 500
    assert reply.body == ('Hit an exception in Counting___counting calling an inner server: b\'{"why":"tired"}\'')
    assert reply.failure is not None
    assert (reply.failure.kind, reply.failure.stage, reply.failure.body) == (
        "judge_failed",
        "verify",
        '{"why":"tired"}',
    )


async def test_a_tool_without_an_open_session_fails_the_attempt(native: Subject) -> None:
    reply = await native.call("/add", {"amount": 1})
    assert reply.status == 400
    assert reply.failure is not None
    assert reply.failure.kind == "tool_error"


async def test_a_verified_session_is_closed(native: Subject) -> None:
    scope = await seeded(native)
    await native.call("/verify", {**ROW, "response": RESPONSE}, scope)
    assert (await native.call("/add", {"amount": 1}, scope)).status == 400


async def test_verify_refuses_what_is_not_a_response(native: Subject) -> None:
    reply = await native.call("/verify", {**ROW, "response": {"id": "x"}}, await seeded(native))
    assert reply.status == 422
    assert reply.body["detail"][0]["loc"][:2] == ["body", "response"]


async def test_a_call_past_its_deadline_is_a_timeout_failure(native: Subject) -> None:
    with pytest.raises(CallError) as caught:
        await native.call("/doze", {"seconds": 30}, timeout_s=0.1, stage=Stage.TOOL)
    assert caught.value.detail.kind == "tool_timeout"
    assert (await native.call("/shout", {"text": "still here"})).text() == "STILL HERE"


async def seeded(subject: Subject) -> Scope:
    """A scope with an open session."""
    scope = Scope()
    await subject.call("/seed_session", ROW, scope)
    return scope
