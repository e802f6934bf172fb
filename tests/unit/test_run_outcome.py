"""How a run is told: exit code and explanation, the progress line, metrics for scrapers, and a look from outside."""

from __future__ import annotations

import asyncio
import io
import re
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from gymnast.cli.live_run import describe_outcome
from gymnast.cli.live_view import duration, status_line, status_panel
from gymnast.cli.metrics import metrics_endpoint, open_metrics
from gymnast.cli.progress import Progress, format_usage
from gymnast.errors import NotFoundError, PortTakenError, UserError
from gymnast.rollouts.control import ControlServer
from gymnast.rollouts.exit_status import Allowance, exit_code, explain_missing, parse_allowance
from gymnast.rollouts.inspect_run import inspect_run, is_being_written
from gymnast.rollouts.snapshot import InFlight, Snapshot
from gymnast.runtime.listener import Listener
from gymnast.runtime.ports import bind_socket
from gymnast.store.lock import RunLock
from gymnast.store.manifest import Counts, Manifest, RunState, write_manifest
from gymnast.store.paths import RunPaths
from gymnast.types.events import RolloutFailed, RunFinished
from gymnast.types.failure import KINDS
from gymnast.types.totals import AgentStats
from gymnast.types.usage import ModelUsage
from gymnast.wire.asgi import AsgiScope, Receive, Send
from gymnast.wire.http_client import HttpClient, parse_target
from gymnast.wire.inference_metrics import parse_metrics, read_pressure
from tests.helpers.waiting import eventually


def finished(scored: int, failed: dict[str, int] | None = None, owed: int = 0, **more: Any) -> RunFinished:
    kinds = failed or {}
    requested = scored + sum(kinds.values()) + owed
    return RunFinished(requested, scored, kinds, owed, **{"state": "complete", "seconds": 1.0, "output": "x", **more})


def snapshot(**changes: Any) -> Snapshot:
    base = Snapshot(
        run="x.jsonl",
        state="running",
        requested=100,
        scored=40,
        failed={},
        owed=60,
        in_flight=8,
        waiting_retries=0,
        stages={},
        limit=16,
        per_second=2.5,
        eta_s=24.0,
        agents={},
        retried={},
        oldest=[],
        out_of_reach_s={},
        given_up={},
        loop_lag_s=0.0,
        longest_lag_s=0.0,
        model_calls=50,
        rejections=0,
        seconds=16.0,
    )
    return msgspec.structs.replace(base, **changes)


OLDEST = InFlight("41:3", "a", 1, "model", "policy", 185.0, 3.0)


# --- the allowance and the exit code ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "of_200"),
    [("0", 0), ("5", 5), (" 5 ", 5), ("1%", 2), ("0.5%", 1), ("0.01", 2), ("0.0", 0), ("100%", 200), ("1.0", 200)],
)
def test_an_allowance_is_a_number_or_a_share(text: str, of_200: int) -> None:
    assert parse_allowance(text).of(200) == of_200


@pytest.mark.parametrize("text", ["", "x", "-1", "1 %", "5.", ".5", "1e3", "%", "1,5", "50%%", "nan", "inf"])
def test_what_is_no_allowance_is_refused_with_examples(text: str) -> None:
    with pytest.raises(UserError, match="expected a count or a share of rollouts, got") as caught:
        parse_allowance(text)
    assert caught.value.next is not None


@pytest.mark.parametrize(
    ("result", "allowed", "code"),
    [
        (finished(10), "0", 0),
        (finished(9, {"model_error": 1}), "0", 1),
        (finished(9, {"model_error": 1}), "1", 0),
        (finished(8, {"model_error": 1, "bad_row": 1}), "1", 1),
        (finished(99, {"model_error": 1}), "1%", 0),
        (finished(98, {"model_error": 2}), "1%", 1),
        (finished(9, {"model_error": 1}), "1%", 1),  # a share is rounded down
        (finished(9, owed=1), "0", 1),
        (finished(9, owed=1), "100%", 1),  # what was not tried is never allowed to be missing
        (finished(0, owed=1), "1000", 1),
        (finished(0, {"bad_row": 3}), "100%", 0),
    ],
)
def test_the_exit_code_is_0_only_if_nothing_is_missing_that_may_not_be(
    result: RunFinished, allowed: str, code: int
) -> None:
    assert exit_code(result, parse_allowance(allowed)) == code


