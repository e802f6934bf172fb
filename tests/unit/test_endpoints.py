"""Endpoints: several base URLs, health, load, what calls used, time to the first token."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gymnast.builtin.responses_api_models.openai_model.app import OpenAIModel, OpenAIModelSettings
from gymnast.builtin.responses_api_models.vllm_model.app import VLLMModel
from gymnast.endpoints.replicas import MAX_SESSIONS, Replicas, hash_index
from gymnast.kit import ModelCall, Prices
from gymnast.types.failure import Stage
from gymnast.types.usage import (
    USAGE_HEADER,
    ModelUsage,
    Tokens,
    UsageCounter,
    decode_usage,
    encode_usage,
    parse_tokens,
    usage_of_line,
)
from gymnast.wire.asgi import Receive, Send, ServerApp, read_body, send_reply
from gymnast.wire.calls import Scope
from gymnast.wire.dialects.chat_chunks import (
    BrokenStream,
    StreamedError,
    arrival_ms,
    iter_events,
    parse_completion_stream,
)
from gymnast.wire.http_client import HttpClient
from gymnast.wire.message import EventStream, Reply, Request
from gymnast.wire.progress import AttemptProgress
from gymnast.wire.transports import HttpTransport, InProcessTransport
from tests.helpers.chat_streams import delta, sse
from tests.helpers.model_bench import Bench as ModelBench
from tests.helpers.waiting import eventually

USAGE = {
    "prompt_tokens": 100,
    "completion_tokens": 20,
    "total_tokens": 120,
    "prompt_tokens_details": {"cached_tokens": 40},
    "completion_tokens_details": {"reasoning_tokens": 5},
}


def chat(content: str | None = "hi", usage: Any = USAGE, **more: Any) -> dict[str, Any]:
    choice = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": content, **more}}
    return {"id": "c", "object": "chat.completion", "created": 9, "model": "m", "choices": [choice], "usage": usage}


class Engine:
    """An endpoint with a health page and, if it has some, metrics."""

    def __init__(self, reply: Any) -> None:
        self.reply = reply
        self.calls = 0
        self.looks: Counter[str] = Counter()
        self.status = 200
        self.metrics: str | None = None
        self.asked: list[dict[str, Any]] = []
        self.url = ""

    async def __call__(self, scope: Any, receive: Receive, send: Send) -> None:
        body = await read_body(receive)
        if scope["method"] == "GET":
            self.looks[scope["path"]] += 1
            await send_reply(send, self._page(scope["path"]))
            return
        self.calls += 1
        self.asked.append(json.loads(body))
        await send_reply(send, self.reply if isinstance(self.reply, Reply) else Reply(200, self.reply))

    def _page(self, path: str) -> Reply:
        if path == "/health":
            return Reply(self.status, {})
        if path == "/metrics" and self.metrics is not None:
            return Reply(200, EventStream(self.metrics))
        return Reply(404, {})


class Bench(ModelBench):
    """Hosts engines and model servers in front of them."""

    async def engine(self, reply: Any = None) -> Engine:
        engine = Engine(chat() if reply is None else reply)
        engine.url = f"{await self.listen(engine)}/v1"
        return engine

    def vllm(self, *urls: str, **settings: Any) -> VLLMModel:
        return super().vllm(**{"base_url": list(urls), "model": "m", "health_interval_s": 0.05, **settings})


@pytest.fixture
async def bench(http: HttpClient) -> AsyncIterator[Bench]:
    async with AsyncExitStack() as stack:
        yield Bench(stack, http)


def call_of(session: str) -> ModelCall:
    return ModelCall(Request("POST", "/", new_session_id=session))


# --- health ----------------------------------------------------------------------------------------------------------


async def test_a_sick_replica_is_avoided_and_comes_back_by_itself(bench: Bench) -> None:
    sick, well = await bench.engine(chat("sick")), await bench.engine(chat("well"))
    model = bench.vllm(sick.url, well.url, replica_choice="hash")
    sick.status = 503
    await bench.ask()
    replica = model.upstream.replicas.all[0]
    await eventually(lambda: replica.failures > 0)
    sick.calls = well.calls = 0
    for _ in range(20):
        assert (await bench.ask()).status == 200
    assert (sick.calls, well.calls) == (0, 20)
    sick.status = 200
    await eventually(lambda: replica.down_until == 0.0)
    for _ in range(40):
        await bench.ask()
    assert sick.calls > 0


async def test_checks_end_with_the_server(bench: Bench) -> None:
    one, two = await bench.engine(), await bench.engine()
    model = bench.vllm(one.url, two.url, health_interval_s=0.01)
    await bench.ask()
    await eventually(lambda: one.looks["/health"] > 1)
    assert model.upstream.health.is_running
    await model.stop()
    assert not model.upstream.health.is_running
    seen = one.looks["/health"]
    await asyncio.sleep(0.04)  # several intervals
    assert one.looks["/health"] == seen


async def test_a_single_endpoint_is_never_checked(bench: Bench) -> None:
    one = await bench.engine()
    model = bench.vllm(one.url, health_interval_s=0.01)
    await bench.ask()
    await asyncio.sleep(0.04)
    assert not one.looks
    assert not model.upstream.health.is_running


async def test_checks_can_be_turned_off(bench: Bench) -> None:
    one, two = await bench.engine(), await bench.engine()
    bench.vllm(one.url, two.url, health_interval_s=0)
    await bench.ask()
    await asyncio.sleep(0.04)
    assert not one.looks


async def test_an_endpoint_without_a_health_page_is_asked_for_its_models(bench: Bench) -> None:
    one, two = await bench.engine(), await bench.engine()
    one.status = 404
    bench.vllm(one.url, two.url)
    await bench.ask()
    await eventually(lambda: one.looks["/v1/models"] > 1)
    assert two.looks["/v1/models"] == 0


async def test_a_replica_that_is_merely_late_once_stays(bench: Bench) -> None:
    one, two = await bench.engine(), await bench.engine()
    model = bench.vllm(one.url, two.url, health_interval_s=0)
    watch, slow = model.upstream.health, model.upstream.replicas.all[0]
    watch._timeout_s = 0.0
    await watch.check(slow)
    assert slow.down_until == 0.0
    await watch.check(slow)
    assert slow.down_until > 0.0


# --- where a session goes --------------------------------------------------------------------------------------------


async def test_a_new_session_goes_where_the_engine_has_least_to_do(bench: Bench) -> None:
    busy, idle = await bench.engine(chat("busy")), await bench.engine(chat("idle"))
    busy.metrics = "vllm:num_requests_running 30\nvllm:num_requests_waiting 12\n"
    idle.metrics = "vllm:num_requests_running 1\nvllm:num_requests_waiting 0\n"
    model = bench.vllm(busy.url, idle.url)
    scope = Scope()
    await bench.ask(scope)
    await eventually(lambda: model.upstream.replicas.all[0].load == 42.0)
    before = busy.calls
    for _ in range(20):
        await bench.ask()
    assert busy.calls == before
    home = model.upstream.replicas.choose(call_of(scope.cookies_for("policy")["VLLMModel___policy"]))
    for _ in range(3):
        await bench.ask(scope)  # an old session does not move for load
        assert model.upstream.replicas.choose(call_of(scope.cookies_for("policy")["VLLMModel___policy"])) is home


@given(st.lists(st.text(min_size=1, max_size=8), min_size=1, max_size=30, unique=True), st.integers(2, 7))
def test_without_load_sessions_go_where_their_names_lead(names: list[str], number: int) -> None:
    urls = [f"http://{n}" for n in range(number)]
    loaded, hashed = Replicas(urls), Replicas(urls, choice="hash")
    for name in names:
        expected = f"http://{hash_index(name, number)}"
        assert loaded.choose(call_of(name)).base_url == hashed.choose(call_of(name)).base_url == expected
    assert hashed.sessions == 0


def test_the_contracts_rule_of_hashing() -> None:
    import hashlib

    digest = hashlib.sha256(b"a-session").digest()
    assert hash_index("a-session", 5) == int.from_bytes(digest[:8], "big") % 5


@given(st.lists(st.sampled_from("abcdefghij"), min_size=1, max_size=80), st.sampled_from(["least_loaded", "hash"]))
def test_only_the_sessions_of_a_dead_replica_move_and_they_stay(names: list[str], choice: Any) -> None:
    now = 0.0
    replicas = Replicas(["http://a", "http://b", "http://c"], choice=choice, clock=lambda: now)
    homes: dict[str, Any] = {}
    for name in names:
        homes[name] = replicas.choose(call_of(name))
        homes[name].in_flight += 1
    dead = replicas.all[0]
    replicas.report_down(dead)
    moved = {name: replicas.choose(call_of(name)) for name in homes}
    for name, home in homes.items():
        assert (moved[name] is home) == (home is not dead)
    now = 100.0  # it is back
    for name, home in moved.items():
        assert replicas.choose(call_of(name)) is home


def test_sessions_in_flight_are_spread_evenly() -> None:
    replicas = Replicas(["http://a", "http://b", "http://c"])
    for number in range(300):
        replicas.choose(call_of(f"s{number}")).in_flight += 1
    assert [replica.in_flight for replica in replicas.all] == [100, 100, 100]


def test_what_is_remembered_of_sessions_is_bounded() -> None:
    replicas = Replicas(["http://a", "http://b"])
    for number in range(MAX_SESSIONS + 100):
        replicas.choose(call_of(f"s{number}"))
    assert replicas.sessions == MAX_SESSIONS


def test_the_load_counts_what_we_sent_since_the_engine_spoke() -> None:
    replica = Replicas(["http://a"]).all[0]
    replica.in_flight = 4
    replica.record_server_load(10.0)
    assert replica.load == 10.0
    replica.in_flight = 7
    assert replica.load == 13.0
    replica.record_server_load(0.0)
    assert replica.load == 7.0  # ours are there, whatever it says


async def test_a_dead_replica_costs_no_rollout(bench: Bench) -> None:
    alive = await bench.engine(chat("alive"))
    bench.vllm("http://127.0.0.1:9/v1", alive.url)
    replies = await asyncio.gather(*(bench.ask(Scope()) for _ in range(30)))
    assert {reply.status for reply in replies} == {200}


# --- accounting ------------------------------------------------------------------------------------------------------


async def test_a_call_is_accounted_with_its_price(bench: Bench) -> None:
    engine = await bench.engine()
    bench.vllm(engine.url, prices={"input": 1.0, "cached_input": 0.1, "output": 10.0, "reasoning": 20.0})
    progress = AttemptProgress()
    for _ in range(2):
        await bench.ask(Scope("0-0", progress))
    assert progress.usage_counter is not None
    usage = progress.usage_counter.usage()
    assert (usage.calls, usage.input_tokens, usage.cached_tokens) == (2, 200, 80)
    assert (usage.output_tokens, usage.reasoning_tokens) == (40, 10)
    assert usage.cost == pytest.approx(2 * (60 * 1.0 + 40 * 0.1 + 15 * 10.0 + 5 * 20.0) / 1e6)
    assert usage.latency_ms > 0
    assert usage.ttft_ms is None
    assert progress.usage_counter.captured is None


async def test_without_prices_the_cost_is_unknown_and_never_0(bench: Bench) -> None:
    engine = await bench.engine()
    bench.vllm(engine.url)
    progress = AttemptProgress()
    await bench.ask(Scope("0-0", progress))
    assert progress.usage_counter is not None
    assert progress.usage_counter.cost is None
    assert progress.usage_counter.usage().as_json()["cost"] is None


@pytest.mark.parametrize(("path", "body"), [
    ("/v1/responses", {"input": "q"}),
    ("/v1/responses", {"input": "q", "stream": True}),
    ("/v1/chat/completions", {"messages": [{"role": "user", "content": "q"}]}),
    ("/v1/chat/completions", {"messages": [{"role": "user", "content": "q"}], "stream": True}),
    ("/v1/messages", {"messages": [{"role": "user", "content": "q"}], "max_tokens": 9}),
    ("/v1/messages", {"messages": [{"role": "user", "content": "q"}], "max_tokens": 9, "stream": True}),
])  # fmt: skip
async def test_every_dialect_is_accounted_once(bench: Bench, path: str, body: Any) -> None:
    engine = await bench.engine()
    bench.vllm(engine.url, prices={"input": 1.0, "output": 1.0})
    progress = AttemptProgress()
    reply = await bench.calls.call("policy", path, body, Scope("0-0", progress), stage=Stage.MODEL)
    assert reply.status == 200
    assert progress.usage_counter is not None
    assert (progress.usage_counter.calls, progress.usage_counter.tokens, progress.usage_counter.cached_tokens) == (
        1,
        120,
        40,
    )
    assert progress.usage_counter.cost == pytest.approx(120e-6)


async def test_a_failed_call_is_counted_and_free(bench: Bench) -> None:
    engine = await bench.engine(Reply(400, {"error": "no"}))
    bench.vllm(engine.url, prices={"input": 1.0, "output": 1.0})
    progress = AttemptProgress(captures=True)
    assert (await bench.ask(Scope("0-0", progress))).status == 500
    assert progress.usage_counter is not None
    assert (progress.usage_counter.calls, progress.usage_counter.failed_calls, progress.usage_counter.cost) == (
        1,
        1,
        0.0,
    )
    assert progress.usage_counter.captured is not None
    assert progress.usage_counter.captured[0]["error_category"] == "client_error"
    assert progress.usage_counter.captured[0]["status_code"] == 400


async def test_a_context_overflow_is_an_outcome_that_cost_nothing(bench: Bench) -> None:
    engine = await bench.engine(Reply(400, {"message": "maximum context length is 9"}))
    bench.vllm(engine.url, prices={"input": 1.0, "output": 1.0})
    progress = AttemptProgress()
    reply = await bench.ask(Scope("0-0", progress))
    assert reply.body["incomplete_details"] is not None
    assert progress.usage_counter is not None
    assert progress.usage_counter.usage().as_json()["cost"] == 0.0
    assert progress.usage_counter.unmetered_calls == 0


async def test_a_reply_without_usage_is_not_taken_for_free(bench: Bench) -> None:
    engine = await bench.engine(chat(usage=None))
    bench.vllm(engine.url, prices={"input": 1.0, "output": 1.0})
    progress = AttemptProgress()
    await bench.ask(Scope("0-0", progress))
    assert progress.usage_counter is not None
    assert (progress.usage_counter.unmetered_calls, progress.usage_counter.cost) == (1, None)


async def test_ignored_parameters_are_on_the_account(bench: Bench) -> None:
    engine = await bench.engine()
    bench.vllm(engine.url)
    progress = AttemptProgress()
    reply = await bench.ask(Scope("0-0", progress), truncation="auto")
    names = json.loads(reply.headers["x-gymnast-ignored"])
    assert names
    assert progress.usage_counter is not None
    assert progress.usage_counter.usage().as_json()["ignored"] == names


async def test_what_was_used_behind_http_comes_back_in_a_header(bench: Bench) -> None:
    engine = await bench.engine()
    model = bench.vllm(engine.url, prices={"input": 1.0, "output": 1.0})
    bench.transports["policy"] = HttpTransport(await bench.listen(ServerApp(model)), bench.client)
    progress = AttemptProgress()
    reply = await bench.ask(Scope("0-0", progress))
    assert json.loads(reply.headers[USAGE_HEADER])["calls"] == 1
    assert progress.usage_counter is not None
    assert (progress.usage_counter.calls, progress.usage_counter.tokens) == (1, 120)
    assert progress.usage_counter.cost == pytest.approx(120e-6)


async def test_a_model_server_of_another_user_is_accounted_by_its_usage(bench: Bench) -> None:
    async def theirs(_: Any, receive: Receive, send: Send) -> None:
        await read_body(receive)
        await send_reply(send, Reply(200, {"output": [], "usage": {"input_tokens": 3, "output_tokens": 4}}))

    bench.transports["policy"] = HttpTransport(await bench.listen(theirs), bench.client)
    progress = AttemptProgress()
    await bench.ask(Scope("0-0", progress))
    assert progress.usage_counter is not None
    assert (progress.usage_counter.calls, progress.usage_counter.tokens, progress.usage_counter.cost) == (1, 7, None)


async def test_the_openai_model_is_accounted_in_the_words_of_responses(bench: Bench) -> None:
    usage = {
        "input_tokens": 11,
        "input_tokens_details": {"cached_tokens": 1},
        "output_tokens": 7,
        "output_tokens_details": {"reasoning_tokens": 2},
        "total_tokens": 18,
    }
    body = {
        "id": "r", "created_at": 1.0, "model": "m", "object": "response", "output": [], "parallel_tool_calls": True,
        "tool_choice": "auto", "tools": [], "usage": usage,
    }  # fmt: skip
    engine = await bench.engine(body)
    given = OpenAIModelSettings(openai_base_url=engine.url, openai_api_key="sk", openai_model="m")
    bench.transports["policy"] = InProcessTransport(OpenAIModel("policy", given, bench.context))
    progress = AttemptProgress()
    assert (await bench.ask(Scope("0-0", progress))).status == 200
    assert progress.usage_counter is not None
    found = progress.usage_counter.usage()
    assert (found.input_tokens, found.cached_tokens, found.output_tokens, found.reasoning_tokens) == (11, 1, 7, 2)


counts = st.integers(0, 10**6)
usages = st.builds(
    ModelUsage,
    counts, counts, counts, counts, st.none() | counts, counts, st.none() | counts,
    st.floats(0, 1e6), ttft_ms=st.none(), cost=st.none() | st.integers(0, 1000).map(float),
    ignored=st.lists(st.text(max_size=5), max_size=3, unique=True).map(tuple),
)  # fmt: skip


@given(st.lists(usages, max_size=6))
def test_sums_do_not_depend_on_where_they_are_made(parts: list[ModelUsage]) -> None:
    once, twice, half = UsageCounter(), UsageCounter(), UsageCounter()
    for part in parts:
        once.merge(part)
    for part in parts[:2]:
        half.merge(part)
    twice.merge(half.usage())
    for part in parts[2:]:
        twice.merge(part)
    first, second = once.usage(), twice.usage()
    assert first.latency_ms == pytest.approx(second.latency_ms)
    assert {**first.as_json(), "latency_ms": 0} == {**second.as_json(), "latency_ms": 0}


@given(usages)
def test_usage_survives_headers_and_records(usage: ModelUsage) -> None:
    header = encode_usage(usage)
    assert header.isascii()
    found = decode_usage({USAGE_HEADER: header})
    assert found is not None
    assert found.as_json() == usage.as_json()
    line = json.dumps({"reward": 1.0, "_ng_model_usage": usage.as_json(), "response": {"_ng_model_usage": 3}})
    read = usage_of_line(line.encode())
    assert read is not None
    assert read.as_json() == usage.as_json()


def test_headers_and_records_that_say_nonsense_say_nothing() -> None:
    assert decode_usage({USAGE_HEADER: '{"calls": "many"}'}) is None
    assert usage_of_line(b'{"_ng_model_usage": []}') is None
    assert usage_of_line(b"{}") is None
    assert parse_tokens({"prompt_tokens": None}) is None


@given(counts, counts, st.none() | counts, st.none() | counts)
def test_a_price_for_everything_is_a_price_for_tokens(given_: int, made: int, cached: Any, thought: Any) -> None:
    flat = Prices(input=3.0, output=3.0)
    assert flat.cost_of(Tokens(given_, made, cached, thought)) == pytest.approx(3e-6 * (given_ + made))
    cheap = Prices(input=3.0, cached_input=1.0, output=3.0)
    assert cheap.cost_of(Tokens(given_, made, cached, thought)) <= flat.cost_of(Tokens(given_, made)) + 1e-12


def test_the_mean_time_to_the_first_token_is_weighted() -> None:
    counter = UsageCounter()
    counter.add_call(Tokens(1, 1), 5.0, cost=0.0, ttft_ms=10.0)
    counter.add_call(Tokens(1, 1), 5.0, cost=0.0, ttft_ms=20.0)
    more = UsageCounter()
    more.add_call(Tokens(1, 1), 5.0, cost=0.0, ttft_ms=60.0)
    more.add_call(Tokens(1, 1), 5.0, cost=0.0)
    counter.merge(more.usage())
    assert counter.usage().ttft_ms == pytest.approx(30.0)
    assert counter.usage().ttft_calls == 3


# --- time to the first token -----------------------------------------------------------------------------------------


async def test_an_endpoint_that_does_not_stream_is_taken_at_its_word(bench: Bench) -> None:
    engine = await bench.engine(chat("whole"))
    bench.vllm(engine.url, measure_ttft=True)
    progress = AttemptProgress()
    reply = await bench.ask(Scope("0-0", progress))
    assert reply.body["output"][0]["content"][0]["text"] == "whole"
    assert progress.usage_counter is not None
    assert progress.usage_counter.usage().ttft_ms is None


@pytest.mark.parametrize(("stream", "kind"), [
    (sse({"error": {"message": "dead", "code": 500}}), "model_error"),
    (sse({"error": {"message": "too many", "code": 429}}), "model_rate_limited"),
    (sse(delta(content="half an ans"), done=False), "model_bad_reply"),
    ("data: nonsense\n\n", "model_bad_reply"),
    ("", "model_bad_reply"),
])  # fmt: skip
async def test_a_stream_that_fails_is_a_failure_with_its_kind(bench: Bench, stream: str, kind: str) -> None:
    engine = await bench.engine(Reply(200, EventStream(stream)))
    bench.vllm(engine.url, measure_ttft=True)
    reply = await bench.ask()
    assert reply.failure is not None
    assert reply.failure.kind == kind


def test_tool_calls_logprobs_and_token_ids_are_joined_in_order() -> None:
    def call(index: int, **what: Any) -> dict[str, Any]:
        return delta(tool_calls=[{"index": index, **what}])

    first = call(0, id="a", type="function", function={"name": "find", "arguments": ""})
    first["prompt_token_ids"] = [1, 2, 3]
    first["choices"][0] |= {"token_ids": [7], "logprobs": {"content": [{"token": "x", "logprob": -1.0}]}}
    second = call(0, function={"arguments": '{"q":'})
    second["choices"][0] |= {"token_ids": [8, 9], "logprobs": {"content": [{"token": "y", "logprob": -2.0}]}}
    stream = sse(
        delta(role="assistant", content=""),
        first,
        second,
        call(0, function={"arguments": "1}"}),
        call(1, id="b", function={"name": "end", "arguments": "{}"}),
        delta("tool_calls"),
        {**delta(), "choices": [], "usage": USAGE},
    )
    found, offset = parse_completion_stream(stream.encode())
    assert offset is not None
    message, choice = found["choices"][0]["message"], found["choices"][0]
    assert message["content"] is None
    assert message["tool_calls"] == [
        {"id": "a", "type": "function", "function": {"name": "find", "arguments": '{"q":1}'}},
        {"id": "b", "type": "function", "function": {"name": "end", "arguments": "{}"}},
    ]
    assert choice["finish_reason"] == "tool_calls"
    assert choice["token_ids"] == [7, 8, 9]
    assert [entry["token"] for entry in choice["logprobs"]["content"]] == ["x", "y"]
    assert found["prompt_token_ids"] == [1, 2, 3]
    assert found["usage"] == USAGE
    assert found["object"] == "chat.completion"


@given(st.text(), st.text(), st.lists(st.integers(1, 5)), st.sampled_from(["\n\n", "\r\n\r\n"]))
def test_text_in_any_pieces_is_the_text(content: str, thought: str, sizes: list[int], end: str) -> None:
    def pieces(text: str) -> list[str]:
        found, rest = list[str](), text
        for size in sizes:
            found, rest = [*found, rest[:size]], rest[size:]
        return [*found, rest]

    chunks = [delta(reasoning=part) for part in pieces(thought)] + [delta(content=part) for part in pieces(content)]
    stream = sse(*chunks, delta("stop")).replace("\n\n", end)
    completion, offset = parse_completion_stream(stream.encode())
    message = completion["choices"][0]["message"]
    assert (message["content"], message["reasoning"]) == (content, thought)
    assert (offset is None) == (not content and not thought)


def test_a_stream_without_its_end_is_not_a_reply() -> None:
    with pytest.raises(BrokenStream):
        parse_completion_stream(sse(delta(content="x"), done=False).encode())
    with pytest.raises(StreamedError):
        parse_completion_stream(sse(delta(content="x"), {"error": "boom"}).encode())
    found, _ = parse_completion_stream(sse(delta(content="x"), delta("stop"), done=False).encode())
    assert found["choices"][0]["message"]["content"] == "x"


def test_events_know_where_they_end() -> None:
    raw = b": a comment\n\ndata: 1\n\nevent: x\ndata: 2\ndata: 3\n\ndata: 4"
    assert [data for data, _ in iter_events(raw)] == [b"1", b"2\n3", b"4"]
    assert next(iter_events(raw))[1] == raw.index(b"event")
    assert arrival_ms([(0.5, 10), (0.9, 10)], 10) == 500.0
    assert arrival_ms([(0.5, 10), (0.9, 10)], 11) == 900.0
    assert arrival_ms([], 1) is None
