"""Streams of all dialects, Anthropic's Messages, and what becomes of parameters a backend does not know."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gymnast.types.failure import Stage
from gymnast.wire.asgi import AccessGuard, ServerApp
from gymnast.wire.dialects.chat_replies import make_chat_stream
from gymnast.wire.message import EventStream, Reply, Request
from gymnast.wire.transports import AsgiTransport
from tests.helpers.model_bench import Bench, chat

QUESTION = [{"role": "user", "content": "q"}]
FUNCTION = {"type": "function", "name": "look", "parameters": {"type": "object"}, "strict": None}
CALLS = {"text": "Let me see.", "reasoning": "hm", "tool_calls": [{"name": "look", "arguments": {"at": "sky"}}]}


def events(reply: Reply) -> list[dict[str, Any]]:
    """The data of a stream; the name of each event is its type."""
    assert isinstance(reply.body, EventStream)
    found = []
    for block in reply.body.split("\n\n")[:-1]:
        name, _, data = block.rpartition("data: ")
        if data == "[DONE]":
            found.append({"done": True})
            continue
        found.append(json.loads(data))
        assert name in {"", f"event: {found[-1].get('type')}\n"}
    return found


async def post(bench: Bench, path: str, body: dict[str, Any]) -> Reply:
    return await bench.calls.call("policy", path, body, stage=Stage.MODEL)


def ignored(reply: Reply) -> list[str]:
    return list(json.loads(reply.headers.get("x-gymnast-ignored", "[]")))


# --- chat ------------------------------------------------------------------------------------------------------------


async def test_a_chat_stream_says_role_text_calls_and_finish(bench: Bench) -> None:
    bench.scripted(replies=[CALLS])
    found = events(await post(bench, "/v1/chat/completions", {"messages": QUESTION, "stream": True}))
    assert found[-1] == {"done": True}
    chunks = found[:-1]
    assert {chunk["object"] for chunk in chunks} == {"chat.completion.chunk"}
    assert len({chunk["id"] for chunk in chunks}) == 1
    assert [list(chunk["choices"][0]["delta"]) for chunk in chunks] == [["role"], ["content"], ["tool_calls"], []]
    assert [chunk["choices"][0]["finish_reason"] for chunk in chunks] == [None, None, None, "tool_calls"]
    call = chunks[2]["choices"][0]["delta"]["tool_calls"][0]
    assert (call["index"], call["function"]) == (0, {"name": "look", "arguments": '{"at":"sky"}'})


async def test_usage_comes_last_and_only_when_asked_for(bench: Bench) -> None:
    bench.scripted(replies=[{"text": "a", "usage": {"input_tokens": 3, "output_tokens": 2}}])
    body = {"messages": QUESTION, "stream": True, "stream_options": {"include_usage": True}}
    last = events(await post(bench, "/v1/chat/completions", body))[-2]
    assert last["choices"] == []
    assert last["usage"]["total_tokens"] == 5
    plain = events(await post(bench, "/v1/chat/completions", {**body, "stream_options": None}))
    assert not any(chunk.get("usage") for chunk in plain)


def test_reasoning_content_comes_before_content_and_each_choice_has_its_own_chunks() -> None:
    completion = chat("text", reasoning_content="thoughts")
    second = {**completion["choices"][0], "index": 1}
    stream = make_chat_stream({**completion, "choices": [completion["choices"][0], second]}, include_usage=False)
    found = [chunk["choices"][0] for chunk in events(Reply(200, stream))[:-1]]
    assert [part["index"] for part in found] == [0] * 4 + [1] * 4
    assert [list(part["delta"]) for part in found[:4]] == [["role"], ["reasoning_content"], ["content"], []]


async def test_the_backend_is_asked_without_streaming(bench: Bench) -> None:
    endpoint = await bench.endpoint(chat("whole"))
    bench.vllm(endpoint.url)
    body = {"messages": QUESTION, "stream": True, "stream_options": {"include_usage": True}, "top_k": 3}
    found = events(await post(bench, "/v1/chat/completions", body))
    assert found[1]["choices"][0]["delta"] == {"content": "whole"}
    assert not {"stream", "stream_options"} & endpoint.asked[0].keys()
    assert endpoint.asked[0]["top_k"] == 3


@pytest.mark.parametrize("nonsense", [{}, {"choices": None}, {"choices": [{}]}, {"choices": ["x"]}])
async def test_a_completion_that_is_none_is_not_a_stream(bench: Bench, nonsense: dict[str, Any]) -> None:
    endpoint = await bench.endpoint(nonsense)
    bench.openai(endpoint.url)
    reply = await post(bench, "/v1/chat/completions", {"messages": QUESTION, "stream": True})
    assert reply.status == 500
    assert reply.failure is not None
    assert reply.failure.kind == "model_bad_reply"


async def test_no_sign_in_a_text_ends_a_line_of_the_stream(bench: Bench) -> None:
    text = "a\u2028b\u2029c\x85d\r\n\n\x0b\x1ce"
    bench.scripted(replies=[text])
    reply = await post(bench, "/v1/messages", {"messages": QUESTION, "stream": True})
    deltas = [json.loads(line[6:]).get("delta", {}) for line in reply.body.splitlines() if line.startswith("data: ")]
    assert [delta["text"] for delta in deltas if "text" in delta] == [text]


async def test_a_chat_stream_that_fails_is_an_error_status(bench: Bench) -> None:
    bench.scripted(replies=[{"status": 503, "body": {"error": "busy"}}])
    assert (await post(bench, "/v1/chat/completions", {"messages": QUESTION, "stream": True})).status == 503


@pytest.mark.parametrize("stream", ["yes", 1, []])
async def test_stream_is_a_boolean_in_chat(bench: Bench, stream: Any) -> None:
    bench.scripted(replies=["a"])
    assert (await post(bench, "/v1/chat/completions", {"messages": QUESTION, "stream": stream})).status == 422


@pytest.mark.parametrize("body", [{"messages": 5}, {"messages": ["q"]}, {"messages": QUESTION, "stream_options": "x"}])
async def test_a_chat_body_that_is_none_is_422_before_any_backend(bench: Bench, body: dict[str, Any]) -> None:
    bench.vllm("http://127.0.0.1:9/v1")
    assert (await post(bench, "/v1/chat/completions", {**body, "stream": True})).status == 422


# --- responses -------------------------------------------------------------------------------------------------------


async def test_a_responses_stream_is_created_items_completed(bench: Bench) -> None:
    bench.scripted(replies=[CALLS])
    found = events(await post(bench, "/v1/responses", {"input": "q", "stream": True, "temperature": 0.5}))
    assert (found[0]["type"], found[-1]["type"]) == ("response.created", "response.completed")
    assert [event["sequence_number"] for event in found] == list(range(len(found)))
    done = [event for event in found if event["type"] == "response.output_item.done"]
    assert [event["output_index"] for event in done] == [0, 1, 2]
    created, completed = found[0]["response"], found[-1]["response"]
    assert (created["status"], created["output"]) == ("in_progress", [])
    assert completed["output"] == [event["item"] for event in done]
    assert (completed["id"], completed["status"], completed["temperature"]) == (created["id"], "completed", 0.5)


async def test_a_failure_behind_a_responses_stream_is_reported_inside_it(bench: Bench) -> None:
    bench.vllm("http://127.0.0.1:9/v1", max_attempts=1)
    reply = await post(bench, "/v1/responses", {"input": "q", "stream": True})
    assert reply.status == 200
    assert reply.failure is not None
    assert reply.failure.kind == "model_unreachable"
    found = events(reply)
    assert [event["type"] for event in found] == ["response.created", "response.failed"]
    failed = found[1]["response"]
    assert (failed["id"], failed["status"]) == (found[0]["response"]["id"], "failed")
    assert failed["error"]["code"] == "server_error"
    assert "http://127.0.0.1:9" in failed["error"]["message"]


@pytest.mark.parametrize(
    "body",
    [
        {"input": 5},
        {"input": "q", "temperature": "hot"},
        {"input": "q", "previous_response_id": "r"},
        {"input": "q", "tools": [{"type": "namespace", "name": "n", "tools": [5]}]},
        {"input": "q", "tools": 5},
        {"input": ["q"]},
    ],
)
async def test_a_streamed_request_that_is_none_is_422(bench: Bench, body: dict[str, Any]) -> None:
    bench.vllm("http://127.0.0.1:9/v1")
    assert (await post(bench, "/v1/responses", {**body, "stream": True})).status == 422


async def test_groups_of_tools_are_flattened_and_their_names_restored(bench: Bench) -> None:
    tools = [{"id": "c1", "type": "function", "function": {"name": "crm__find", "arguments": "{}"}}]
    endpoint = await bench.endpoint(chat(None, tool_calls=tools))
    bench.vllm(endpoint.url)
    group = {"type": "namespace", "name": "crm", "description": "d", "tools": [{"type": "function", "name": "find"}]}
    earlier = [
        {"type": "additional_tools", "role": "developer", "tools": [group]},
        {"role": "developer", "content": [{"type": "input_text", "text": "be brief"}]},
        {"role": "user", "content": "q"},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "ok"}]},
        {"type": "reasoning", "summary": [], "content": None},
        {"type": "function_call", "call_id": "c0", "namespace": "crm", "name": "find", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c0", "output": "x"},
    ]
    body = {"input": earlier, "instructions": "first", "tools": [FUNCTION], "stream": True}
    found = events(await post(bench, "/v1/responses", body))
    item = next(event["item"] for event in found if event["type"] == "response.output_item.done")
    assert (item["namespace"], item["name"], item["call_id"]) == ("crm", "find", "c1")
    request = endpoint.asked[0]
    assert [tool["function"]["name"] for tool in request["tools"]] == ["look", "crm__find"]
    assert request["messages"][0] == {"role": "system", "content": "first\n\nbe brief"}
    assert request["messages"][2]["tool_calls"][0]["function"]["name"] == "crm__find"


async def test_what_a_streaming_client_says_too_much_is_left_out_and_named(bench: Bench) -> None:
    endpoint = await bench.endpoint(chat("fine"))
    bench.vllm(endpoint.url)
    reply = await post(
        bench,
        "/v1/responses",
        {
            "input": [*QUESTION, {"type": "web_search_call", "id": "w", "status": "completed"}, {"type": "novelty"}],
            "tools": [{"type": "web_search"}, {**FUNCTION, "defer_loading": True}],
            "prompt_cache_key": "k",
            "truncation": "auto",
            "stream_options": {"include_obfuscation": False},
            "stream": True,
        },
    )
    assert events(reply)[-1]["type"] == "response.completed"
    names = {"input.web_search_call", "input.novelty", "tools.web_search", "tools.defer_loading", "prompt_cache_key"}
    assert set(ignored(reply)) == names | {"truncation"}
    assert [tool["function"]["name"] for tool in endpoint.asked[0]["tools"]] == ["look"]


async def test_hosted_tools_reach_a_backend_that_has_them(bench: Bench) -> None:
    native: dict[str, Any] = {"id": "r", "created_at": 1, "model": "m", "object": "response", "output": []}
    native |= {"parallel_tool_calls": True, "tool_choice": "auto", "tools": []}
    endpoint = await bench.endpoint(native)
    bench.openai(endpoint.url)
    reply = await post(bench, "/v1/responses", {"input": "q", "tools": [{"type": "web_search"}], "stream": True})
    assert endpoint.asked[0]["tools"] == [{"type": "web_search"}]
    assert not ignored(reply)


# --- messages --------------------------------------------------------------------------------------------------------


async def test_a_messages_request_reaches_the_engine_whole(bench: Bench) -> None:
    endpoint = await bench.endpoint(chat("<think>hm</think>fine"))
    bench.vllm(endpoint.url)
    body = {
        "model": "any",
        "max_tokens": 9,
        "system": [{"type": "text", "text": "be"}, {"type": "text", "text": "nice"}],
        "temperature": 0.5,
        "top_k": 4,
        "stop_sequences": ["END"],
        "metadata": {"user_id": "u"},
        "tools": [{"name": "look", "description": "d", "input_schema": {"type": "object"}}],
        "tool_choice": {"type": "any", "disable_parallel_tool_use": True},
        "output_config": {"effort": "low", "format": {"type": "json_schema", "schema": {"type": "object"}}},
        "messages": [
            {
                "role": "user",
                "content": [
                    {"type": "text", "text": "see"},
                    {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AA"}},
                ],
            },
            {
                "role": "assistant",
                "content": [
                    {"type": "thinking", "thinking": "deep", "signature": "s"},
                    {"type": "text", "text": "ok"},
                    {"type": "tool_use", "id": "t1", "name": "look", "input": {"a": 1}},
                ],
            },
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1", "content": "blue"}]},
        ],
    }
    reply = await post(bench, "/v1/messages", body)
    assert reply.status == 200, reply.body
    assert not ignored(reply)
    request = endpoint.asked[0]
    assert (request["max_tokens"], request["temperature"], request["top_k"], request["stop"]) == (9, 0.5, 4, ["END"])
    assert (request["tool_choice"], request["parallel_tool_calls"], request["user"]) == ("required", False, "u")
    assert (request["reasoning_effort"], request["response_format"]["type"]) == ("low", "json_schema")
    assert request["model"] == "the-model"
    system, user, mine, tool = request["messages"]
    assert system == {"role": "system", "content": "be\n\nnice"}
    assert user["content"][1]["image_url"]["url"] == "data:image/png;base64,AA"
    assert (mine["content"], mine["reasoning_content"]) == ("ok", "deep")
    assert mine["tool_calls"][0]["function"] == {"name": "look", "arguments": '{"a":1}'}
    assert tool == {"role": "tool", "tool_call_id": "t1", "content": "blue"}
    message = reply.body
    assert [block["type"] for block in message["content"]] == ["thinking", "text"]
    assert (message["stop_reason"], message["usage"]) == ("end_turn", {"input_tokens": 3, "output_tokens": 2})


async def test_reasoning_of_a_native_engine_is_reported_in_every_dialect(bench: Bench) -> None:
    thought = {"type": "reasoning", "id": "rs", "summary": [], "content": [{"type": "reasoning_text", "text": "hm"}]}
    native: dict[str, Any] = {"id": "r", "created_at": 1, "model": "m", "object": "response", "output": [thought]}
    native |= {"parallel_tool_calls": True, "tool_choice": "auto", "tools": []}
    endpoint = await bench.endpoint(native, chat("fine"))
    bench.vllm(endpoint.url, is_responses_native=True)
    found = (await post(bench, "/v1/messages", {"messages": QUESTION})).body
    assert found["content"] == [{"type": "thinking", "thinking": "hm", "signature": ""}]
    bench.vllm(endpoint.url)
    await post(bench, "/v1/responses", {"input": [*QUESTION, thought]})
    assert endpoint.asked[1]["messages"][1]["reasoning_content"] == "hm"


async def test_a_prompt_that_does_not_fit_is_a_message_cut_short(bench: Bench) -> None:
    endpoint = await bench.endpoint(Reply(400, {"error": {"message": "maximum context length is 4096"}}))
    bench.vllm(endpoint.url)
    found = (await post(bench, "/ng-rollout/1-0/v1/messages", {"messages": QUESTION})).body
    assert (found["content"], found["stop_reason"]) == ([], "max_tokens")
    assert found["usage"] == {"input_tokens": 0, "output_tokens": 0}


@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        ({"text": "a", "finish": "length"}, "max_tokens"),
        ({"text": "a", "finish": "content_filter"}, "refusal"),
        (CALLS, "tool_use"),
        ("a", "end_turn"),
    ],
)
async def test_stop_reasons(bench: Bench, reply: Any, reason: str) -> None:
    bench.scripted(replies=[reply])
    found = await post(bench, "/v1/messages", {"messages": QUESTION, "max_tokens": 5})
    assert found.body["stop_reason"] == reason


async def test_a_messages_stream_goes_block_by_block(bench: Bench) -> None:
    bench.scripted(replies=[CALLS])
    found = events(await post(bench, "/v1/messages", {"messages": QUESTION, "max_tokens": 5, "stream": True}))
    block = ["content_block_start", "content_block_delta", "content_block_stop"]
    assert [event["type"] for event in found] == ["message_start", *block * 3, "message_delta", "message_stop"]
    deltas = [event["delta"] for event in found if event["type"] == "content_block_delta"]
    assert [delta["type"] for delta in deltas] == ["thinking_delta", "text_delta", "input_json_delta"]
    assert deltas[2]["partial_json"] == '{"at":"sky"}'
    assert found[-2]["delta"]["stop_reason"] == "tool_use"


async def test_arguments_that_are_not_a_json_object_are_kept_as_written(bench: Bench) -> None:
    bench.scripted(replies=[{"tool_calls": [{"name": "f", "arguments": "{broken"}]}])
    block = (await post(bench, "/v1/messages", {"messages": QUESTION, "max_tokens": 5})).body["content"][0]
    assert block["input"] == {"_invalid_json": "{broken"}


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({}, "body.messages: Field required"),
        ({"messages": [{"role": "user"}]}, "'content' is missing"),
        ({"messages": [{"role": "pope", "content": "x"}]}, "role"),
        ({"messages": QUESTION, "tools": [{"type": "web_search_20250305", "name": "w"}]}, "web_search_20250305"),
        ({"messages": [{"role": "user", "content": [{"type": "document", "source": {}}]}]}, "document"),
        ({"messages": QUESTION, "temperature": "hot"}, "temperature"),
    ],
)
async def test_errors_of_messages_have_anthropics_shape(bench: Bench, body: dict[str, Any], said: str) -> None:
    bench.scripted(replies=["a"])
    reply = await post(bench, "/v1/messages", body)
    assert (reply.status, reply.body["type"], reply.body["error"]["type"]) == (422, "error", "invalid_request_error")
    assert said in reply.body["error"]["message"]


async def test_failures_behind_messages_keep_status_detail_and_retry_after(bench: Bench) -> None:
    bench.scripted(replies=[{"status": 429, "retry_after_s": 2}])
    busy = await post(bench, "/v1/messages", {"messages": QUESTION})
    assert (busy.status, busy.body["error"]["type"], busy.headers["retry-after"]) == (429, "rate_limit_error", "2")
    bench.vllm("http://127.0.0.1:9/v1", max_attempts=1)
    dead = await post(bench, "/v1/messages", {"messages": QUESTION, "stream": True})
    assert (dead.status, dead.body["error"]["type"]) == (500, "api_error")
    assert dead.failure is not None
    assert dead.failure.kind == "model_unreachable"


# --- parameters ------------------------------------------------------------------------------------------------------


async def test_lost_parameters_are_named_in_every_dialect(bench: Bench) -> None:
    endpoint = await bench.endpoint(chat("fine"))
    bench.vllm(endpoint.url)
    reply = await post(bench, "/v1/responses", {"input": "q", "truncation": "auto", "text": {"verbosity": "low"}})
    assert ignored(reply) == ["truncation", "text.verbosity"]
    thinking = {"type": "enabled", "budget_tokens": 2000}
    body = {"messages": QUESTION, "thinking": thinking, "speed": "fast", "cache_control": {"type": "ephemeral"}}
    assert ignored(await post(bench, "/v1/messages", body)) == ["speed", "thinking"]
    bench.scripted(replies=["a"])
    named = {"messages": [{"role": "user", "content": "q", "name": "ann"}]}
    assert ignored(await post(bench, "/v1/chat/completions", named)) == ["messages.name"]
    assert not ignored(await post(bench, "/v1/responses", {"input": "q"}))


async def test_sampling_parameters_a_responses_api_lacks_are_named(bench: Bench) -> None:
    native: dict[str, Any] = {"id": "r", "created_at": 1, "model": "m", "object": "response", "output": []}
    native |= {"parallel_tool_calls": True, "tool_choice": "auto", "tools": []}
    endpoint = await bench.endpoint(native)
    bench.openai(endpoint.url)
    reply = await post(bench, "/v1/messages", {"messages": QUESTION, "top_k": 3, "stop_sequences": ["x"]})
    assert ignored(reply) == ["metadata.extra_body.top_k", "metadata.extra_body.stop"]
    seeded = await post(bench, "/v1/responses", {"input": "q", "metadata": {"extra_body": '{"seed": 1}'}})
    assert ignored(seeded) == ["metadata.extra_body.seed"]


@pytest.mark.parametrize("name", ["top_k", "min_p", "seed", "stop"])
async def test_responses_refuse_parameters_they_do_not_have(bench: Bench, name: str) -> None:
    bench.vllm("http://127.0.0.1:9/v1")
    reply = await post(bench, "/v1/responses", {"input": "q", name: 1})
    assert reply.status == 422
    assert reply.body["detail"][0]["loc"] == ["body", name]


@pytest.mark.parametrize(
    "body",
    [
        {"n": 2},
        {"messages": [{"role": "assistant", "content": None, "function_call": {"name": "f", "arguments": ""}}]},
        {"messages": [{"role": "user", "content": [{"type": "input_audio", "input_audio": {}}]}]},
        {"messages": [{"role": "tool", "tool_call_id": "c", "content": [{"type": "image_url", "image_url": {}}]}]},
        {"messages": [{"content": "x"}]},
        {"messages": [5]},
        {"metadata": {"extra_body": "{"}, "top_k": 1},
    ],
)
async def test_a_chat_request_that_cannot_be_converted_is_422(bench: Bench, body: dict[str, Any]) -> None:
    bench.scripted(replies=["a"])
    reply = await post(bench, "/v1/chat/completions", {"messages": QUESTION, **body})
    assert reply.status == 422, reply.body
    assert isinstance(reply.body["detail"], str)


async def test_an_engine_refuses_with_422_what_chat_cannot_say(bench: Bench) -> None:
    bench.vllm("http://127.0.0.1:9/v1")
    reply = await post(bench, "/v1/responses", {"input": "q", "previous_response_id": "r"})
    assert (reply.status, reply.body) == (
        422,
        {"detail": "'previous_response_id' has no counterpart in Chat Completions"},
    )


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({}, ["reasoning after the first of a turn"]),
        ({"preserve_reasoning_in_assistant_content": True}, []),
        ({"uses_reasoning_parser": False}, []),
        ({"uses_interleaved_reasoning": False}, []),
    ],
)
async def test_thoughts_an_engine_has_no_field_for_are_named(
    bench: Bench, settings: dict[str, Any], named: list[str]
) -> None:
    endpoint = await bench.endpoint(chat("fine"))
    bench.vllm(endpoint.url, **settings)
    mine = {"role": "assistant", "content": "<think>one</think>a<think>two</think>b"}
    for path, body in (
        ("/v1/chat/completions", {"messages": [*QUESTION, mine, *QUESTION]}),
        ("/v1/messages", {"messages": [*QUESTION, mine, *QUESTION]}),
    ):
        assert ignored(await post(bench, path, body)) == named


async def test_names_from_clients_cannot_break_the_header(bench: Bench) -> None:
    bench.scripted(replies=["a"])
    name = "bad\r\nset-cookie: x=1 ü"
    reply = await post(bench, "/v1/messages", {"messages": QUESTION, name: 1})
    assert reply.headers["x-gymnast-ignored"].isascii()
    assert "\n" not in reply.headers["x-gymnast-ignored"]
    assert ignored(reply) == [name]


# --- on the wire -----------------------------------------------------------------------------------------------------


async def test_a_stream_has_its_content_type(bench: Bench) -> None:
    bench.scripted(replies=["a"])
    server = bench.transports["policy"]._server  # type: ignore[attr-defined]
    sent = Request("POST", "/v1/responses", {"input": "q", "stream": True})
    reply = await AsgiTransport(ServerApp(server)).send(sent)
    assert reply.headers["content-type"].startswith("text/event-stream")
    assert reply.text().startswith("event: response.created\ndata: {")


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"x-api-key": "secret"}, 200),
        ({"x-api-key": "wrong"}, 401),
        ({"authorization": "Bearer wrong", "x-api-key": "secret"}, 401),
        ({}, 401),
    ],
)
async def test_the_token_may_be_an_api_key(bench: Bench, headers: dict[str, str], status: int) -> None:
    bench.scripted(replies=["a"])
    app = AccessGuard(ServerApp(bench.transports["policy"]._server), "secret")  # type: ignore[attr-defined]
    reply = await AsgiTransport(app).send(Request("GET", "/", headers=headers))
    assert reply.status == status
