"""The gateway in memory: keys, dialects, limits, tools, what is captured, and what a failed call leads to."""

from __future__ import annotations

import asyncio
from typing import Any

import orjson
import pytest

from gymnast.builtin.responses_api_models.scripted_model.app import ScriptedModel, ScriptedModelSettings
from gymnast.endpoints.gateway import Gateway
from gymnast.endpoints.rollout_endpoint import RolloutEndpoint
from gymnast.endpoints.rollout_endpoint_rules import EndpointTargets, RolloutLimits, build_policy_request
from gymnast.kit import Attempt, Environment, EnvironmentSettings, Task, ToolError, tool
from gymnast.types.trace import history_of
from gymnast.wire.calls import Calls, Scope, Transport
from gymnast.wire.http_client import HttpClient
from gymnast.wire.message import Reply, Request
from gymnast.wire.server import ServerContext
from gymnast.wire.transports import InProcessTransport

HI: dict[str, Any] = {"messages": [{"role": "user", "content": "hi"}]}
TOOLS: list[Any] = [
    {"type": "function", "name": name, "parameters": {"properties": {}}, "strict": None, "description": f"{name}."}
    for name in ("note", "refuse", "crash")
]


class Notes(Environment[Task, list[str]]):
    async def open(self, task: Task) -> list[str]:
        return []

    @tool
    async def note(self, session: list[str], text: str) -> dict[str, Any]:
        """Write it down."""
        session.append(text)
        return {"noted": session}

    @tool
    async def refuse(self) -> str:
        """Say no."""
        raise ToolError("not like this")

    @tool
    async def crash(self) -> str:
        """Fail."""
        raise RuntimeError("the notes burn")

    async def verify(self, attempt: Attempt[Task, list[str]]) -> float:
        return 1.0


class Fixture:
    """A gateway before a scripted policy and an environment, and one open rollout."""

    def __init__(self, replies: list[Any], *, params: dict[str, Any] | None = None, **limits: Any) -> None:
        transports: dict[str, Transport] = {}
        calls = Calls(transports)
        context = ServerContext(calls, HttpClient())
        self.model = ScriptedModel("policy", ScriptedModelSettings(replies=replies), context)
        for server in (self.model, Notes("notes", EnvironmentSettings(), context)):
            transports[server.name] = InProcessTransport(server)
        self.calls = calls
        self.gateway = Gateway("agent", context)
        self.params: Any = {"input": "hi", "tools": TOOLS, **(params or {})}
        self.limits = RolloutLimits(**limits)
        self.door, self.path, self.key = self.open("1-0")

    def open(self, rollout_id: str | None) -> tuple[RolloutEndpoint, str, str]:
        self.scope = Scope(rollout_id)
        places = EndpointTargets("policy", "notes", model_timeout_s=0.3)
        door, address = self.gateway.open("http://gateway", places, self.limits, self.params, self.scope)
        return door, address.url.removeprefix("http://gateway"), address.key

    async def send(
        self,
        path: str,
        body: Any = None,
        *,
        key: str | None = None,
        header: str = "authorization",
        method: str = "POST",
    ) -> Reply:
        value = key if key is not None else self.key
        headers = {header: f"Bearer {value}" if header == "authorization" else value}
        return await self.gateway.handle(Request(method, self.path + path, body, headers=headers))

    async def chat(self, *messages: dict[str, Any], **more: Any) -> Reply:
        return await self.send("/v1/chat/completions", {"messages": list(messages), "model": "gpt-9", **more})

    def capture(self) -> Any:
        return orjson.loads(orjson.dumps(self.door.trace.capture("1-0", {"name": "policy"})))


# --- who may ask -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("header", ["authorization", "x-api-key", "api-key"])
async def test_the_key_may_come_in_any_clients_header(header: str) -> None:
    assert (await Fixture(["x"]).send("/v1/chat/completions", HI, header=header)).status == 200


@pytest.mark.parametrize("key", ["", "wrong", "sk-gymnast-"])
async def test_without_its_key_a_rollout_is_closed(key: str) -> None:
    fixture = Fixture(["x"])
    reply = await fixture.send("/v1/chat/completions", HI, key=key)
    assert reply.status == 401
    assert reply.body["error"]["code"] == "invalid_api_key"
    assert not fixture.door.trace.calls