@given(st.integers(0, 1000), st.integers(0, 1000), st.integers(0, 5), st.integers(0, 1000))
def test_what_is_owed_always_makes_a_failure(scored: int, failed: int, owed: int, allowed: int) -> None:
    code = exit_code(finished(scored, {"unknown": failed}, owed), Allowance(count=allowed))
    assert code == (0 if owed == 0 and failed <= allowed else 1)


def test_a_share_in_percent_of_a_hundred_is_that_number() -> None:
    assert [parse_allowance(f"{percent}%").of(100) for percent in range(101)] == list(range(101))


# --- the explanation -------------------------------------------------------------------------------------------------


def test_nothing_is_explained_where_nothing_is_missing() -> None:
    assert explain_missing(finished(10)) == []


def test_failures_are_listed_by_number_with_layer_and_hint() -> None:
    lines = explain_missing(finished(5, {"model_auth": 1, "verifier_error": 4}))
    assert lines == [
        "5 of 10 rollouts were scored",
        "  4 × verifier_error (layer verifier): the verifier raised: read the environment's log",
        "  1 × model_auth (layer config): check the key of the model server (policy_api_key)",
        "  once the cause is fixed: --resume --retry-failed retries the failed ones",
    ]


def test_what_is_owed_and_why_it_ended_is_said() -> None:
    lines = explain_missing(finished(3, {"model_timeout": 1}, 6, note="interrupted by SIGINT"))
    assert lines[0] == "3 of 10 rollouts were scored"
    assert lines[2:] == [
        "  6 are still owed: run the same command with --resume",
        "  why it ended: interrupted by SIGINT",
    ]


def test_one_rollout_is_owed_in_the_singular() -> None:
    assert "  1 is still owed: run the same command with --resume" in explain_missing(finished(9, {}, 1))


def test_why_a_run_ended_is_one_line_whatever_the_endpoint_replied() -> None:
    lines = explain_missing(finished(3, {}, 7, note="refused: a web page\n\n<html>\n"))
    assert lines[-1] == "  why it ended: refused: a web page <html>"


@pytest.mark.parametrize(
    ("run", "text"),
    [
        (finished(10), "10 of 10, complete"),
        (finished(0, {"model_auth": 10}), "0 of 10 scored, 10 failed"),
        (finished(7, {"model_auth": 1, "unknown": 2}), "7 of 10 scored, 3 failed"),
        (finished(3, {}, 7, state="interrupted"), "3 of 10, interrupted"),
    ],
)
def test_a_run_without_a_score_is_not_called_complete(run: RunFinished, text: str) -> None:
    assert describe_outcome(run) == text


def test_usage_is_readable_for_one_call_and_for_slow_ones() -> None:
    assert format_usage(ModelUsage(calls=1, latency_ms=0.0345)).startswith("1 call, ")
    assert "0.03 ms per call" in format_usage(ModelUsage(calls=1, latency_ms=0.0345))
    assert "16,030 ms per call" in format_usage(ModelUsage(calls=2, latency_ms=32_060.0))


def test_a_failure_is_one_line_whatever_the_endpoint_replied(capsys: pytest.CaptureFixture[str]) -> None:
    Progress()(RolloutFailed(1, 2, "a", "model_error", "x", "model", "Traceback:\n  File\n\nend\n", 1.0, final=True))
    assert capsys.readouterr().err == "failed 1:2 model_error at model: Traceback: File end\n"


def test_out_of_memory_is_told_with_the_concurrency_it_happened_at() -> None:
    assert "it was 512" in explain_missing(finished(0, {"out_of_memory": 1}, concurrency=512))[1]


