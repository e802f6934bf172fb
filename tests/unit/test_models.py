"""The shipped model servers against real HTTP endpoints: conversion, retries, replicas, what an overflow is."""

from __future__ import annotations

import asyncio
import json
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gymnast.builtin.responses_api_models.scripted_model.app import ScriptedModel, ScriptedModelSettings
from gymnast.endpoints.replicas import Replicas
from gymnast.endpoints.upstream import RetryPolicy
from gymnast.kit import ModelCall
from gymnast.types.failure import FailureDetail, FailureKind, Stage
from gymnast.wire.calls import Calls, Scope
from gymnast.wire.http_client import HttpClient
from gymnast.wire.message import Reply, Request
from gymnast.wire.server import ServerContext
from tests.helpers.model_bench import Bench, Endpoint, Silence, chat
from tests.helpers.waiting import eventually

# --- vllm_model ------------------------------------------------------------------------------------------------------


async def test_a_responses_call_becomes_a_chat_call_and_back(bench: Bench) -> None:
    endpoint = await bench.endpoint(chat("<think>hm</think>answer"))
    bench.vllm(endpoint.url)
    reply = await bench.ask(temperature=0.5, max_output_tokens=9)
    assert [item["type"] for item in reply.body["output"]] == ["reasoning", "message"]
    assert reply.body["usage"]["total_tokens"] == 5
    request = endpoint.asked[0]
    assert request["path"] == "/v1/chat/completions"
    assert (request["model"], request["temperature"], request["max_tokens"]) == ("the-model", 0.5, 9)
    assert endpoint.headers[0]["authorization"] == "Bearer sk"


async def test_configured_extras_lie_under_the_request_and_overrides_on_top(bench: Bench) -> None:
    endpoint = await bench.endpoint(chat())
    bench.vllm(
        endpoint.url,
        extra_body={"top_k": 1, "min_p": 0.1},
        chat_template_kwargs={"enable_thinking": True, "x": 1},
        sampling_overrides={"temperature": 0.9},
        default_headers={"x-team": "rl"},
    )
    metadata = {"extra_body": '{"top_k": 2, "seed": 5}', "chat_template_kwargs": '{"x": 2}'}
    await bench.ask(temperature=0.1, metadata=metadata)
    request = endpoint.asked[0]
    assert (request["top_k"], request["min_p"], request["seed"], request["temperature"]) == (2, 0.1, 5, 0.9)
    assert request["chat_template_kwargs"] == {"enable_thinking": True, "x": 2}
    assert request["metadata"] == metadata
    assert endpoint.headers[0]["x-team"] == "rl"


async def test_history_reasoning_leaves_the_content(bench: Bench) -> None:
    history = [
        {"role": "user", "content": "q"},
        {"type": "reasoning", "id": "r", "summary": [{"type": "summary_text", "text": "deep"}]},
        {"role": "assistant", "content": "text"},
        {"role": "user", "content": "more"},
    ]
    for settings, content, reasoning in (
        ({}, "text", "deep"),
        ({"uses_interleaved_reasoning": False}, "text", None),
        ({"preserve_reasoning_in_assistant_content": True}, "<think>deep</think>text", "deep"),
        ({"uses_reasoning_parser": False}, "<think>deep</think>text", None),
    ):
        endpoint = await bench.endpoint(chat())
        bench.vllm(endpoint.url, **settings)
        await bench.ask(input=history)
        sent = endpoint.asked[0]["messages"][1]
        assert sent["content"] == content
        assert sent.get("reasoning_content") == sent.get("reasoning") == reasoning


@pytest.mark.parametrize("field", ["reasoning", "reasoning_content"])
async def test_engine_reasoning_is_folded_back(bench: Bench, field: str) -> None:
    endpoint = await bench.endpoint(chat("answer", **{field: "thoughts"}))
    bench.vllm(endpoint.url)
    output = (await bench.ask()).body["output"]
    assert output[0]["summary"][0]["text"] == "thoughts"
    assert output[1]["content"][0]["text"] == "answer"


