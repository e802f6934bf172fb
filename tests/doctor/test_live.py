"""Doctor on what is running: stuck rollouts with their stacks, full load that is no fault, dead serves."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.crash.harness import Collection, Tasks, collecting, policy_running
from tests.doctor.experiments import closed_port
from tests.doctor.lab import ENVIRONMENT, RIGHT, Answer, Lab, endpoint, error, install
from tests.helpers.commands import BIN, DEMO_POLICY, serving

TASKS = Tasks(20, 2)


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lab:
    monkeypatch.chdir(tmp_path)
    return Lab(tmp_path)


@pytest.fixture
def hanging(lab: Lab) -> Iterator[Collection]:
    """A collection whose endpoint never answers."""
    with (
        policy_running("--fault", "hang=1.0") as policy,
        collecting(lab.folder, TASKS, policy.url, "--concurrency", "3", "--no-preflight") as collection,
    ):
        collection.start()
        _wait_for(lab.folder / "x.sock")
        time.sleep(0.5)
        yield collection
        collection.kill()


def _wait_for(path: Path) -> None:
    deadline = time.monotonic() + 300
    while not path.exists():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_what_is_stuck_is_named_with_its_stage_endpoint_and_stack(lab: Lab, hanging: Collection) -> None:
    code, report = lab.doctor("x.jsonl", "--live", "--stuck-after", "0.2")
    assert code == 1
    first = report["findings"][0]
    assert (first["id"], first["layer"]) == ("stuck", "model_serving")
    assert "policy_model" in first["symptom"]
    assert len(report["stuck"]) == 3
    frames: list[str] = report["stuck"][0]["frames"]
    assert frames[0].endswith("in _run_attempt")
    assert any("upstream" in frame for frame in frames), frames


def test_a_run_that_only_just_began_is_not_blamed(lab: Lab, hanging: Collection) -> None:
    code, report = lab.doctor("x.jsonl", "--live")
    assert (code, report["healthy"]) == (0, True), report["findings"]


def test_full_load_is_not_a_fault(lab: Lab) -> None:
    with (
        policy_running("--slow-s", "0.1") as policy,
        collecting(lab.folder, TASKS, policy.url, "--concurrency", "2") as collection,
    ):
        collection.start()
        _wait_for(lab.folder / "x.sock")
        time.sleep(0.7)
        code, report = lab.doctor("x.jsonl", "--live")
        collection.kill()
    assert code == 0, report["findings"]
    assert "saturated" in {note["id"] for note in report["notes"]}
    counts = report["counts"]
    assert (counts["lost"], counts["scored"] + counts["owed"]) == (0, 40), "what is not yet run is not lost"


def test_a_run_that_is_gone_is_looked_at_by_its_files(lab: Lab) -> None:
    lab.collect(RIGHT)
    assert lab.doctor("x.jsonl", "--live")[0] == 0


@pytest.mark.usefixtures("own_registry")
def test_a_serve_that_answers_is_healthy(lab: Lab) -> None:
    with serving(lab.folder, "-c", DEMO_POLICY) as served:
        code, report = lab.doctor("--head", served.head)
    assert code == 0, report["findings"]
    assert any("policy_model" in said for said in _saw(report, 3))


def test_a_serve_that_does_not_answer(lab: Lab) -> None:
    code, report = lab.doctor("--head", f"http://127.0.0.1:{closed_port()}")
    assert code == 1
    assert report["findings"][0]["id"] == "servers_down"


def test_a_probe_names_the_models_that_are_served(lab: Lab) -> None:
    with endpoint(lambda _, __: error(404, {"error": "no such model"})) as url:
        lab.collect_at(url)
        _, report = lab.doctor("x.jsonl", "--probe")
    first = report["findings"][0]
    assert first["id"] == "model_name_wrong"
    assert "(lab)" in first["next"]


@contextmanager
def posting(url: str, body: dict[str, Any]) -> Iterator[None]:
    """A client that waits for an answer until the block ends."""
    address = urlsplit(url)
    data = json.dumps(body).encode()
    head = f"POST {address.path} HTTP/1.1\r\nhost: lab\r\nx-gymnast-rollout: 3-1\r\ncontent-length: {len(data)}\r\n\r\n"
    with socket.create_connection((address.hostname, address.port)) as client:
        client.sendall(head.encode() + data)
        yield


def _doctor_until(lab: Lab, wanted: str, *arguments: str, naming: str = "") -> dict[str, Any]:
    """Doctor's answer once it has this finding first; the last one where that does not come."""
    deadline = time.monotonic() + 300
    while True:
        _, report = lab.doctor(*arguments)
        is_wanted = bool(report["findings"]) and report["findings"][0]["id"] == wanted
        if (is_wanted and naming in json.dumps(report["stuck"])) or time.monotonic() > deadline:
            return report
        time.sleep(0.2)