@pytest.mark.parametrize("kind", [*sorted(KINDS), "from_a_plugin"])
def test_every_kind_can_be_explained(kind: str) -> None:
    line = explain_missing(finished(1, {kind: 2}))[1]
    assert line.startswith(f"  2 × {kind} (layer ")
    assert len(line) > len(f"  2 × {kind} (layer infra): ") + 5


# --- the progress line -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.0, "0 s"),
        (12.4, "12 s"),
        (119.0, "119 s"),
        (120.0, "2 min 0 s"),
        (185.9, "3 min 5 s"),
        (7199.0, "119 min 59 s"),
        (7200.0, "2 h 0 min"),
        (200_000.0, "55 h 33 min"),
    ],
)
def test_durations_for_people(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_a_quiet_run_is_told_in_few_words() -> None:
    assert status_line(snapshot()) == "40/100 rollouts  2.5/s  8 in flight (limit 16)  about 24 s left"


def test_nothing_is_guessed_before_the_first_rollout_ended() -> None:
    text = status_line(snapshot(scored=0, per_second=0.0, eta_s=None))
    assert text == "0/100 rollouts  0.0/s  8 in flight (limit 16)"


def test_everything_that_matters_is_in_the_line() -> None:
    now = snapshot(
        state="draining", failed={"model_error": 2, "bad_row": 1}, oldest=[OLDEST], out_of_reach_s={"math": 130.0}
    )
    assert status_line(now) == (
        "43/100 rollouts  2.5/s  3 failed  8 in flight (limit 16)  about 24 s left"
        "  oldest 41:3 3 min 5 s at model  math unreachable for 2 min 10 s, waiting  [draining]"
    )


def test_a_piped_line_shows_the_reward_and_what_was_truncated() -> None:
    one = snapshot(agents={"math": AgentStats(40, 0.25, 0, 0, 4)})
    assert "  reward 0.250  4 truncated (10.0%)  8 in flight" in status_line(one)
    several = {name: AgentStats(10, 0.5, 0, 0) for name in "abcd"}
    assert "  rewards a 0.500, b 0.500, c 0.500, …  8 in flight" in status_line(snapshot(agents=several))
    assert "reward" not in status_line(snapshot(agents={"math": AgentStats(0, None, 1, 0)}))


def test_the_view_of_a_resumed_run_is_of_the_run_and_says_what_this_invocation_did() -> None:
    now = snapshot(
        agents={"math": AgentStats(40, 0.5, 0, 0)}, settled_before=30, this_invocation=AgentStats(10, 0.1, 0, 2)
    )
    for width in (160, 40):
        written_to = io.StringIO()
        console = Console(width=width, file=written_to)
        console.print(status_panel(now, console))
        text = " ".join(written_to.getvalue().split())
        assert "this invocation: 10 scored, mean reward 0.100, 2 retried; 30 settled before" in text
        assert "0.500" in text
        assert "…" not in text


def test_the_view_on_a_terminal_shows_agents_stages_and_failures() -> None:
    now = snapshot(
        stages={"tool": 1, "model": 7},
        agents={"math": AgentStats(40, 0.5, 2, 3), "code": AgentStats(0, None, 0, 0)},
        failed={"model_error": 2},
        retried={"model_timeout": 3},
        waiting_retries=4,
        given_up={"code": "the first 5 attempts of code failed on the configuration: wrong key"},
    )
    written_to = io.StringIO()
    console = Console(width=160, file=written_to)
    console.print(status_panel(now, console))
    text = written_to.getvalue()
    assert "42/100 rollouts" in text
    assert re.search(r"math +40 +0\.500 +2 +3", text)
    assert re.search(r"code +0 +–", text)
    assert "in flight: 7 model, 1 tool; 4 waiting for a retry" in text
    assert "failed: 2 × model_error; retried: 3 × model_timeout" in text
    assert "gave up on code: the first 5 attempts" in text


# --- OpenMetrics -----------------------------------------------------------------------------------------------------

SAMPLE = re.compile(r'(gymnast_[a-z_]+)(?:\{([a-z]+)="((?:[^"\\\n]|\\.)*)"\})? (\S+)')


def samples(text: str) -> dict[tuple[str, str | None], float]:
    """The samples of a page, having checked its form: every family declared once, before its samples, and the end."""
    lines = text.split("\n")
    assert lines[-2:] == ["# EOF", ""]
    found: dict[tuple[str, str | None], float] = {}
    family = ""
    seen: set[str] = set()
    for line in lines[:-2]:
        if line.startswith("# TYPE "):
            _, _, family, kind = line.split(" ")
            assert kind == "gauge"
            assert family not in seen
            seen.add(family)
        elif line.startswith("# HELP "):
            assert line.split(" ")[2] == family
        else:
            match = SAMPLE.fullmatch(line)
            assert match is not None, line
            assert match[1] == family
            found[match[1], match[3]] = float(match[4])
    return found


def test_a_snapshot_as_metrics() -> None:
    now = snapshot(
        failed={"model_error": 2},
        stages={"model": 7, "tool": 1},
        agents={"math": AgentStats(40, 0.25, 2, 3, 4), "code": AgentStats(0, None, 0, 0)},
        oldest=[OLDEST],
        rejections=5,
        loop_lag_s=0.125,
    )
    assert samples(open_metrics(now)) == {
        ("gymnast_rollouts_requested", None): 100,
        ("gymnast_rollouts_scored", None): 40,
        ("gymnast_rollouts_failed", "model_error"): 2,
        ("gymnast_rollouts_owed", None): 60,
        ("gymnast_rollouts_in_flight", "model"): 7,
        ("gymnast_rollouts_in_flight", "tool"): 1,
        ("gymnast_concurrency_limit", None): 16,
        ("gymnast_rollouts_per_second", None): 2.5,
        ("gymnast_mean_reward", "math"): 0.25,
        ("gymnast_rollouts_truncated", "math"): 4,
        ("gymnast_rollouts_truncated", "code"): 0,
        ("gymnast_event_loop_lag_seconds", None): 0.125,
        ("gymnast_model_calls", None): 50,
        ("gymnast_model_rejections", None): 5,
        ("gymnast_oldest_rollout_seconds", None): 185,
    }


@given(st.text())
def test_any_name_of_an_agent_makes_a_page_that_can_be_read(name: str) -> None:
    page = open_metrics(snapshot(agents={name: AgentStats(1, 1.0, 0, 0)}))
    escaped = name.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    assert samples(page)["gymnast_mean_reward", escaped] == 1.0


def test_numbers_in_the_millions_are_exact() -> None:
    found = samples(open_metrics(snapshot(requested=1_234_567, model_calls=98_765_432)))
    assert found["gymnast_rollouts_requested", None] == 1_234_567
    assert found["gymnast_model_calls", None] == 98_765_432


def listens(port: int) -> bool:
    with socket.socket() as sock:
        return sock.connect_ex(("127.0.0.1", port)) == 0


async def test_metrics_are_served_while_the_run_lasts(http: HttpClient, capsys: pytest.CaptureFixture[str]) -> None:
    now = [snapshot()]
    with metrics_endpoint(0, lambda: now[0]):
        said = capsys.readouterr().err
        match = re.search(r"metrics at (http://127\.0\.0\.1:\d+)/metrics", said)
        assert match is not None
        target = parse_target(f"{match[1]}/metrics")
        first = await http.request("GET", target)
        now[0] = snapshot(scored=41)
        second = await http.request("GET", target)
        other = await http.request("GET", parse_target(f"{match[1]}/other"))
    await eventually(lambda: not listens(target.origin.port))
    await eventually(lambda: len(asyncio.all_tasks()) == 1)  # closing goes on for a moment
    assert (first.status, second.status, other.status) == (200, 200, 404)
    assert first.header("content-type") == "application/openmetrics-text; version=1.0.0; charset=utf-8"
    assert samples(first.body.decode())["gymnast_rollouts_scored", None] == 40
    assert samples(second.body.decode())["gymnast_rollouts_scored", None] == 41


async def test_a_metrics_port_that_is_taken_is_an_error_with_a_way_on() -> None:
    sock = bind_socket("127.0.0.1", 0, what="test", hint="")
    port = sock.getsockname()[1]
    try:
        with pytest.raises(PortTakenError, match=f"port {port}") as caught, metrics_endpoint(port, snapshot):
            pass
        assert caught.value.next is not None
        assert "--metrics-port" in caught.value.next
    finally:
        sock.close()


# --- what engines say of themselves ----------------------------------------------------------------------------------

VLLM = """\
# HELP vllm:num_requests_running Number of requests in model execution batches.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="org/model-7b"} 12.0
vllm:num_requests_running{engine="1",model_name="org/model-7b"} 10.0
# HELP vllm:num_requests_waiting Number of requests waiting to be processed.
# TYPE vllm:num_requests_waiting gauge
vllm:num_requests_waiting{engine="0",model_name="org/model-7b"} 3.0
vllm:num_requests_waiting{engine="1",model_name="org/model-7b"} 0.0
# HELP vllm:kv_cache_usage_perc KV-cache usage. 1 means 100 percent usage.
# TYPE vllm:kv_cache_usage_perc gauge
vllm:kv_cache_usage_perc{engine="0",model_name="org/model-7b"} 0.25
vllm:kv_cache_usage_perc{engine="1",model_name="org/model-7b"} 0.875
vllm:num_requests_waiting_by_reason{engine="0",reason="capacity"} 100.0
vllm:request_success_total{engine="0",finished_reason="stop"} 4321.0
"""


def test_queues_are_summed_and_the_fullest_cache_counts() -> None:
    assert parse_metrics(VLLM) == {"running": 22.0, "waiting": 3.0, "kv_usage": 0.875}


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", None),
        ("# nothing here\nprocess_open_fds 7\n", None),
        ("sglang:num_running_reqs 3\n", None),
        ("vllm:gpu_cache_usage_perc 0.5\n", {"kv_usage": 0.5}),
        ("vllm:num_requests_running 1e1\n", {"running": 10.0}),
        ('vllm:num_requests_waiting{a="b"} 5 1700000000\n', {"waiting": 5.0}),
        ("#vllm:num_requests_waiting 5\n other vllm:num_requests_waiting 5\n", None),
    ],
)
def test_pages_of_other_versions_and_servers(text: str, found: dict[str, float] | None) -> None:
    assert parse_metrics(text) == found


