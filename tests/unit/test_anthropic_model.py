"""`anthropic_model` against a server that checks requests as Anthropic's does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from anthropic.types import Message
from anthropic.types.message_create_params import MessageCreateParamsNonStreaming
from pydantic import TypeAdapter

import gymnast
from gymnast.builtin.responses_api_models.anthropic_model.app import versioned_url
from gymnast.config.roots import BUILTIN
from gymnast.types.failure import FailureKind
from tests.helpers.messages_server import KEY, MessagesServer, error, message, tool_use
from tests.helpers.model_bench import Bench

LOOK = {
    "type": "function",
    "name": "look",
    "description": "Look it up.",
    "parameters": {"type": "object"},
    "strict": None,
}
THINKING = {"type": "thinking", "thinking": "hm, well", "signature": "c2lnbmVk"}
REDACTED = {"type": "redacted_thinking", "data": "ZW5jcnlwdGVk"}
PIXEL = "data:image/png;base64,iVBORw0KGgo="


async def start(bench: Bench, *replies: Any, **settings: Any) -> MessagesServer:
    server = MessagesServer(*replies)
    bench.anthropic(await bench.listen(server), **settings)
    return server


def conforms(body: dict[str, Any]) -> bool:
    """Whether a request has the shape that the official client declares."""
    TypeAdapter(MessageCreateParamsNonStreaming).validate_python(body)
    return True


def outputs(*calls: str) -> list[dict[str, Any]]:
    return [{"type": "function_call_output", "call_id": call, "output": f"result of {call}"} for call in calls]


async def test_a_question_is_answered(bench: Bench) -> None:
    server = await start(bench, message("forty-two"))
    reply = await bench.ask(instructions="Be brief.", temperature=0.5, top_p=0.9, max_output_tokens=99, user="me")
    assert server.asked[0] == {
        "model": "the-model",
        "max_tokens": 99,
        "messages": [{"role": "user", "content": [{"type": "text", "text": "q"}]}],
        "system": "Be brief.",
        "temperature": 0.5,
        "top_p": 0.9,
        "metadata": {"user_id": "me"},
    }
    assert conforms(server.asked[0])
    assert server.headers[0]["x-api-key"] == KEY
    assert server.headers[0]["anthropic-version"] == "2023-06-01"
    assert "authorization" not in server.headers[0]
    body = reply.body
    assert (body["status"], body["output"][0]["content"][0]["text"]) == ("completed", "forty-two")
    assert body["usage"]["input_tokens"] == 33
    assert body["usage"]["input_tokens_details"]["cached_tokens"] == 20
    assert body["usage"]["output_tokens"] == 7


async def test_what_the_stand_in_replies_is_what_the_api_replies() -> None:
    Message.model_validate(message("a", THINKING, REDACTED, tool_use("t")), strict=True)


async def test_parallel_calls_and_their_results_are_two_turns(bench: Bench) -> None:
    server = await start(
        bench, message("Looking.", tool_use("t1", city="Oslo"), tool_use("t2"), stop_reason="tool_use"), message("done")
    )
    first = (await bench.ask(tools=[LOOK])).body["output"]
    assert [item["type"] for item in first] == ["message", "function_call", "function_call"]
    assert (first[1]["call_id"], first[1]["arguments"]) == ("t1", '{"city":"Oslo"}')
    question = {"role": "user", "content": "q"}
    history = [question, *first, {"role": "user", "content": "and hurry"}, *outputs("t1", "t2")]
    await bench.ask(input=history, tools=[LOOK])
    sent = server.asked[1]
    assert conforms(sent)
    assert [turn["role"] for turn in sent["messages"]] == ["user", "assistant", "user"]
    assert [block["type"] for block in sent["messages"][2]["content"]] == ["tool_result", "tool_result", "text"]
    assert sent["tools"][0] == {"name": "look", "description": "Look it up.", "input_schema": {"type": "object"}}


async def test_thinking_goes_back_as_it_came(bench: Bench) -> None:
    hidden = {"type": "thinking", "thinking": "", "signature": "aGlkZGVu"}
    blocks = [THINKING, REDACTED, hidden, {"type": "text", "text": "so"}, tool_use("t1")]
    server = await start(
        bench,
        message(*blocks, stop_reason="tool_use"),
        message("done"),
        thinking={"type": "enabled", "budget_tokens": 2000},
    )
    reply = (await bench.ask(tools=[LOOK], temperature=0.3)).body
    assert [item["type"] for item in reply["output"]] == ["reasoning"] * 3 + ["message", "function_call"]
    assert reply["output"][0]["summary"] == [{"type": "summary_text", "text": "hm, well"}]
    assert "temperature" not in server.asked[0]
    await bench.ask(input=[{"role": "user", "content": "q"}, *reply["output"], *outputs("t1")], tools=[LOOK])
    assert server.asked[1]["messages"][1]["content"] == blocks


async def test_reasoning_of_another_model_is_left_out_and_named(bench: Bench) -> None:
    server = await start(bench)
    reasoning = {"type": "reasoning", "id": "r", "summary": [{"type": "summary_text", "text": "deep"}]}
    history = [{"role": "user", "content": "q"}, reasoning, {"role": "assistant", "content": "a"}]
    reply = await bench.ask(input=[*history, {"role": "user", "content": "more"}])
    assert server.asked[0]["messages"][1]["content"] == [{"type": "text", "text": "a"}]
    assert "reasoning without a signature" in reply.headers["x-gymnast-ignored"]


async def test_odd_histories_become_conversations_that_the_api_takes(bench: Bench) -> None:
    server = await start(bench)
    reply = await bench.ask(
        input=[
            {"role": "system", "content": "one"},
            {"role": "user", "content": "a"},
            {"role": "user", "content": [{"type": "input_text", "text": "b"}, {"type": "input_text", "text": " "}]},
            {"role": "assistant", "content": ""},
            {"role": "developer", "content": "two"},
            {"role": "user", "content": "c"},
            {"type": "function_call", "call_id": "call:1.2", "name": "look", "arguments": "{broken"},
            {"type": "function_call_output", "call_id": "call:1.2", "output": ""},
        ],
        tools=[LOOK],
    )
    sent = server.asked[0]
    assert reply.status == 200
    assert conforms(sent)
    assert sent["system"] == "one\n\ntwo"
    assert [block["text"] for block in sent["messages"][0]["content"]] == ["a", "b", "c"]
    assert sent["messages"][1]["content"][0]["input"] == {"_invalid_json": "{broken"}
    assert sent["messages"][2]["content"] == [{"type": "tool_result", "tool_use_id": "call_1_2"}]
    assert "the position of a system message" in reply.headers["x-gymnast-ignored"]


async def test_images_and_files_are_sent(bench: Bench) -> None:
    server = await start(bench)
    parts = [
        {"type": "input_image", "image_url": PIXEL, "detail": "auto"},
        {"type": "input_image", "image_url": "https://example.org/a.png", "detail": "auto"},
        {"type": "input_file", "file_data": "data:application/pdf;base64,JVBERi0="},
    ]
    await bench.ask(input=[{"role": "user", "content": parts}])
    assert conforms(server.asked[0])
    first, second, third = server.asked[0]["messages"][0]["content"]
    assert first == {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="}}
    assert second["source"] == {"type": "url", "url": "https://example.org/a.png"}
    assert (third["type"], third["source"]["media_type"]) == ("document", "application/pdf")


@pytest.mark.parametrize(
    ("params", "choice"),
    [
        ({}, None),
        ({"tool_choice": "required"}, {"type": "any"}),
        ({"tool_choice": "none"}, {"type": "none"}),
        ({"tool_choice": {"type": "function", "name": "look"}}, {"type": "tool", "name": "look"}),
        ({"parallel_tool_calls": False}, {"type": "auto", "disable_parallel_tool_use": True}),
        ({"parallel_tool_calls": False, "tool_choice": "none"}, {"type": "none"}),
    ],
)
async def test_tool_choices(bench: Bench, params: dict[str, Any], choice: Any) -> None:
    server = await start(bench)
    await bench.ask(tools=[LOOK], **params)
    assert server.asked[0].get("tool_choice") == choice
    assert conforms(server.asked[0])


async def test_without_tools_no_choice_is_sent(bench: Bench) -> None:
    server = await start(bench)
    assert (await bench.ask(tool_choice="auto", parallel_tool_calls=False)).status == 200
    assert "tool_choice" not in server.asked[0]


@pytest.mark.parametrize(
    ("stop_reason", "status", "reason"),
    [
        ("end_turn", "completed", None),
        ("stop_sequence", "completed", None),
        ("max_tokens", "incomplete", "max_output_tokens"),
        ("model_context_window_exceeded", "incomplete", "max_output_tokens"),
        ("refusal", "incomplete", "content_filter"),
    ],
)
async def test_stop_reasons(bench: Bench, stop_reason: str, status: str, reason: str | None) -> None:
    await start(bench, message("some", stop_reason=stop_reason))
    body = (await bench.ask()).body
    assert (body["status"], (body["incomplete_details"] or {}).get("reason")) == (status, reason)


async def test_an_empty_reply_is_an_empty_message(bench: Bench) -> None:
    await start(bench, message())
    assert (await bench.ask()).body["output"][0]["content"][0]["text"] == ""


@pytest.mark.parametrize(
    "text",
    [
        "prompt is too long: 210000 tokens > 200000 maximum",
        "input length and `max_tokens` exceed context limit: 199000 + 8192 > 200000",
    ],
)
async def test_a_prompt_that_is_too_long_is_an_outcome_of_the_policy(bench: Bench, text: str) -> None:
    await start(bench, error(400, "invalid_request_error", text))
    body = (await bench.ask()).body
    assert body["incomplete_details"]["reason"] == "max_output_tokens"
    assert text in body["incomplete_details"]["message"]


@pytest.mark.parametrize(
    "busy",
    [
        error(529, "overloaded_error", "Overloaded"),
        error(429, "rate_limit_error", "slow down", **{"retry-after": "0"}),
        error(500, "api_error", "Internal server error"),
    ],
)
async def test_a_busy_endpoint_is_tried_again(bench: Bench, busy: Any) -> None:
    server = await start(bench, busy, message("hi"))
    assert (await bench.ask()).status == 200
    assert len(server.asked) == 2


@pytest.mark.parametrize(
    ("reply", "kind"),
    [
        (error(400, "invalid_request_error", "temperature: range: 0..1"), FailureKind.MODEL_MISCONFIGURED),
        (error(403, "permission_error", "no"), FailureKind.MODEL_AUTH),
        (error(404, "not_found_error", "model: the-model"), FailureKind.MODEL_NOT_FOUND),
        (error(413, "request_too_large", "too large"), FailureKind.MODEL_REJECTED),
        ({"type": "message"}, FailureKind.MODEL_BAD_REPLY),
        (message({"type": "new_block"}), FailureKind.MODEL_BAD_REPLY),
    ],
)
async def test_other_errors_are_reported_once(bench: Bench, reply: Any, kind: FailureKind) -> None:
    server = await start(bench, reply)
    failure = (await bench.ask()).failure
    assert failure is not None
    assert failure.kind is kind
    assert len(server.asked) == 1


async def test_retry_after_is_read(bench: Bench) -> None:
    await start(bench, error(429, "rate_limit_error", "slow down", **{"retry-after": "0"}), max_attempts=1)
    failure = (await bench.ask()).failure
    assert failure is not None
    assert failure.kind is FailureKind.MODEL_RATE_LIMITED
    assert failure.retry_after_s == 0.0


async def test_a_refused_key_is_not_repeated_in_the_failure(bench: Bench) -> None:
    await start(bench, api_key="sk-ant-wrong")
    failure = (await bench.ask()).failure
    assert failure is not None
    assert failure.kind is FailureKind.MODEL_AUTH
    assert "sk-ant-wrong" not in f"{failure}"
    assert "****" in (failure.body or "")


@pytest.mark.parametrize(
    "params",
    [
        {"input": [{"role": "assistant", "content": "hello"}]},
        {"input": [{"role": "user", "content": " "}]},
        {"input": [{"role": "user", "content": [{"type": "input_image", "file_id": "f", "detail": "auto"}]}]},
        {"input": [{"role": "user", "content": [{"type": "input_image", "image_url": "ftp://x", "detail": "auto"}]}]},
        {"tools": [{"type": "web_search"}]},
        {"text": {"format": {"type": "json_object"}}},
    ],
)
async def test_what_the_api_cannot_say_is_refused_before_it_is_sent(bench: Bench, params: dict[str, Any]) -> None:
    server = await start(bench)
    failure = (await bench.ask(**params)).failure
    assert failure is not None
    assert failure.kind is FailureKind.MODEL_REJECTED
    assert server.asked == []


async def test_settings_and_other_parameters(bench: Bench) -> None:
    server = await start(
        bench,
        max_output_tokens=77,
        cache_prompts=True,
        extra_body={"top_k": 1},
        default_headers={"anthropic-beta": "x"},
    )
    reply = await bench.ask(
        metadata={"extra_body": '{"top_k": 5, "stop": ["END"]}'},
        reasoning={"effort": "low", "summary": "auto"},
        text={"format": {"type": "json_schema", "name": "n", "schema": {"type": "object"}}},
        top_logprobs=3,
        service_tier="flex",
    )
    sent = server.asked[0]
    assert (sent["max_tokens"], sent["top_k"], sent["stop_sequences"]) == (77, 5, ["END"])
    assert sent["output_config"] == {"effort": "low", "format": {"type": "json_schema", "schema": {"type": "object"}}}
    assert sent["messages"][-1]["content"][-1]["cache_control"] == {"type": "ephemeral"}
    assert server.headers[0]["anthropic-beta"] == "x"
    assert all(name in reply.headers["x-gymnast-ignored"] for name in ("top_logprobs", "service_tier", "summary"))
    assert conforms(sent)


async def test_chat_and_messages_clients_are_served_too(bench: Bench) -> None:
    server = await start(bench, message("hi"))
    chat = {"messages": [{"role": "user", "content": "q"}], "max_tokens": 5}
    assert (await bench.calls.call("policy", "/v1/chat/completions", chat)).body["choices"][0]["message"][
        "content"
    ] == "hi"
    sent = {"messages": [{"role": "user", "content": "q"}], "max_tokens": 5, "stop_sequences": ["X"]}
    assert (await bench.calls.call("policy", "/v1/messages", sent)).body["content"] == [{"type": "text", "text": "hi"}]
    assert server.asked[1]["stop_sequences"] == ["X"]


@pytest.mark.parametrize("url", ["http://h:1", "http://h:1/", "http://h:1/v1", "http://h:1/v1/"])
def test_the_version_in_the_address_is_optional(url: str) -> None:
    assert versioned_url(url) == "http://h:1/v1"
    assert versioned_url("addresses:///x") == "addresses:///x"


async def test_a_run_with_tools_thinking_and_a_key_by_name(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = MessagesServer(
        error(529, "overloaded_error", "Overloaded"),
        message(THINKING, tool_use("t1", "get_price", item="pen"), tool_use("t2", "get_price"), stop_reason="tool_use"),
        message("The answer is 7."),
    )
    url = await bench.listen(server)
    keys = tmp_path / "keys.yaml"
    keys.write_text(f"mine: {KEY}\n")
    keys.chmod(0o600)
    monkeypatch.setenv("GYMNAST_KEYS", str(keys))
    settings = "++policy_model.responses_api_models.anthropic_model"
    rows = BUILTIN / "resources_servers" / "shop_lookup" / "data" / "example.jsonl"
    records = [
        record
        async for record in gymnast.collect(
            rows,
            tmp_path / "run" / "a.jsonl",
            environments=["shop_lookup"],
            model_type="anthropic",
            model_url=url,
            model="claude-haiku-4-5",
            model_key_name="mine",
            overrides=[f"{settings}.prices=table", f"{settings}.thinking={{type: enabled, budget_tokens: 2000}}"],
            limit=1,
        )
    ]
    assert len(records) == 1
    assert len(server.asked) == 3
    usage = records[0].data["_ng_model_usage"]
    assert (usage["calls"], usage["input_tokens"], usage["cached_tokens"]) == (2, 66, 40)
    assert usage["cost"] == pytest.approx(2 * (13 * 1.0 + 20 * 0.1 + 7 * 5.0) / 1e6)
    assert all(KEY not in path.read_text() for path in (tmp_path / "run").glob("*") if path.is_file())