async def test_engine_reasoning_without_a_parser_is_an_error(bench: Bench) -> None:
    endpoint = await bench.endpoint(chat("answer", reasoning="thoughts"))
    bench.vllm(endpoint.url, uses_reasoning_parser=False)
    reply = await bench.ask()
    assert reply.failure is not None
    assert reply.failure.kind == "model_bad_reply"


async def test_developer_messages_become_system_where_asked(bench: Bench) -> None:
    endpoint = await bench.endpoint(chat())
    bench.vllm(endpoint.url, replace_developer_role_with_system=True)
    await bench.ask(input=[{"role": "developer", "content": "d"}, {"role": "user", "content": "q"}])
    assert endpoint.asked[0]["messages"][0]["role"] == "system"


@pytest.mark.parametrize("said", ["maximum context length is 4096", "max_tokens must be at least 1, got -3"])
async def test_a_context_overflow_is_an_outcome(bench: Bench, said: str) -> None:
    endpoint = await bench.endpoint(Reply(400, {"error": {"message": said}}))
    bench.vllm(endpoint.url)
    reply = await bench.ask()
    assert reply.status == 200
    assert reply.body["incomplete_details"]["reason"] == "max_output_tokens"
    assert said in reply.body["incomplete_details"]["message"]
    assert reply.body["output"][0]["content"][0]["text"] == ""
    assert reply.body["usage"] is None
    assert len(endpoint.asked) == 1


async def test_another_400_is_a_failure_with_the_endpoints_words(bench: Bench) -> None:
    endpoint = await bench.endpoint(Reply(400, {"error": {"message": "grammar is not supported"}}))
    bench.vllm(endpoint.url)
    reply = await bench.ask()
    assert reply.status == 500
    assert reply.failure is not None
    assert (reply.failure.kind, reply.failure.status) == ("model_rejected", 400)
    assert "grammar is not supported" in (reply.failure.body or "")
    assert reply.failure.endpoint == endpoint.url
    assert len(endpoint.asked) == 1


async def test_a_request_chat_cannot_express_fails_without_a_call(bench: Bench) -> None:
    endpoint = await bench.endpoint(chat())
    bench.vllm(endpoint.url)
    for params in (
        {"previous_response_id": "r"},
        {"metadata": {"audio_path": "x.wav"}},
        {"metadata": {"extra_body": "{"}},
    ):
        reply = await bench.ask(**params)
        assert reply.failure is not None
        assert reply.failure.kind == "model_rejected"
    assert not endpoint.asked


async def test_an_empty_assistant_turn_is_not_sent_where_sequential_reasoning_is_off(bench: Bench) -> None:
    endpoint = await bench.endpoint(chat())
    bench.vllm(endpoint.url, sequential_reasoning_allowed=False)
    thought = {"type": "reasoning", "id": "r", "summary": [{"type": "summary_text", "text": "t"}]}
    reply = await bench.ask(input=[{"role": "user", "content": "q"}, thought])
    assert reply.body["incomplete_details"] == {"reason": "content_filter"}
    assert not endpoint.asked


async def test_chat_completions_pass_through_with_unknown_parameters(bench: Bench) -> None:
    endpoint = await bench.endpoint(chat("plain"))
    bench.vllm(endpoint.url)
    body = {"messages": [{"role": "user", "content": "q"}], "top_k": 7, "model": "ignored"}
    reply = await bench.calls.call("policy", "/v1/chat/completions", body)
    assert reply.body["choices"][0]["message"]["content"] == "plain"
    assert (endpoint.asked[0]["top_k"], endpoint.asked[0]["model"]) == (7, "the-model")


async def test_a_native_responses_engine(bench: Bench) -> None:
    native = {
        "id": "r",
        "created_at": 1,
        "model": "m",
        "object": "response",
        "output": [],
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
    }
    endpoint = await bench.endpoint(native, {"nonsense": True})
    bench.vllm(endpoint.url, is_responses_native=True)
    assert (await bench.ask()).body["id"] == "r"
    assert endpoint.asked[0]["path"] == "/v1/responses"
    bad = await bench.ask()
    assert bad.failure is not None
    assert bad.failure.kind == "model_bad_reply"