def test_a_sample_that_is_no_number_is_left_out() -> None:
    assert parse_metrics("vllm:num_requests_waiting soon\nvllm:num_requests_running 2\n") == {"running": 2.0}


@asynccontextmanager
async def engine(page: str | None, status: int = 200) -> AsyncIterator[str]:
    """An inference engine as far as its metrics go, which never answers if it has none; gives its base URL."""

    async def app(scope: AsgiScope, receive: Receive, send: Send) -> None:
        if page is None:
            while (await receive())["type"] != "http.disconnect":
                pass
            return
        found = scope["path"] == "/metrics"
        await send({"type": "http.response.start", "status": status if found else 404, "headers": []})
        await send({"type": "http.response.body", "body": page.encode() if found else b""})

    async with Listener(app, bind_socket("127.0.0.1", 0, what="test", hint="")) as listener:
        yield f"{listener.url}/v1"


async def test_the_pressure_of_one_engine_is_read_over_http(http: HttpClient) -> None:
    async with engine(VLLM) as url:
        assert await read_pressure(http, [url]) == {"running": 22.0, "waiting": 3.0, "kv_usage": 0.875}
        assert await read_pressure(http, [url.removesuffix("/v1")]) is not None


async def test_several_engines_are_taken_together_and_those_without_metrics_left_out(http: HttpClient) -> None:
    small = "vllm:num_requests_waiting 1\nvllm:kv_cache_usage_perc 0.9\n"
    async with engine(VLLM) as one, engine(small) as two, engine("", 404) as none, engine("<html>") as other:
        found = await read_pressure(http, [one, two, none, other, "http://127.0.0.1:9", "nonsense"])
    assert found == {"running": 22.0, "waiting": 4.0, "kv_usage": 0.9}


