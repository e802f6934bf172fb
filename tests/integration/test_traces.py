"""Rollouts as traces: the right spans with the right parents, wherever the calls are made, and nothing if off."""

from __future__ import annotations

import base64
import json
import sys
import threading
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import gymnast
from gymnast.config.environ import TelemetryEnviron, read_telemetry
from gymnast.errors import UserError
from gymnast.tracking.span_exporter import SpanExporter, traces_url
from gymnast.types.span import AttemptSpans, Span, TraceIds
from gymnast.types.task import RolloutKey
from gymnast.wire.spans import MAX_SPANS, SpanRecorder, _decode_spans
from tests.helpers import otlp_collector
from tests.helpers.commands import SCRIPTED, Outcome
from tests.helpers.jsonl import example_rows, read_jsonl, write_jsonl
from tests.helpers.local_serve import LocalServe
from tests.helpers.otlp_collector import Collector

Run = Callable[..., Outcome]
Script = Callable[..., str]
ENVIRONMENT = "example_session_state_mgmt"
CALL = {"tool_calls": [{"name": "increment_counter", "arguments": {"count": 3}}]}
SCRIPT = "++policy_model.responses_api_models.scripted_model.script"
TOOLS = ("-e", ENVIRONMENT, "-c", SCRIPTED)
BASE = ("-i", "tasks.jsonl", "-o", "x.jsonl", "--disable-aggregation")


@pytest.fixture
def collector() -> Iterator[Collector]:
    with otlp_collector.collecting() as collector:
        yield collector


@pytest.fixture
def script(tmp_path: Path) -> Script:
    """The override with which the policy gives these replies, one a turn."""

    def write(*replies: Any) -> str:
        path = tmp_path / "script.json"
        path.write_text(json.dumps(replies))
        return f"{SCRIPT}={path}"

    return write


@pytest.fixture
def tasks(tmp_path: Path) -> Path:
    return write_jsonl(tmp_path / "tasks.jsonl", example_rows(ENVIRONMENT)[:2])


def check_tree(spans: list[otlp_collector.Span], rollouts: int) -> None:
    """Each rollout has one root, and its spans are inside their parents."""
    by_id = {span.span_id: span for span in spans}
    assert len(by_id) == len(spans)
    roots = [span for span in spans if not span.parent_id]
    assert len(roots) == rollouts == len({span.trace_id for span in spans})
    for span in spans:
        assert span.start_ns <= span.end_ns
        if span.parent_id:
            parent = by_id[span.parent_id]
            assert parent.trace_id == span.trace_id
            assert parent.start_ns - 5_000_000 <= span.start_ns
            assert span.end_ns <= parent.end_ns + 5_000_000


@pytest.mark.parametrize("workers", ["0", "1"])
def test_a_rollout_is_a_trace_of_seed_model_tools_and_verify(
    tmp_path: Path, tasks: Path, collector: Collector, script: Script, invoke: Run, workers: str
) -> None:
    replies = script(CALL, "done")
    tracing = ("--trace", collector.url, "--trace-sample", "1", "--workers", workers)
    outcome = invoke("gymnast", "collect", *TOOLS, replies, *BASE, *tracing)
    assert outcome.code == 0, outcome.err
    spans = collector.spans()
    check_tree(spans, 2)
    root = next(span for span in spans if not span.parent_id)
    assert root.name == f"invoke_agent {ENVIRONMENT}_simple_agent"
    assert root.attributes["gen_ai.operation.name"] == "invoke_agent"
    assert isinstance(root.attributes["gymnast.reward"], float)
    mine = sorted((span for span in spans if span.trace_id == root.trace_id), key=lambda span: span.start_ns)
    children = [span for span in mine if span.parent_id == root.span_id]
    stages = [span.attributes["gymnast.stage"] for span in children]
    assert stages[0] == "seed"
    assert stages[-1] in {"verify", "close"}
    assert {"model", "tool", "verify"} <= set(stages)
    model = next(span for span in children if span.attributes["gymnast.stage"] == "model")
    assert model.kind == 3
    assert model.name.startswith("chat ")
    assert model.attributes["gen_ai.operation.name"] == "chat"
    assert model.attributes["gen_ai.usage.output_tokens"] > 0
    assert model.attributes["gen_ai.response.finish_reasons"] == ["tool_calls"]
    tool = next(span for span in children if span.attributes["gymnast.stage"] == "tool")
    assert tool.name == "execute_tool increment_counter"
    assert tool.attributes["gen_ai.tool.name"] == "increment_counter"
    verify = next(span for span in children if span.attributes["gymnast.stage"] == "verify")
    assert verify.events[0][0] == "gen_ai.evaluation.result"
    assert root.resource["service.name"] == "gymnast"
    path, headers, _ = collector.requests[0]
    assert path == "/v1/traces"
    assert headers["content-type"] == "application/x-protobuf"