# --- openai_model ----------------------------------------------------------------------------------------------------


async def test_openai_model_passes_through(bench: Bench) -> None:
    reply = {
        "id": "r",
        "created_at": 1,
        "model": "m",
        "object": "response",
        "output": [],
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
        "provider_extra": 1,
    }
    endpoint = await bench.endpoint(reply)
    bench.openai(endpoint.url, extra_body={"user": "team", "store": False}, drop_input_reasoning_items=True)
    thought = {"type": "reasoning", "id": "r", "summary": []}
    found = await bench.ask(input=[{"role": "user", "content": "q"}, thought], store=True)
    assert found.body["provider_extra"] == 1
    request = endpoint.asked[0]
    assert request["path"] == "/v1/responses"
    assert (request["model"], request["user"], request["store"]) == ("the-model", "team", True)
    assert [item.get("type", "message") for item in request["input"]] == ["message"]


async def test_max_concurrent_requests(bench: Bench) -> None:
    endpoint = await bench.endpoint(chat())
    bench.vllm(endpoint.url, max_concurrent_requests=2)
    assert await peaks_of_six(bench, endpoint, expected=2) == [2]


async def test_each_endpoint_has_a_limit_of_its_own(bench: Bench) -> None:
    endpoints = [await bench.endpoint(chat()), await bench.endpoint(chat())]
    model = bench.vllm(*(endpoint.url for endpoint in endpoints), max_concurrent_requests_per_endpoint=1)
    assert [replica.slots.locked() for replica in model.upstream.replicas.all if replica.slots] == [False, False]
    assert await peaks_of_six(bench, *endpoints, expected=1) == [1, 1]


async def peaks_of_six(bench: Bench, *endpoints: Endpoint, expected: int) -> list[int]:
    """How many of six calls at once were at each endpoint together; they are held there until all that may are."""
    for endpoint in endpoints:
        endpoint.open.clear()
    calls = [asyncio.create_task(bench.ask()) for _ in range(6)]
    await eventually(lambda: all(endpoint.running == expected for endpoint in endpoints), within_s=60)
    await asyncio.sleep(0.02)  # for more to come if they may
    for endpoint in endpoints:
        endpoint.open.set()
    assert [reply.status for reply in await asyncio.gather(*calls)] == [200] * 6
    return [endpoint.peak for endpoint in endpoints]


# --- upstream retries and replicas -----------------------------------------------------------------------------------


@pytest.mark.parametrize("status", [429, 502, 503, 504, 520])
async def test_busy_endpoints_are_asked_again(bench: Bench, status: int) -> None:
    endpoint = await bench.endpoint(Reply(status, "busy"), Reply(status, "busy"), chat("at last"))
    bench.vllm(endpoint.url)
    assert (await bench.ask()).status == 200
    assert len(endpoint.asked) == 3


async def test_retries_are_bounded_and_the_last_answer_is_kept(bench: Bench) -> None:
    endpoint = await bench.endpoint(Reply(429, {"error": "slow down"}))
    bench.vllm(endpoint.url)
    reply = await bench.ask()
    assert reply.failure is not None
    assert (reply.failure.kind, reply.failure.status) == ("model_rate_limited", 429)
    assert "slow down" in (reply.failure.body or "")
    assert len(endpoint.asked) == 6


async def test_a_500_gets_three_tries(bench: Bench) -> None:
    endpoint = await bench.endpoint(Reply(500, "oops"))
    bench.vllm(endpoint.url)
    reply = await bench.ask()
    assert reply.failure is not None
    assert reply.failure.kind == "model_error"
    assert len(endpoint.asked) == 3


async def test_a_timeout_is_not_repeated(bench: Bench) -> None:
    endpoint = await bench.endpoint(Silence.UNTIL_HANG_UP)
    bench.vllm(endpoint.url, timeout_s=0.1)
    reply = await bench.ask()
    assert reply.failure is not None
    assert reply.failure.kind == "model_timeout"
    assert len(endpoint.asked) == 1


