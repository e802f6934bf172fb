"""Odd trackers, collectors, rows and servers: whatever they do, the run's records are the same and nothing is left."""

from __future__ import annotations

import base64
import errno
import json
import os
import signal
import subprocess
import sys
import threading
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import psutil
import pytest

from gymnast.config.environ import TelemetryEnviron
from gymnast.tracking.choice import parse_trackers
from gymnast.tracking.messages import Finish
from gymnast.tracking.otlp import encode_traces
from gymnast.tracking.publisher import Publisher, TrackedRun
from gymnast.tracking.run_tracking import RunTracking
from gymnast.tracking.span_exporter import SpanExporter
from gymnast.types.failure import Stage
from gymnast.types.span import AttemptSpans, Span, SpanEvent
from gymnast.wire.message import Reply, Request
from gymnast.wire.spans import SPANS_HEADER, SpanRecorder
from tests.helpers import otlp_collector
from tests.helpers.commands import SCRIPTED, Outcome
from tests.helpers.fake_trackers import FakeWandb
from tests.helpers.jsonl import example_rows, read_jsonl, write_jsonl
from tests.helpers.otlp_collector import Collector, read_spans

SPAN = Span("1" * 16, "", "rollout", 1, 2)
SCRIPT = "++policy_model.responses_api_models.scripted_model.script"


@pytest.fixture
def wandb(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeWandb:
    fake = FakeWandb(tmp_path / "library")
    fake.write()
    paths = [str(fake.folder), *filter(None, [os.environ.get("PYTHONPATH")])]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(paths))
    return fake


@pytest.fixture
def collector() -> Iterator[Collector]:
    with otlp_collector.collecting() as collector:
        yield collector


def publish(folder: Path, *, wait_s: float = 60.0, **changes: Any) -> list[str]:
    """One point and the end, to the fake library. Returns what was said."""
    messages: list[str] = []
    described = {"name": "x", "run_id": "r", "log_dir": folder / "logs", "state": folder / "s.json"}
    run = TrackedRun(**{**described, "event_dir": folder / "events", **changes})
    publisher = Publisher(parse_trackers("wandb"), lambda: run, messages.append, wait_s=wait_s)
    publisher.start()
    publisher.log(1, {"a": 1.0})
    publisher.finish(Finish("complete", {"n": 1}, []))
    return messages


def wait_for(check: Callable[[], object]) -> None:
    deadline = time.monotonic() + 120
    while not check():
        assert time.monotonic() < deadline
        time.sleep(0.05)


# --- libraries -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "code",
    [
        "assert input('your key: ') is None",  # a prompt reads nothing of ours, and fails
        "sys.stdin.readline(); sys.stdin.readline()",
        "os.close(0)",
        "sys.stdout.close(); sys.stderr.close()",
        "os.close(1); os.close(2)",
        "os.chdir('/')",
        "signal.alarm(0); signal.signal(signal.SIGPIPE, signal.SIG_DFL)",
        "os.environ.clear()",
        "sys.setrecursionlimit(60)",
        "sys.stdout.write('x' * 5_000_000)",
        "__import__('warnings').simplefilter('error')",
        "__import__('gc').disable(); __import__('faulthandler').enable()",
    ],
)
def test_a_library_with_odd_habits_gets_every_point(tmp_path: Path, wandb: FakeWandb, code: str) -> None:
    is_prompt = "input(" in code
    wandb.write(in_init=code)
    messages = publish(tmp_path)
    warnings = [text for text in messages if text.startswith("warning")]
    assert len(warnings) == int(is_prompt)
    assert bool(wandb.calls("log")) != is_prompt
    assert bool(wandb.calls("finish")) != is_prompt