@pytest.mark.usefixtures("own_registry")
@pytest.mark.parametrize("place", ["process", "child"])
def test_what_is_stuck_in_a_serve_is_named_with_its_stage_endpoint_and_stack(lab: Lab, place: str) -> None:
    """A client waits for an agent, which waits for a model server, which waits for an endpoint that never answers."""
    row = json.loads(lab.tasks.read_text().splitlines()[0])
    with policy_running("--fault", "hang=1.0") as policy:
        model = ("--model-type", "vllm_model", "-m", "lab", "--model-url", policy.url)
        setting = f"++policy_model.responses_api_models.vllm_model.runs_in={place}"
        with (
            serving(lab.folder, "-e", "mcqa", *model, setting, "--endpoint-timeout", "0") as served,
            posting(f"{served.url('mcqa_simple_agent')}/run", row),
        ):
            # The model server's own wait starts a moment after the agent's, so it is also stuck a moment later.
            live = ("--head", served.head, "--live", "--stuck-after", "0.5")
            report = _doctor_until(lab, "stuck", *live, naming=policy.url)
    first = report["findings"][0]
    assert (first["id"], first["layer"]) == ("stuck", "model_serving"), first
    assert "policy_model" in first["symptom"]
    whole = json.dumps(report["stuck"])
    assert policy.url in whole
    assert "upstream.py" in whole
    assert {entry["stage"] for entry in report["stuck"]} == {"model"}
    assert report["stuck"][0]["key"] == "3-1"
    assert len(report["stuck"]) == (1 if place == "process" else 2)


@pytest.mark.usefixtures("own_registry")
def test_open_requests_are_nobody_elses_business(lab: Lab) -> None:
    """A serve that requires a token requires it for this page too."""
    with serving(lab.folder, "-c", DEMO_POLICY, env={"GYMNAST_TOKEN": "s3cret-token"}) as served:
        address = urlsplit(served.url("policy_model"))
        client = socket.create_connection((address.hostname, address.port))
        with client, client.makefile("rb") as answer:
            client.sendall(b"GET /gymnast/in-flight HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n")
            assert b" 401 " in answer.readline()


def test_stacks_of_workers_are_reported_too(lab: Lab) -> None:
    with (
        policy_running("--fault", "hang=1.0") as policy,
        collecting(lab.folder, TASKS, policy.url, "--concurrency", "2", "--workers", "1") as collection,
    ):
        collection.start()
        _wait_for(lab.folder / "x.sock")
        time.sleep(2.5)
        report = _doctor_until(lab, "stuck", "x.jsonl", "--live", "--stuck-after", "0.5")
        collection.kill()
    assert policy.url in report["findings"][0]["symptom"]
    assert any("upstream.py" in frame for frame in report["stuck"][0]["frames"])