@pytest.mark.parametrize("raw", ["not json", "[1, 2]"])
async def test_a_200_that_is_not_a_completion_is_a_failure(bench: Bench, raw: str) -> None:
    from gymnast.wire.message import PlainText

    endpoint = await bench.endpoint(Reply(200, PlainText(raw)))
    bench.vllm(endpoint.url)
    reply = await bench.ask()
    assert reply.failure is not None
    assert reply.failure.kind == "model_bad_reply"


async def test_a_dead_endpoint_is_a_failure_in_words(bench: Bench) -> None:
    bench.vllm("http://127.0.0.1:9/v1")
    reply = await bench.ask()
    assert reply.failure is not None
    assert reply.failure.kind == "model_unreachable"
    assert "http://127.0.0.1:9/v1/chat/completions failed" in reply.failure.message


async def test_a_session_stays_at_its_replica_and_moves_when_that_dies(bench: Bench) -> None:
    first, second = await bench.endpoint(chat("first")), await bench.endpoint(chat("second"))
    model = bench.vllm(first.url, second.url)
    scopes = [Scope() for _ in range(12)]
    for _ in range(3):
        for scope in scopes:
            assert (await bench.ask(scope)).status == 200
    assert len(first.asked) % 3 == len(second.asked) % 3 == 0
    assert len(first.asked) > 0
    assert len(second.asked) > 0
    dead = model.upstream.replicas.all[0]
    dead.base_url = "http://127.0.0.1:9/v1"
    before = len(second.asked)
    replies = await asyncio.gather(*(bench.ask(scope) for scope in scopes))
    assert [reply.body["output"][0]["content"][0]["text"] for reply in replies] == ["second"] * 12
    assert len(second.asked) == before + 12


def test_a_dead_replica_is_tried_again_later_by_new_sessions() -> None:
    now = 0.0
    replicas = Replicas(["http://a", "http://b"], choice="hash", clock=lambda: now)
    session, others = call_of("one"), [call_of(f"s{n}") for n in range(100)]
    own = replicas.choose(session)
    replicas.report_down(own)
    other = replicas.choose(session)
    assert other is not own
    now = 1.5
    assert replicas.choose(session) is other  # it moved, and its cache with it
    assert {replicas.choose(call) for call in others} == {own, other}
    for _ in range(10):
        replicas.report_down(own)
    now = 31.0
    assert {replicas.choose(call) for call in others} == {other}
    replicas.report_down(other)
    assert replicas.choose(session) is other  # all down: its own is as good as any


def call_of(session: str) -> ModelCall:
    return ModelCall(Request("POST", "/", new_session_id=session))


@given(
    st.integers(1, 20),
    st.floats(0, 1, exclude_max=True),
    st.sampled_from([FailureKind.MODEL_RATE_LIMITED, FailureKind.MODEL_ERROR, FailureKind.MODEL_AUTH]),
)
def test_retry_delays_are_bounded(attempt: int, jitter: float, kind: FailureKind) -> None:
    policy = RetryPolicy()
    status = {"model_rate_limited": 429, "model_error": 500, "model_auth": 401}[kind]
    delay = policy.delay_s(FailureDetail(kind, Stage.MODEL, "x", status=status), attempt, jitter)
    allowed = {"model_rate_limited": 6, "model_error": 3, "model_auth": 1}[kind]
    assert (delay is None) == (attempt >= allowed)
    assert delay is None or 0 < delay <= policy.max_delay_s * 1.5


def test_retry_after_is_honoured_up_to_a_limit() -> None:
    detail = FailureDetail(FailureKind.MODEL_RATE_LIMITED, Stage.MODEL, "x", status=429, retry_after_s=3.0)
    assert RetryPolicy().delay_s(detail, 1, 0.5) == 3.0
    long = FailureDetail(FailureKind.MODEL_RATE_LIMITED, Stage.MODEL, "x", status=429, retry_after_s=3600.0)
    assert RetryPolicy().delay_s(long, 1, 0.5) == 20.0