async def test_the_key_of_one_rollout_does_not_open_another() -> None:
    fixture = Fixture(["x"])
    _, _, other_key = fixture.open("2-0")
    assert (await fixture.send("/v1/chat/completions", HI, key=other_key)).status == 401


async def test_a_url_with_another_users_rollout_id_leads_nowhere() -> None:
    fixture = Fixture(["x"])
    fixture.path = fixture.path.replace("/1-0/", "/2-0/")
    assert (await fixture.send("/v1/models", method="GET")).status == 404


async def test_an_ended_rollout_cannot_be_written_to() -> None:
    fixture = Fixture(["x"])
    await fixture.gateway.close(fixture.door)
    reply = await fixture.chat(*HI["messages"])
    assert reply.status == 404
    assert "has ended" in reply.body["error"]["message"]
    assert not fixture.door.trace.calls


async def test_calls_in_flight_are_cut_off_at_the_end() -> None:
    fixture = Fixture([{"hang": True}])
    asking = asyncio.create_task(fixture.chat(*HI["messages"]))
    await asyncio.sleep(0.01)
    await fixture.gateway.close(fixture.door)
    assert (await asking).status == 410
    (call,) = fixture.capture()["calls"]
    assert (call["error_category"], call["output"]) == ("incomplete", None)


async def test_rollouts_without_an_id_get_one_of_their_own() -> None:
    fixture = Fixture(["x"])
    first, second = fixture.open(None)[1], fixture.open(None)[1]
    assert first.split("/")[2] != second.split("/")[2]


# --- dialects --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/chat/completions", HI),
        ("/chat/completions", HI),
        ("/v1/v1/messages", {**HI, "max_tokens": 9}),
        ("/v1/messages", {**HI, "max_tokens": 9, "stream": True}),
        ("/v1/responses", {"input": "hi", "prompt_cache_key": "unknown to us", "store": False}),
        ("/v1/responses", {"input": "hi", "stream": True}),
        ("/v1/chat/completions", {**HI, "stream": True}),
    ],
)
async def test_every_dialect_is_one_call_of_the_trace(path: str, body: dict[str, Any]) -> None:
    fixture = Fixture(["hello there"])
    reply = await fixture.send(path, {**body, "model": "any-name"})
    assert reply.status == 200
    assert "hello there" in reply.text()
    (call,) = fixture.capture()["calls"]
    assert call["dialect"] in path
    assert (call["model"], call["model_requested"]) == ("scripted", "any-name")
    assert (call["status_code"], call["finish_reason"], call["reason"]) == (200, "stop", "first")
    assert call["tokens_out"] == 2
    assert call["completed_at"] >= call["started_at"]


async def test_what_a_request_says_in_vain_is_named() -> None:
    fixture = Fixture(["x"])
    await fixture.send("/v1/responses", {"input": "hi", "prompt_cache_key": "k"})
    assert fixture.capture()["calls"][0]["ignored"] == ["prompt_cache_key"]


async def test_conversations_go_on_across_dialects() -> None:
    fixture = Fixture([{"reasoning": "hm", "tool_calls": [{"name": "look", "call_id": "c"}]}, "done"])
    await fixture.send("/v1/messages", {**HI, "max_tokens": 9})
    call = {"id": "c", "type": "function", "function": {"name": "look", "arguments": "{ }"}}
    said = {"role": "assistant", "content": None, "tool_calls": [call]}
    await fixture.chat(*HI["messages"], said, {"role": "tool", "tool_call_id": "c", "content": "sky"})
    assert [call["reason"] for call in fixture.capture()["calls"]] == ["first", "extends"]
    kinds = [item["type"] for item in fixture.door.trace.main_output()]
    assert kinds == ["reasoning", "function_call", "function_call_output", "message"]
    assert [item["type"] for item in history_of(fixture.capture(), 1)][-2:] == ["function_call", "function_call_output"]