def test_code_that_blocks_the_loop_is_named_though_nobody_can_answer(lab: Lab) -> None:
    """`time.sleep` in a verifier: neither the control socket nor anything else gets a turn."""
    blocking = "import time\n" + ENVIRONMENT.replace("await asyncio.sleep(60)", "time.sleep(60)")
    install(lab.folder, blocking.replace('"""An environment that does what its rows say."""', ""))
    lab.rows(2, trouble="slow")
    with endpoint(lambda _, __: RIGHT) as url:
        command = [str(BIN / "gymnast"), "collect", "-e", "lab", "--model-type", "vllm_model", "-m", "lab"]
        command += ["--model-url", url, "-i", "tasks.jsonl", "-o", "x.jsonl"]
        with subprocess.Popen(command, cwd=lab.folder, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL) as process:
            try:
                _wait_for(lab.folder / "x_logs" / "lab.log")
                code, report = lab.doctor("x.jsonl", "--live")
            finally:
                process.kill()
    assert code == 1
    first = report["findings"][0]
    assert (first["id"], first["layer"]) == ("loop_blocked", "throughput")
    assert "app.py" in first["evidence"][0]["quote"]
    assert "in verify" in first["evidence"][0]["quote"]


def _saw(report: dict[str, Any], number: int) -> list[str]:
    saw: list[str] = report["steps"][number - 1]["saw"]
    return saw


@contextmanager
def _collecting_from(lab: Lab, url: str, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    """A collection of the lab's rows in a process of its own."""
    command = [str(BIN / "gymnast"), "collect", "-e", "mcqa", "--model-type", "vllm_model", "-m", "lab"]
    command += ["--model-url", url, "-i", "tasks.jsonl", "-o", "x.jsonl", *arguments]
    with subprocess.Popen(command, cwd=lab.folder, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL) as process:
        try:
            _wait_for(lab.folder / "x.sock")
            yield process
        finally:
            process.kill()


def test_a_hang_after_the_first_rounds_is_not_full_load(lab: Lab) -> None:
    """The endpoint answers a few requests and then never again, while its metrics stand still."""
    lab.rows(30)
    page = b"vllm:num_requests_running 4.0\nvllm:num_requests_waiting 0.0\nvllm:generation_tokens_total 50.0\n"
    policy = lambda number, _: RIGHT if number < 5 else replace(RIGHT, delay_s=20.0)  # noqa: E731
    with endpoint(policy, Answer(page)) as url, _collecting_from(lab, url, "--concurrency", "4"):
        report = _doctor_until(lab, "stuck", "x.jsonl", "--live", "--stuck-after", "1")
    first = report["findings"][0]
    assert (first["id"], first["layer"]) == ("stuck", "model_serving"), report
    assert "its engine hangs" in first["cause"]
    assert "saturated" not in {note["id"] for note in report["notes"]}


def test_a_stopped_collector_is_not_healthy(lab: Lab) -> None:
    lab.rows(30)
    slow = replace(RIGHT, delay_s=5.0)
    with endpoint(lambda _, __: slow) as url, _collecting_from(lab, url, "--concurrency", "2") as process:
        process.send_signal(signal.SIGSTOP)
        report = _doctor_until(lab, "process_stopped", "x.jsonl", "--live")
        without_live = _doctor_until(lab, "process_stopped", "x.jsonl")
        process.send_signal(signal.SIGCONT)
    first = report["findings"][0]
    assert first["id"] == "process_stopped", report
    assert f"kill -CONT {process.pid}" in first["next"]
    assert without_live["findings"][0]["id"] == "process_stopped"


def test_half_of_the_calls_failing_behind_retries_is_noticed(lab: Lab) -> None:
    lab.rows(60)
    policy = lambda number, _: error(500, {"error": "out of order"}) if number % 2 else RIGHT  # noqa: E731
    with endpoint(policy) as url, _collecting_from(lab, url, "--concurrency", "4", "-n", "50"):
        report = _doctor_until(lab, "calls_retried", "x.jsonl", "--live")
    first = report["findings"][0]
    assert (first["id"], first["layer"]) == ("calls_retried", "model_serving"), report
    assert "model_error" in first["symptom"]