async def test_where_no_engine_has_metrics_there_is_no_pressure(http: HttpClient) -> None:
    async with engine("", 500) as broken, engine("process_open_fds 7\n") as other:
        assert await read_pressure(http, [broken, other, "http://127.0.0.1:9/v1"]) is None
    assert await read_pressure(http, []) is None


async def test_an_engine_that_does_not_answer_is_not_waited_for(http: HttpClient) -> None:
    async with engine(None) as silent, engine("vllm:num_requests_running 2\n") as quick:
        found = await read_pressure(http, [silent, quick], timeout_s=0.2)
    assert found == {"running": 2.0, "waiting": 0.0, "kv_usage": 0.0}


# --- looking at a run from outside -----------------------------------------------------------------------------------


def written(folder: Path, state: RunState = RunState.INCOMPLETE) -> RunPaths:
    """A run of which there is only a manifest."""
    paths = RunPaths(folder / "x.jsonl")
    empty: dict[str, Any] = {"versions": {}, "source": {}, "plan": {}, "settings": {}, "code": {}}
    write_manifest(
        paths.manifest,
        Manifest(
            run_id="r",
            state=state,
            output="x.jsonl",
            created_at=0.0,
            updated_at=0.0,
            counts=Counts(3, 1, {}, 2, 1, 0),
            **empty,
        ),
    )
    return paths