def test_a_run_of_the_library_reports_as_the_command_does(
    tmp_path: Path, tasks: Path, collector: Collector, script: Script
) -> None:
    run = gymnast.collect_sync(
        *(tasks, tmp_path / "x.jsonl"),
        environments=[ENVIRONMENT],
        config_paths=[SCRIPTED],
        overrides=[script(CALL, "done")],
        aggregate=False,
        track=f"tensorboard:{tmp_path}/board",
        trace=collector.url,
        trace_sample=1.0,
    )
    assert len(read_jsonl(run.path)) == 2
    check_tree(collector.spans(), 2)
    assert list((tmp_path / "board").rglob("events.out.tfevents*"))


async def test_a_collector_sends_traces_of_all_its_batches(collector: Collector, script: Script) -> None:
    names: dict[str, Any] = {"environments": [ENVIRONMENT], "config_paths": [SCRIPTED], "overrides": [script(CALL, "")]}
    async with gymnast.Collector(**names, trace=collector.url, trace_sample=1.0) as batches:
        for row in example_rows(ENVIRONMENT)[:2]:
            assert [record.is_scored async for _, record in batches.run([row])] == [True]
    check_tree(collector.spans(), 2)


def test_servers_over_http_return_their_spans(
    tmp_path: Path,
    tasks: Path,
    collector: Collector,
    script: Script,
    invoke: Run,
    serve_here: Callable[..., LocalServe],
) -> None:
    served = serve_here(script(CALL, "done"), environments=[ENVIRONMENT], config_paths=[SCRIPTED])
    tracing = ("--trace", collector.url, "--trace-sample", "1")
    agent = ("--agent", f"{ENVIRONMENT}_simple_agent")
    outcome = invoke("gymnast", "collect", *BASE, *agent, *tracing, "--head", served.head)
    assert outcome.code == 0, outcome.err
    spans = collector.spans()
    check_tree(spans, 2)
    assert {"seed", "model", "tool", "verify"} <= {span.attributes.get("gymnast.stage") for span in spans}


def test_a_failed_call_is_an_error_of_its_span_and_of_the_rollout(
    tmp_path: Path, tasks: Path, collector: Collector, script: Script, invoke: Run
) -> None:
    replies = script({"status": 400, "body": "no such thing"})
    tracing = ("--trace", collector.url, "--trace-sample", "1", "--max-attempts", "1")
    invoke("gymnast", "collect", *TOOLS, replies, *BASE, *tracing)
    spans = collector.spans()
    model = next(span for span in spans if span.attributes.get("gymnast.stage") == "model" and span.parent_id)
    assert model.status == 2
    assert model.attributes["error.type"] == "400"
    root = next(span for span in spans if not span.parent_id)
    assert root.status == 2
    assert root.attributes["error.type"].startswith("model_")
    assert root.message


def test_retries_belong_to_the_same_trace(
    tmp_path: Path, tasks: Path, collector: Collector, script: Script, invoke: Run
) -> None:
    replies = script({"status": 500, "body": "busy"})
    tracing = ("--trace", collector.url, "--trace-sample", "1", "--limit", "1", "--no-preflight")
    invoke("gymnast", "collect", *TOOLS, replies, *BASE, *tracing)
    roots = [span for span in collector.spans() if not span.parent_id]
    assert len({root.trace_id for root in roots}) == 1
    assert len({root.span_id for root in roots}) == len(roots)
    assert [root.attributes["gymnast.attempt"] for root in roots] == [*range(len(roots))]


def test_without_the_option_nothing_is_imported(
    tmp_path: Path, tasks: Path, script: Script, invoke: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gymnast, "tracking", sys.modules["gymnast.tracking"], raising=False)  # restored as well
    for name in [name for name in sys.modules if name.startswith("gymnast.tracking")]:
        monkeypatch.delitem(sys.modules, name)
    outcome = invoke("gymnast", "collect", *TOOLS, script("done"), *BASE)
    assert outcome.code == 0, outcome.err
    imported = {name for name in sys.modules if name.startswith("gymnast.tracking")}
    assert imported == {"gymnast.tracking", "gymnast.tracking.telemetry"}, "only what reads the options"