async def test_thoughts_can_be_sent_back_over_messages() -> None:
    """Anthropic's clients send thoughts back only if they are signed."""
    fixture = Fixture([{"reasoning": "hm", "text": "hello"}, "done"])
    said = (await fixture.send("/v1/messages", {**HI, "max_tokens": 9})).body
    assert said["content"][0]["signature"]
    more = [*HI["messages"], {"role": "assistant", "content": said["content"]}, {"role": "user", "content": "more"}]
    await fixture.send("/v1/messages", {"messages": more, "max_tokens": 9})
    assert [call["reason"] for call in fixture.capture()["calls"]] == ["first", "extends"]
    thoughts = [item for item in fixture.door.trace.main_output() if item["type"] == "reasoning"]
    assert [item["encrypted_content"] for item in thoughts] == [None]


async def test_streamed_responses_come_in_deltas() -> None:
    fixture = Fixture([{"reasoning": "hm", "text": "hello", "tool_calls": [{"name": "look"}]}])
    stream = (await fixture.send("/v1/responses", {"input": "hi", "stream": True})).text()
    events = [orjson.loads(line[6:]) for line in stream.split("\n") if line.startswith("data: ")]
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    deltas = {event["type"]: event["delta"] for event in events if event["type"].endswith(".delta")}
    assert deltas == {
        "response.reasoning_summary_text.delta": "hm",
        "response.output_text.delta": "hello",
        "response.function_call_arguments.delta": "{}",
    }
    kinds = [event["type"].removeprefix("response.") for event in events]
    assert kinds[:3] == ["created", "in_progress", "output_item.added"]
    assert kinds.count("output_item.added") == kinds.count("output_item.done") == 3
    assert kinds[-1] == "completed"


async def test_a_response_can_be_continued_by_its_id() -> None:
    fixture = Fixture(["one", "two"])
    first = (await fixture.send("/v1/responses", {"input": "hi"})).body
    second = await fixture.send("/v1/responses", {"input": "more", "previous_response_id": first["id"]})
    assert second.body["output"][0]["content"][0]["text"] == "two"
    assert [call["reason"] for call in fixture.capture()["calls"]] == ["first", "extends"]
    unknown = await fixture.send("/v1/responses", {"input": "more", "previous_response_id": "resp_else"})
    assert unknown.status == 400


async def test_models_are_listed_and_any_name_is_one() -> None:
    fixture = Fixture(["x"])
    listed = await fixture.send("/v1/models", method="GET")
    assert [entry["id"] for entry in listed.body["data"]] == ["policy"]
    assert (await fixture.send("/v1/models/claude-7", method="GET")).body["id"] == "claude-7"
    counted = await fixture.send("/v1/messages/count_tokens", HI)
    assert counted.status == 404
    assert "does not count tokens" in counted.body["error"]["message"]


def test_the_task_decides_about_sampling() -> None:
    asked = {"input": "x", "model": "gpt", "temperature": 0.0, "max_output_tokens": 100, "metadata": {"a": "1"}}
    given = {"temperature": 1.0, "max_output_tokens": 50, "metadata": {"extra_body": '{"seed":3}'}}
    assert build_policy_request(asked, given, 70) == {
        "input": "x",
        "temperature": 1.0,
        "max_output_tokens": 50,
        "metadata": {"a": "1", "extra_body": '{"seed":3}'},
    }
    both = build_policy_request({"input": "x", "metadata": {"extra_body": '{"seed":1,"top_k":5}'}}, given, None)
    assert orjson.loads(both["metadata"]["extra_body"]) == {"seed": 3, "top_k": 5}
    assert build_policy_request({"input": "x"}, {}, None) == {"input": "x"}


# --- limits and failures ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/messages", "/v1/responses"])
async def test_model_calls_are_bounded(path: str) -> None:
    fixture = Fixture(["x"], max_model_calls=1)
    body = {**HI, "max_tokens": 9, "input": "hi"}
    assert (await fixture.send(path, body)).status == 200
    reply = await fixture.send(path, body)
    assert reply.status == 403
    assert "used its 1 model calls" in reply.body["error"]["message"]
    assert fixture.door.ended_by == "max_model_calls"
    assert fixture.door.last_failure is None


async def test_output_tokens_are_bounded() -> None:
    fixture = Fixture([{"text": "x", "usage": {"input_tokens": 1, "output_tokens": 6}}], max_output_tokens=10)
    assert (await fixture.chat(*HI["messages"])).status == 200
    assert (await fixture.chat(*HI["messages"])).status == 200
    assert (await fixture.chat(*HI["messages"])).status == 403
    assert fixture.door.ended_by == "max_output_tokens"