async def test_a_run_that_is_not_there_is_an_error_with_a_way_on(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="no run '"):
        await inspect_run(tmp_path / "nothing.jsonl")


@pytest.mark.parametrize("state", [RunState.COMPLETE, RunState.INCOMPLETE, RunState.INTERRUPTED])
async def test_a_run_that_nobody_works_on_is_told_from_its_manifest(tmp_path: Path, state: RunState) -> None:
    paths = written(tmp_path, state)
    look = await inspect_run(paths.output)
    assert (look.state, look.live, look.run) == (state.value, None, str(paths.output))
    assert (look.manifest.counts.requested, look.manifest.counts.owed) == (3, 2)
    assert not is_being_written(paths)


@pytest.mark.parametrize("damage", ["no inputs", "a torn line of inputs"])
async def test_a_killed_run_with_damaged_inputs_still_has_a_status(tmp_path: Path, damage: str) -> None:
    paths = written(tmp_path, RunState.RUNNING)
    paths.output.write_text('{"_ng_task_index": 0, "_ng_rollout_index": 0, "reward": 1.0}\n')
    paths.materialized_inputs.unlink(missing_ok=True)
    if damage != "no inputs":
        paths.materialized_inputs.write_text('{"_ng_task_index": 0, "_ng_ro')
    look = await inspect_run(paths.output)
    assert (look.state, look.manifest.counts.requested) == ("interrupted", 3)


async def test_a_running_run_is_asked_over_its_socket(tmp_path: Path) -> None:
    paths = written(tmp_path, RunState.RUNNING)
    now = snapshot(state="paused", oldest=[OLDEST], agents={"a": AgentStats(1, None, 0, 0)})

    async def answer(request: dict[str, Any]) -> Any:
        assert request == {"command": "status"}
        return msgspec.to_builtins(now)

    with RunLock(paths.lock):
        async with ControlServer(paths.socket, answer):
            look = await inspect_run(paths.manifest)
    assert (look.state, look.live) == ("paused", now)


async def test_looking_neither_takes_nor_removes_the_lock(tmp_path: Path) -> None:
    paths = written(tmp_path, RunState.RUNNING)
    with RunLock(paths.lock):
        assert (await inspect_run(paths.output)).state == "running"
        assert paths.lock.exists()
        with pytest.raises(UserError), RunLock(paths.lock):
            pass