def test_no_prompt_answer_or_argument_leaves_the_run(
    tmp_path: Path, tasks: Path, collector: Collector, script: Script, invoke: Run
) -> None:
    replies = script(CALL, "a secret answer")
    invoke("gymnast", "collect", *TOOLS, replies, *BASE, "--trace", collector.url, "--trace-sample", "1")
    data = b"".join(body for _, _, body in collector.requests)
    assert b"secret answer" not in data
    assert b'"count"' not in data
    prompt = read_jsonl(tasks)[0]["responses_create_params"]["input"][-1]["content"]
    assert prompt[:20].encode() not in data


def test_a_collector_that_is_down_is_reported_once_and_the_run_succeeds(
    tmp_path: Path, tasks: Path, script: Script, invoke: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gymnast.tracking.span_exporter.FLUSH_S", 0.5)
    tracing = ("--trace", "http://127.0.0.1:9", "--trace-sample", "1")
    outcome = invoke("gymnast", "collect", *TOOLS, script("done"), *BASE, *tracing)
    assert outcome.code == 0
    assert outcome.err.count("the collector cannot be reached") == 1
    assert "spans were not delivered" in outcome.err


def test_a_share_without_a_collector_is_refused(tmp_path: Path, tasks: Path, script: Script, invoke: Run) -> None:
    outcome = invoke("gymnast", "collect", *TOOLS, script("done"), *BASE, "--trace-sample", "0.5")
    assert outcome.code == 2
    assert "no effect without --trace" in outcome.err


# --- the exporter alone ----------------------------------------------------------------------------------------------


def attempt(number: int, spans: int = 1) -> AttemptSpans:
    trace_id = TraceIds("run", 1.0).sampled_id(RolloutKey(number, 0)) or ""
    return AttemptSpans(trace_id, [Span(f"{index + 1:016x}", "", "rollout", 1, 2) for index in range(spans)])


class Exported:
    """An exporter, and what it said."""

    def __init__(self, url: str, environ: TelemetryEnviron | None = None, flush_s: float = 60.0) -> None:
        self.said: list[str] = []
        self.exporter = SpanExporter(url, environ or TelemetryEnviron(), self.said.append, flush_s=flush_s)

    def send(self, *attempts: AttemptSpans) -> None:
        with self.exporter:
            for each in attempts:
                self.exporter.put(each)


def test_all_spans_arrive_in_batches(collector: Collector) -> None:
    exported = Exported(collector.url)
    exported.send(*(attempt(number, 10) for number in range(250)))
    assert len(collector.spans()) == 2500
    assert len(collector.requests) >= 3
    assert exported.said == []


@pytest.mark.parametrize("status", [429, 502, 503, 504])
def test_a_collector_that_is_busy_gets_them_later(collector: Collector, status: int) -> None:
    collector.statuses = [status]
    exported = Exported(collector.url)
    exported.send(attempt(1))
    assert len(collector.spans()) == 1
    assert len(exported.said) == 1
    assert f"answered {status}" in exported.said[0]


@pytest.mark.parametrize("status", [400, 401, 403, 404, 405, 413, 415, 500])
def test_a_collector_that_refuses_is_not_asked_again(collector: Collector, status: int) -> None:
    collector.statuses = [status]
    exported = Exported(collector.url)
    exported.send(attempt(1))
    assert collector.requests == []
    assert [f"answered {status}" in exported.said[0], "1 spans were not delivered" in exported.said[1]] == [True, True]


def test_spans_that_a_collector_drops_are_counted(collector: Collector) -> None:
    collector.reply = b"\x0a\x09\x08\x03\x12\x05wrong"
    exported = Exported(collector.url)
    exported.send(attempt(1, 3))
    assert "rejected 3 spans" in exported.said[0]


def test_a_collector_that_hangs_delays_the_end_by_a_bounded_time(collector: Collector) -> None:
    collector.delay = threading.Event()
    exported = Exported(collector.url, flush_s=0.3)
    exported.send(attempt(1))
    assert exported.said


def test_a_full_queue_drops_the_oldest(collector: Collector) -> None:
    collector.delay = threading.Event()
    exported = Exported(collector.url)
    with exported.exporter:
        for number in range(50):
            exported.exporter.put(attempt(number, MAX_SPANS))
        collector.delay.set()
    assert "spans were not delivered" in exported.said[-1]
    assert attempt(49).trace_id in {span.trace_id for span in collector.spans()}


def test_headers_and_resource_come_from_the_environment(collector: Collector) -> None:
    environ = read_telemetry(
        {
            "OTEL_EXPORTER_OTLP_HEADERS": "authorization=Bearer%20abc, x-team = a b",
            "OTEL_RESOURCE_ATTRIBUTES": "deployment.environment=test,,=x",
            "OTEL_SERVICE_NAME": "mine",
        }
    )
    Exported(collector.url, environ).send(attempt(1))
    assert collector.requests[0][1]["authorization"] == "Bearer abc"
    assert collector.requests[0][1]["x-team"] == "a b"
    assert collector.spans()[0].resource == {"deployment.environment": "test", "service.name": "mine"}


@pytest.mark.parametrize(
    ("given", "url"),
    [
        ("http://localhost:4318", "http://localhost:4318/v1/traces"),
        ("http://localhost:4318/", "http://localhost:4318/v1/traces"),
        ("https://otel.example/v1/private/spans", "https://otel.example/v1/private/spans"),
        ("http://[::1]:4318", "http://[::1]:4318/v1/traces"),
        ("http://host?key=1#part", "http://host/v1/traces?key=1"),
    ],
)
def test_the_url_gets_the_standard_path(given: str, url: str) -> None:
    assert traces_url(given) == url


@pytest.mark.parametrize(
    "text", ["", "localhost:4318", "grpc://host:4317", "http://", "http://h:0", "http://h:x", "a b"]
)
def test_what_is_not_a_url_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(UserError, match="expected the URL of an OTLP/HTTP collector") as error:
        traces_url(text)
    assert error.value.next == "for example --trace http://localhost:4318"


def test_a_password_in_the_url_is_not_printed() -> None:
    exported = Exported("http://user:hunter2@127.0.0.1:9/v1/traces?key=topsecret", flush_s=0.2)
    exported.send(attempt(1))
    assert exported.said
    assert "hunter2" not in "".join(exported.said)
    assert "topsecret" not in "".join(exported.said)


# --- ids and sampling ------------------------------------------------------------------------------------------------


def test_trace_ids_depend_on_run_and_rollout_alone() -> None:
    keys = [RolloutKey(task, n) for task in range(20) for n in range(20)]
    ids = {TraceIds(run, 1.0).sampled_id(key) or "" for run in "ab" for key in keys}
    assert len(ids) == 800
    sampled = {TraceIds("a", 0.5).sampled_id(key) for key in keys} - {None}
    assert sampled
    assert sampled <= ids
    assert all(len(value) == 32 and int(value, 16) for value in ids)


@pytest.mark.parametrize("share", [0.0, 0.01, 0.5, 1.0])
def test_the_share_of_sampled_rollouts_is_the_requested_one(share: float) -> None:
    ids = TraceIds("run", share)
    sampled = sum(ids.sampled_id(RolloutKey(task, 0)) is not None for task in range(20_000))
    assert abs(sampled / 20_000 - share) < 0.005
    assert (sampled == 0) == (share == 0)
    assert (sampled == 20_000) == (share == 1)


def test_a_smaller_share_is_part_of_a_larger_one() -> None:
    def sampled(share: float) -> set[str | None]:
        return {TraceIds("run", share).sampled_id(RolloutKey(task, 0)) for task in range(5_000)}

    assert sampled(0.01) <= sampled(0.1)


@pytest.mark.parametrize(
    "value", ["", "00-x-y-01", "00-" + "0" * 32 + "-" + "1" * 16, "00-" + "g" * 32 + "-" + "1" * 16 + "-01"]
)
def test_an_invalid_trace_header_is_ignored(value: str) -> None:
    assert SpanRecorder.from_header(value) is None


@pytest.mark.parametrize("value", ["", "%%%", "eJw=", "AAAA", "eJyLrgUAAXUA+Q=="])
def test_an_invalid_spans_header_is_ignored(value: str) -> None:
    assert _decode_spans(value) == []


def test_the_spans_header_stays_small(tmp_path: Path) -> None:
    recorder = SpanRecorder("1" * 32, "2" * 16)
    recorder.add(Span(f"{n * 7919:016x}", "2" * 16, f"execute_tool t{n}", n * 10**9, n * 10**9 + n) for n in range(900))
    assert len(recorder.header()) <= 3000
    assert 10 < len(_decode_spans(recorder.header())) < 900


def test_a_compressed_bomb_in_a_header_is_cut_off() -> None:
    bomb = base64.b64encode(zlib.compress(b"[" + b" " * 50_000_000 + b"]")).decode()
    assert _decode_spans(bomb) == []