# --- scripted_model --------------------------------------------------------------------------------------------------


async def texts(bench: Bench, *inputs: Any) -> list[str]:
    return [(await bench.ask(input=given)).body["output"][0]["content"][0]["text"] for given in inputs]


async def test_replies_by_turn_and_the_last_repeats(bench: Bench) -> None:
    bench.scripted(replies=["one", {"text": "two"}])
    user, mine = {"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}
    assert await texts(bench, [user], [user, mine, user], [user, mine, user, mine, user]) == ["one", "two", "two"]


async def test_rules_by_pattern_from_files(bench: Bench, tmp_path: Any) -> None:
    rules = [{"when": "weather|rain", "replies": ["wet"]}, {"when": "time", "replies": ["late"]}]
    (tmp_path / "rules.jsonl").write_text("".join(json.dumps(rule) + "\n" for rule in rules))
    (tmp_path / "rules.json").write_text(json.dumps(rules))
    (tmp_path / "rules.yaml").write_text("- {when: weather|rain, replies: [wet]}\n- {when: time, replies: [late]}\n")
    for name in ("rules.jsonl", "rules.json", "rules.yaml"):
        bench.scripted(script=str(tmp_path / name))
        assert await texts(bench, "what time is it", "will it rain") == ["late", "wet"]
        assert (await bench.ask(input="unmatched")).status == 400


async def test_functions_see_the_call_and_are_seeded_by_rollout(bench: Bench) -> None:
    bench.scripted(script=f"{__name__}:dice")
    rolls = {}
    for rollout in ("1-0", "1-1", "1-2"):
        scope = Scope(rollout)
        first, second = await bench.ask(scope), await bench.ask(Scope(rollout))
        rolls[rollout] = first.body["output"][0]["content"][0]["text"]
        assert second.body["output"][0]["content"][0]["text"] == rolls[rollout]
    assert len(set(rolls.values())) > 1


async def dice(call: Any) -> str:
    return f"{call.user_text}{call.random.randrange(10**6)}"


async def test_scripted_tool_calls_errors_and_raw_bodies(bench: Bench) -> None:
    bench.scripted(replies=[{"tool_calls": [{"name": "f", "arguments": {"a": 1}}, {"name": "g", "arguments": "{bad"}]}])
    output = (await bench.ask()).body["output"]
    assert [(item["name"], item["arguments"]) for item in output] == [("f", '{"a":1}'), ("g", "{bad")]
    bench.scripted(replies=[{"status": 429, "body": {"error": "x"}, "retry_after_s": 2}])
    busy = await bench.ask()
    assert (busy.status, busy.body, busy.headers["retry-after"]) == (429, {"error": "x"}, "2")
    bench.scripted(replies=[{"raw": "gibberish"}])
    assert (await bench.ask()).text() == "gibberish"


async def test_faults_hit_their_share_of_calls_and_always_the_same_ones(bench: Bench) -> None:
    bench.scripted(replies=["ok"], faults=[{"rate": 0.3, "reply": {"status": 503}}])
    first = [(await bench.ask(Scope(f"{n}-0"))).status for n in range(300)]
    assert 60 <= first.count(503) <= 120
    assert first == [(await bench.ask(Scope(f"{n}-0"))).status for n in range(300)]


async def test_latency_is_waited_for(bench: Bench) -> None:
    bench.scripted(replies=["slow"], latency_s=0.05)
    started = time.monotonic()
    await bench.ask()
    assert time.monotonic() - started > 0.04


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({}, "either `script` or `replies`"),
        ({"replies": ["x"], "script": "y"}, "either `script` or `replies`"),
        ({"replies": []}, "must be a non-empty list"),
        ({"replies": [{"txt": "x"}]}, "entry 0"),
        ({"script": "nowhere.jsonl"}, "is neither an existing file nor module:function"),
        ({"script": "no.such.module:f"}, "cannot import the script function"),
    ],
)
def test_bad_scripts_are_explained(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        ScriptedModel("policy", ScriptedModelSettings(**settings), ServerContext(Calls({}), HttpClient()))