@pytest.mark.parametrize(
    "config",
    [
        {"text": "lone \ud800 surrogate", "\udfff": 1},
        {"number": float("nan"), "big": 10**40, "infinite": float("-inf")},
        {"nested": {"a": {"b": {"c": [1, {"d": None}]}}}},
        {1: "not a text", None: 2},
        {"object": object(), "path": Path("x"), "bytes": b"\xff"},
        {f"key {number}": "x" * 1000 for number in range(3000)},
        {},
    ],
)
def test_any_config_reaches_the_library(tmp_path: Path, wandb: FakeWandb, config: dict[Any, Any]) -> None:
    messages = publish(tmp_path, config=config)
    assert [text for text in messages if text.startswith("warning")] == []
    assert wandb.calls("finish")


def test_a_state_file_that_cannot_be_written_does_not_end_tracking(tmp_path: Path, wandb: FakeWandb) -> None:
    (tmp_path / "file").write_text("")
    messages = publish(tmp_path, state=tmp_path / "file" / "s.json")
    assert any("a resume starts new tracker runs" in text for text in messages)
    assert wandb.calls("finish")


def test_a_full_disk_for_the_state_file_does_not_end_tracking(
    tmp_path: Path, wandb: FakeWandb, monkeypatch: pytest.MonkeyPatch
) -> None:
    from gymnast.errors import UserError

    def refuse(*_: object) -> None:
        raise UserError("the disk is full")

    monkeypatch.setattr("gymnast.tracking.publisher.atomic_write", refuse)
    messages = publish(tmp_path)
    assert any("the disk is full" in text for text in messages)
    assert wandb.calls("finish")


def test_ctrl_c_ends_the_wait_for_a_tracker(tmp_path: Path, wandb: FakeWandb) -> None:
    wandb.write(in_finish="record('hangs'); time.sleep(600)")

    def interrupt() -> None:
        wait_for(lambda: wandb.calls("hangs"))
        os.kill(os.getpid(), signal.SIGINT)

    handler = signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored in what a shell starts beside itself
    try:
        threading.Thread(target=interrupt, daemon=True).start()
        messages = publish(tmp_path, wait_s=300.0)
    finally:
        signal.signal(signal.SIGINT, handler)
    assert "stopped by Ctrl-C" in messages[-1]


ORPHAN = """
import sys, time, os
from pathlib import Path
from gymnast.tracking.choice import parse_trackers
from gymnast.tracking.messages import Finish
from gymnast.tracking.publisher import Publisher, TrackedRun
folder = Path(sys.argv[1])
run = TrackedRun("x", "r", folder / "logs", folder / "s.json", folder / "events")
publisher = Publisher(parse_trackers("wandb"), lambda: run, print)
publisher.start()
publisher.log(1, {"a": 1.0})
if sys.argv[2] == "finishing":
    import threading
    threading.Thread(target=publisher.finish, args=(Finish("complete"),), daemon=True).start()
time.sleep(600)
"""


@pytest.mark.parametrize("when", ["running", "finishing"])
def test_no_process_outlives_a_run_that_is_killed(tmp_path: Path, wandb: FakeWandb, when: str) -> None:
    hang = f"open({str(tmp_path / 'pid')!r}, 'w').write(str(os.getpid())); time.sleep(600)"
    wandb.write(
        at_import="sys.modules['__main__'].ORPHAN_TIMEOUT_S = 0.5",
        in_finish=hang,
    )
    run = subprocess.Popen([sys.executable, "-c", ORPHAN, str(tmp_path), when], stdout=subprocess.DEVNULL)
    try:
        wait_for(lambda: wandb.calls("log") if when == "running" else (tmp_path / "pid").exists())
    finally:
        run.send_signal(signal.SIGKILL)
        run.wait()
    wait_for(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text())
    pid = int((tmp_path / "pid").read_text())
    wait_for(lambda: not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE)


# --- the run's side --------------------------------------------------------------------------------------------------