async def test_an_endpoints_error_keeps_its_status_and_is_forgotten_when_made_good() -> None:
    busy = {"status": 429, "body": {"error": {"message": "slow down"}}, "retry_after_s": 3}
    fixture = Fixture([{"when": "hi", "replies": [busy]}, {"replies": ["fine"]}])
    reply = await fixture.chat(*HI["messages"])
    assert (reply.status, reply.headers["retry-after"]) == (429, "3")
    assert fixture.door.last_failure is not None
    assert fixture.door.last_failure.kind == "model_rate_limited"
    (call,) = fixture.capture()["calls"]
    assert (call["error_category"], call["status_code"], call["output"]) == ("rate_limit", 429, None)
    await fixture.chat({"role": "user", "content": "please"})
    assert fixture.door.last_failure is None
    assert fixture.capture()["metrics"]["failed_calls"] == 1


async def test_a_model_that_hangs_is_a_timeout() -> None:
    fixture = Fixture([{"hang": True}])
    assert (await fixture.chat(*HI["messages"])).status == 504
    assert fixture.door.last_failure is not None
    assert fixture.door.last_failure.kind == "model_timeout"
    assert fixture.capture()["calls"][0]["error_category"] == "timeout"


async def test_a_request_that_cannot_be_understood_is_noted() -> None:
    fixture = Fixture(["x"])
    assert (await fixture.send("/v1/chat/completions", {"messages": "hi"})).status == 422
    assert fixture.door.refused[0]["status_code"] == 422
    assert fixture.door.last_failure is not None
    assert fixture.door.last_failure.kind == "model_rejected"


# --- tools -----------------------------------------------------------------------------------------------------------


async def seeded(found: Fixture) -> Fixture:
    await found.calls.expect("notes", "/seed_session", {"responses_create_params": {}}, found.scope, stage="seed")  # type: ignore[arg-type]
    return found


async def test_tools_of_the_environment_work_in_the_rollouts_session() -> None:
    found = await seeded(Fixture(["x"]))
    await found.send("/tools/note", {"text": "a"})
    reply = await found.send("/tools/note", {"text": "b"})
    assert reply.body == {"noted": ["a", "b"]}
    listed = await found.send("/tools", method="GET")
    assert [entry["name"] for entry in listed.body["tools"]] == ["note", "refuse", "crash"]
    assert found.door.tools.count == 2


@pytest.mark.parametrize("name", ["verify", "seed_session", "nothing", "../verify"])
async def test_only_declared_tools_can_be_reached(name: str) -> None:
    found = await seeded(Fixture(["x"]))
    reply = await found.send(f"/tools/{name}", {})
    assert reply.status == 404
    assert "Tools you may call: note" in reply.body["error"]


async def test_a_refusal_is_for_the_program_and_a_crash_for_the_agent() -> None:
    found = await seeded(Fixture(["x"]))
    assert (await found.send("/tools/refuse", {})).status == 400
    assert found.door.tools.failure is None
    assert (await found.send("/tools/crash", {})).status == 500
    assert found.door.tools.failure is not None
    assert found.door.tools.failure.kind == "tool_error"


async def test_tools_over_mcp() -> None:
    found = await seeded(Fixture(["x"]))

    async def ask(method: str, **params: Any) -> Any:
        message = {"jsonrpc": "2.0", "id": 7, "method": method, "params": params}
        return (await found.send("/mcp", message)).body

    assert (await ask("initialize", protocolVersion="2025-03-26"))["result"]["protocolVersion"] == "2025-03-26"
    assert (await found.send("/mcp", {"jsonrpc": "2.0", "method": "notifications/initialized"})).status == 202
    assert [entry["name"] for entry in (await ask("tools/list"))["result"]["tools"]] == ["note", "refuse", "crash"]
    called = await ask("tools/call", name="note", arguments={"text": "a"})
    assert called["result"] == {"content": [{"type": "text", "text": '{"noted":["a"]}'}], "isError": False}
    assert (await ask("tools/call", name="refuse"))["result"]["isError"]
    assert (await ask("tools/call", name="verify"))["error"]["code"] == -32602
    assert (await ask("resources/list"))["error"]["code"] == -32601
    assert (await found.send("/mcp", [1])).status == 400
