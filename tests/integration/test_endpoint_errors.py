"""What endpoints say is understood: a real server on loopback sends each message as the real one does."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any

import pytest

from gymnast.errors import CallError
from gymnast.types.failure import KINDS, FailureDetail, FailureKind
from gymnast.wire.endpoint_errors import MEANINGS, Cause, Certainty
from gymnast.wire.http_client import HttpClient
from tests.helpers.caller import Caller
from tests.helpers.endpoint_messages import MESSAGES, Message
from tests.helpers.model_bench import Bench, chat
from tests.helpers.tcp_server import answering, listening, read_request

QUESTION = {"model": "m", "messages": [{"role": "user", "content": "What is the capital of Norway?"}]}
OUTAGES = {FailureKind.MODEL_RATE_LIMITED, FailureKind.MODEL_OVERLOADED, FailureKind.MODEL_UNREACHABLE}


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    async with AsyncExitStack() as stack:
        yield Bench(stack, await stack.enter_async_context(HttpClient()))


def encode(message: Message) -> bytes:
    body = message.body.encode()
    headers = {"content-type": "application/json", **message.headers, "content-length": str(len(body))}
    head = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    return f"HTTP/1.1 {message.status} X\r\n{head}\r\n".encode() + body


async def failure_of(bench: Bench, reply: bytes, path: str = "/chat/completions", **body: Any) -> FailureDetail:
    """The failure that a model server makes of a reply."""
    async with listening(answering(reply, times=1)) as server:
        model = bench.vllm(f"http://127.0.0.1:{server.port}/v1", max_attempts=1)
        with pytest.raises(CallError) as caught:
            await model.upstream.post(path, {**QUESTION, **body}, Caller())
    return caught.value.detail


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: f"{message.stack}-{message.cause}")
async def test_each_message_is_told_as_what_it_means(bench: Bench, message: Message) -> None:
    detail = await failure_of(bench, encode(message), message.path)
    assert (detail.cause, detail.status) == (message.cause, message.status)
    assert detail.kind is (MEANINGS[message.cause].kind or detail.kind)
    assert message.body[:60] in (detail.body or "")
    assert str(message.status) in detail.message


def test_the_corpus_covers_what_it_should() -> None:
    assert len(MESSAGES) >= 120
    stacks = {"vllm", "sglang", "tensorrt_llm", "llama.cpp", "ollama", "openai", "azure", "anthropic", "gemini"}
    assert stacks | {"openrouter", "litellm", "together", "fireworks", "tgi", "nginx", "envoy", "cloudflare"} <= {
        message.stack for message in MESSAGES
    }


async def tries_of(bench: Bench, reply: bytes) -> tuple[int, FailureDetail]:
    """How often a request is sent if every reply is this one."""
    async with listening(answering(reply, times=1)) as server:
        model = bench.vllm(f"http://127.0.0.1:{server.port}/v1", max_attempts=3)
        with pytest.raises(CallError) as caught:
            await model.upstream.post("/chat/completions", QUESTION, Caller())
        return server.connections, caught.value.detail


@pytest.mark.parametrize(
    "cause", [Cause.QUOTA, Cause.RATE_LIMIT, Cause.CONTENT_FILTER, Cause.TOOL_PARSER_MISSING, Cause.SERVER_ERROR]
)
async def test_only_what_time_heals_is_tried_again(bench: Bench, cause: Cause) -> None:
    message = next(message for message in MESSAGES if message.cause is cause and message.status != 200)
    tries, detail = await tries_of(bench, encode(message))
    assert tries == (3 if KINDS[detail.kind].retryable else 1)


async def test_an_error_in_a_good_reply_is_tried_again_if_it_may_pass(bench: Bench) -> None:
    endpoint = await bench.endpoint({"error": {"message": "Provider returned error", "code": 502}}, chat("hi"))
    model = bench.vllm(endpoint.url, max_attempts=2)
    reply = await model.upstream.post("/chat/completions", QUESTION, Caller())
    assert reply["choices"]
    assert len(endpoint.asked) == 2


@pytest.mark.parametrize("text", ['say "error": 5', '{"error": "x"}'])
async def test_an_answer_about_errors_is_an_answer(bench: Bench, text: str) -> None:
    endpoint = await bench.endpoint(chat(text))
    reply = await bench.vllm(endpoint.url).upstream.post("/chat/completions", QUESTION, Caller())
    assert reply["choices"][0]["message"]["content"] == text


async def test_a_redirect_is_told_with_where_it_leads(bench: Bench) -> None:
    reply = b"HTTP/1.1 302 Found\r\nlocation: https://sso.example.com/login\r\ncontent-length: 0\r\n\r\n"
    detail = await failure_of(bench, reply)
    assert detail.kind is FailureKind.MODEL_MISCONFIGURED
    assert "https://sso.example.com/login" in detail.message
    assert "302" in detail.message
    assert not re.search(r"\b500\b", detail.message)


@pytest.mark.parametrize(
    "text",
    [
        "Out of memory: Killed process 4242 (python3) total-vm:1234kB",
        "This model's maximum context length is 10 tokens. However, your prompt contains 20 input tokens.",
        "You exceeded your current quota, please check your plan and billing details.",
        '"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set',
        "429",
        "insufficient_quota",
    ],
)
@pytest.mark.parametrize("form", ["fastapi", "repr", "message", "nested"])
async def test_what_a_row_says_decides_nothing(bench: Bench, text: str, form: str) -> None:
    forms: dict[str, Any] = {
        "fastapi": {"detail": [{"loc": ["body", "x"], "msg": "Input should be a list", "type": "x", "input": text}]},
        "repr": {"error": {"message": f"[{{'type': 'x', 'loc': ('body', 'x'), 'msg': 'bad', 'input': {text!r}}}]"}},
        "message": {"error": {"message": f"cannot use '{text}' here", "code": 400}},
        "nested": {"error": {"message": json.dumps({"error": {"message": f"cannot use '{text}' here"}})}},
    }
    body = json.dumps(forms[form]).encode()
    reply = b"HTTP/1.1 422 X\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body)
    detail = await failure_of(bench, reply, messages=[{"role": "user", "content": text}])
    assert detail.cause in {Cause.UNRECOGNISED, Cause.PARAMETER_REFUSED, Cause.WRONG_DIALECT}
    assert text.split("'", maxsplit=1)[0] in (detail.body or "").replace('\\"', '"').replace("\\", "")


async def test_a_quoted_row_does_not_hide_the_reason(bench: Bench) -> None:
    said = "This model's maximum context length is 10 tokens. However, you requested 25 tokens. Prompt: 'What is the "
    body = json.dumps({"error": {"message": f"{said}capital of Norway?'", "code": 400}}).encode()
    reply = b"HTTP/1.1 400 X\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body)
    detail = await failure_of(bench, reply)
    assert (detail.cause, detail.certainty) == (Cause.CONTEXT_OVERFLOW, Certainty.KNOWN)


async def test_a_server_that_goes_away_in_the_middle(bench: Bench) -> None:
    detail = await failure_of(bench, b'HTTP/1.1 200 X\r\ncontent-length: 500\r\n\r\n{"choices": [')
    assert (detail.cause, detail.kind) == (Cause.CONNECTION_LOST, FailureKind.MODEL_UNREACHABLE)


@pytest.mark.parametrize(
    ("body", "cause"),
    [
        (b"%%%garbage", Cause.NOT_AN_ANSWER),
        (b'{"choices": []} {"choices": []}', Cause.NOT_AN_ANSWER),
        (b'{"choices": [{"message": {"content": "\xff"}}]}', Cause.NOT_AN_ANSWER),
        (bytes(range(256)), Cause.NOT_AN_ANSWER),
        (b'{"choices": [', Cause.CONNECTION_LOST),
        ('{"choices": [{"message": {"content": "caf\u00e9'.encode()[:-1], Cause.CONNECTION_LOST),
    ],
)
async def test_a_reply_that_is_not_json_was_cut_off_only_if_it_ends_in_the_middle(
    bench: Bench, body: bytes, cause: Cause
) -> None:
    detail = await failure_of(bench, b"HTTP/1.1 200 X\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body))
    assert (detail.cause, detail.kind) == (cause, FailureKind.MODEL_BAD_REPLY)


async def test_plain_http_at_a_tls_port(bench: Bench) -> None:
    detail = await failure_of(bench, b"\x15\x03\x01\x00\x02\x02F")
    assert (detail.cause, detail.kind) == (Cause.PLAIN_ON_TLS, FailureKind.MODEL_MISCONFIGURED)


async def test_https_at_a_plain_port(bench: Bench) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(10)
        writer.write(b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n")

    async with listening(answer) as server:
        model = bench.vllm(f"https://127.0.0.1:{server.port}/v1", max_attempts=1)
        with pytest.raises(CallError) as caught:
            await model.upstream.post("/chat/completions", QUESTION, Caller())
    assert caught.value.detail.cause == Cause.TLS_ON_PLAIN
    assert not KINDS[caught.value.detail.kind].retryable


async def test_nothing_listens(bench: Bench) -> None:
    async with listening(answering(b"")) as server:
        port = server.port
    model = bench.vllm(f"http://127.0.0.1:{port}/v1", max_attempts=1)
    with pytest.raises(CallError) as caught:
        await model.upstream.post("/chat/completions", QUESTION, Caller())
    assert (caught.value.detail.cause, caught.value.detail.kind in OUTAGES) == (Cause.CONNECTION_REFUSED, True)


async def test_an_error_inside_a_stream_is_told_as_what_it_says(bench: Bench) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        event = b'data: {"error": {"message": "Insufficient credits", "code": 402}}\n\n'
        head = b"HTTP/1.1 200 X\r\ncontent-type: text/event-stream\r\ncontent-length: %d\r\n\r\n"
        writer.write(head % len(event) + event)

    async with listening(answer) as server:
        model = bench.vllm(f"http://127.0.0.1:{server.port}/v1", max_attempts=1)
        with pytest.raises(CallError) as caught:
            await model.upstream.post_timed("/chat/completions", QUESTION, Caller())
    assert caught.value.detail.kind is FailureKind.MODEL_QUOTA
    assert "Insufficient credits" in (caught.value.detail.body or "")


@pytest.mark.parametrize(
    ("said", "status"),
    [
        ("Unsupported parameter: 'max_tokens' is not supported with this model.", 400),
        ("The response was filtered due to the prompt triggering Azure OpenAI's content management policy.", 400),
        ("max_tokens is too large: 100000. This model supports at most 16384 completion tokens.", 400),
        ("This request requires more credits, or fewer max_tokens.", 402),
    ],
)
async def test_what_is_not_an_answer_is_never_scored(bench: Bench, said: str, status: int) -> None:
    body = json.dumps({"error": {"message": said}}).encode()
    async with listening(answering(b"HTTP/1.1 %d X\r\ncontent-length: %d\r\n\r\n%b" % (status, len(body), body))) as it:
        bench.vllm(f"http://127.0.0.1:{it.port}/v1")
        reply = await bench.ask()
    assert not reply.ok
    assert reply.failure is not None
    assert said in (reply.failure.body or "")


@pytest.mark.parametrize("content", [None, "", "  "])
async def test_a_filtered_reply_without_text_is_a_failure(bench: Bench, content: str | None) -> None:
    endpoint = await bench.endpoint(chat(content, finish="content_filter"))
    bench.vllm(endpoint.url)
    reply = await bench.ask()
    assert reply.failure is not None
    assert (reply.failure.kind, reply.failure.cause) == (FailureKind.MODEL_REJECTED, Cause.CONTENT_FILTER)


async def test_a_filtered_reply_with_text_is_an_outcome(bench: Bench) -> None:
    endpoint = await bench.endpoint(chat("The first half", finish="content_filter"))
    bench.vllm(endpoint.url)
    assert (await bench.ask()).body["incomplete_details"] == {"reason": "content_filter"}