class _Engine:
    """As much of an engine as tracking touches before its first point."""

    class store:  # noqa: N801 - an attribute of the engine
        name, run_id = "x.jsonl", "r"


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE, errno.ENOMEM])
async def test_a_process_without_free_files_runs_without_trackers(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> None:
        raise OSError(number, os.strerror(number))

    messages: list[str] = []
    monkeypatch.setattr("os.pipe", refuse)
    tracking = RunTracking(parse_trackers("tensorboard"), messages.append)
    with tracking.watch(_Engine()):  # type: ignore[arg-type]
        pass
    tracking.finish(None)
    assert len(messages) == 1
    assert "the run continues without" in messages[0]


async def test_a_process_without_free_threads_runs_without_trackers(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    messages: list[str] = []
    monkeypatch.setattr("threading.Thread.start", refuse)
    tracking = RunTracking(parse_trackers("tensorboard"), messages.append)
    with tracking.watch(_Engine()):  # type: ignore[arg-type]
        pass
    tracking.finish(None)
    assert len(messages) == 1


def test_a_process_without_free_threads_runs_without_traces(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    messages: list[str] = []
    monkeypatch.setattr("threading.Thread.start", refuse)
    with SpanExporter("http://127.0.0.1:9", TelemetryEnviron(), messages.append) as exporter:
        exporter.put(AttemptSpans("2" * 32, [SPAN]))
    assert any("not delivered" in text for text in messages)


# --- spans -----------------------------------------------------------------------------------------------------------

ODD_REQUESTS: list[Any] = [
    {"seed": 2**80, "temperature": -(2**70), "model": "m"},
    {"model": "lone \ud800", "temperature": float("nan")},
    {"model": ["not", "a", "name"], "max_tokens": {"no": 1}},
    {"model": "x" * 1_000_000},
    [1, 2, 3],
    "text",
    None,
]
ODD_REPLIES: list[Any] = [
    {"model": "\udfff", "id": 5, "usage": {"input_tokens": "many", "output_tokens": None}},
    {"usage": [], "output": "text", "choices": None},
    {"choices": [None, 3, {"finish_reason": 7}]},
    {"output": [None, {"type": 5}], "incomplete_details": {"reason": None}},
    {"model": "y" * 1_000_000, "id": "z" * 1_000_000},
    ["a list"],
    None,
]


@pytest.mark.parametrize("number", range(7))
def test_odd_bodies_make_small_spans_that_every_process_can_pass_on(number: int) -> None:
    import msgspec

    recorder = SpanRecorder("2" * 32, "3" * 16)
    for stage in (Stage.MODEL, Stage.TOOL, Stage.VERIFY, Stage.SEED):
        path = f"/{'tool' * 50_000}" if stage is Stage.TOOL else "/p\ud800ath?query"
        span = recorder.open(stage, "instance", Request("POST", path, ODD_REQUESTS[number]))
        assert span is not None
        span.close(Reply(200, ODD_REPLIES[number]), "http://host")
    assert len(msgspec.msgpack.encode(recorder.spans)) < 20_000
    assert len(recorder.header()) <= 3000
    data = encode_traces([AttemptSpans("2" * 32, recorder.spans)], {"service.name": "x"}, "1")
    assert len(list(read_spans(data))) == 4


@pytest.mark.parametrize(
    "change",
    [
        {"span_id": "not hex"},
        {"span_id": "12"},
        {"parent_id": "g" * 16},
        {"start_ns": -5},
        {"end_ns": 2**70},
        {"start_ns": 9, "end_ns": 3},
        {"kind": -1},
        {"attributes": {"big": 2**62, "list": ["a"], "\u0000": ""}},
        {"events": [SpanEvent(-1, "e")]},
        {"name": "n" * 500_000},
    ],
)
def test_spans_that_a_server_makes_up_do_not_cost_the_others(collector: Collector, change: dict[str, Any]) -> None:
    import msgspec

    fields = msgspec.structs.asdict(SPAN) | change
    value = base64.b64encode(zlib.compress(msgspec.json.encode([list(fields.values())]))).decode()
    recorder = SpanRecorder("2" * 32, "3" * 16)
    recorder.merge_reply({SPANS_HEADER: value})
    messages: list[str] = []
    with SpanExporter(collector.url, TelemetryEnviron(), messages.append, flush_s=60) as exporter:
        exporter.put(AttemptSpans("2" * 32, [*recorder.spans, Span("4" * 16, "", "mine", 1, 2)]))
    assert "mine" in {span.name for span in collector.spans()}
    assert messages == []


# --- collectors ------------------------------------------------------------------------------------------------------


def export(url: str, flush_s: float = 60.0) -> list[str]:
    messages: list[str] = []
    with SpanExporter(url, TelemetryEnviron(), messages.append, flush_s=flush_s) as exporter:
        exporter.put(AttemptSpans("2" * 32, [SPAN]))
    return messages


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_redirect_is_reported_and_not_taken_for_success(status: int) -> None:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["content-length"]))
            self.send_response(status)
            self.send_header("location", "/login")
            self.send_header("content-length", "0")
            self.end_headers()

        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    try:
        messages = export(f"http://127.0.0.1:{server.server_address[1]}")
    finally:
        server.shutdown()
        server.server_close()
    assert f"answered {status}" in messages[0]
    assert "1 spans were not delivered" in messages[1]


def test_a_collector_on_this_machine_is_not_reached_through_a_proxy(
    collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.delenv("NO_PROXY", raising=False)
    assert export(collector.url) == []
    assert len(collector.spans()) == 1


@pytest.mark.parametrize(
    "reply", [b"", b"HTTP/1.1 200 OK\r\n", b"not http\r\n\r\n", b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nx"]
)
def test_a_port_that_is_not_a_collector_is_reported_once(reply: bytes) -> None:
    import socket

    listener = socket.create_server(("127.0.0.1", 0))

    def answer() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            with connection, suppress(OSError):
                connection.settimeout(60)
                connection.recv(65536)
                connection.sendall(reply)
                connection.shutdown(socket.SHUT_WR)
                while connection.recv(65536):  # closed with the rest of the request unread, it would be reset
                    pass

    thread = threading.Thread(target=answer, daemon=True)
    thread.start()
    messages = export(f"http://127.0.0.1:{listener.getsockname()[1]}", flush_s=1.0)
    listener.close()
    assert len(messages) <= 2
    assert bool(messages) != reply.startswith(b"HTTP/1.1 200")


# --- whole runs ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("workers", ["0", "1"])
def test_rows_with_odd_parameters_score_the_same_with_traces(
    tmp_path: Path, collector: Collector, workers: str
) -> None:
    from tests.helpers.command_functions import invoke_command

    rows = example_rows("mcqa")[:2]
    rows[0]["responses_create_params"] |= {"temperature": 2**62, "top_p": 0.5, "model": "\u0000"}
    write_jsonl(tmp_path / "tasks.jsonl", rows)
    (tmp_path / "s.json").write_text(json.dumps(["\\boxed{A}"]))
    base = ("collect", "-e", "mcqa", "-c", SCRIPTED, "-i", "tasks.jsonl", f"{SCRIPT}={tmp_path}/s.json")
    tracing = ("--trace", collector.url, "--trace-sample", "1", "--workers", workers)

    def rewards(name: str, *more: str) -> list[tuple[int, float]]:
        outcome: Outcome = invoke_command(tmp_path, "gymnast", *base, "-o", name, *more)
        assert outcome.code in {0, 1}, outcome.err
        records = read_jsonl(tmp_path / name) if (tmp_path / name).exists() else []
        return sorted((record["_ng_task_index"], record["reward"]) for record in records)

    assert rewards("traced.jsonl", *tracing) == rewards("plain.jsonl", "--workers", workers)


def test_an_empty_list_of_trackers_does_nothing(tmp_path: Path) -> None:
    from gymnast.tracking.telemetry import open_telemetry

    with open_telemetry([",", ""], None, 0.01, print) as telemetry:
        assert telemetry is None
