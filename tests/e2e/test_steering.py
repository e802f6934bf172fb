"""A running collection from another shell: status, ctl, metrics, workers, and a worker that runs out of memory."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.helpers.commands import BIN, DEMO_POLICY, SCRIPTED, Outcome
from tests.helpers.jsonl import example_rows, read_jsonl, write_jsonl
from tests.helpers.parts import needs

Run = Callable[..., Outcome]
MCQA = ("-e", "mcqa", "-i", "resources_servers/mcqa/data/example.jsonl", "-o", "x.jsonl")
SLOW: tuple[str, ...] = (
    *MCQA,
    "-c",
    SCRIPTED,
    '++policy_model.responses_api_models.scripted_model.replies=["\\\\boxed{A}"]',
)
SLOW += ("++policy_model.responses_api_models.scripted_model.latency_s=0.1", "-n", "5000")
"""Longer than any test takes, on whatever machine."""
CGROUPS = Path("/sys/fs/cgroup/memory")


@contextmanager
def collecting(folder: Path, *arguments: str, cgroup: Path | None = None) -> Iterator[subprocess.Popen[str]]:
    def enter() -> None:
        if cgroup is not None:
            (cgroup / "cgroup.procs").write_text(str(os.getpid()))

    process = subprocess.Popen(
        [str(BIN / "gymnast"), "collect", *arguments],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=enter,  # noqa: PLW1509 - no threads in the test at this point
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def wait_for(check: Callable[[], bool], within_s: float = 300.0) -> None:
    deadline = time.monotonic() + within_s
    while not check():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_a_running_collection_is_watched_and_steered(run: Run, tmp_path: Path) -> None:
    with collecting(tmp_path, *SLOW, "--concurrency", "4") as process:
        wait_for((tmp_path / "x.sock").exists)
        wait_for(lambda: run("gymnast", "status", "x.jsonl", "--json").json()["live"]["scored"] > 4)
        shown = run("gymnast", "status", "x.jsonl")
        assert shown.code == 0, shown.err
        assert "running" in shown.out
        assert "oldest in flight" in shown.out
        wait_for(lambda: "policy_model" in run("gymnast", "status", "x.jsonl").out)  # what one waits for
        live = run("gymnast", "status", "x.jsonl", "--json").json()["live"]
        assert live["oldest"][0]["stage"] == "model"
        assert live["limit"] == 4
        assert "concurrency is 9" in run("gymnast", "ctl", "x.jsonl", "set", "concurrency=9").out
        assert run("gymnast", "ctl", "x.jsonl", "pause").out == "paused\n"
        wait_for(lambda: run("gymnast", "status", "x.jsonl", "--json").json()["live"]["in_flight"] == 0)
        assert "paused" in run("gymnast", "status", "x.jsonl").out
        assert run("gymnast", "ctl", "x.jsonl", "resume").code == 0
        wrong = run("gymnast", "ctl", "x.jsonl", "cancel", "99:99")
        assert wrong.code == 2
        assert "not in flight" in wrong.err
        second = run("gymnast", "collect", *SLOW, "--resume")
        assert second.code == 2
        assert "another process is writing this run: pid" in second.err
        assert "draining" in run("gymnast", "ctl", "x.jsonl", "drain").out
        _, said = process.communicate(timeout=300)
    assert process.returncode == 1
    assert "drained by gymnast ctl" in said
    ended = run("gymnast", "status", "x.jsonl")
    assert ended.code == 1
    assert "interrupted" in ended.out
    assert "--resume" in ended.err
    gone = run("gymnast", "ctl", "x.jsonl", "pause")
    assert gone.code == 2
    assert not (tmp_path / "x.sock").exists()
    assert not (tmp_path / "x.lock").exists()


def test_a_killed_run_is_not_taken_for_a_running_one(run: Run, tmp_path: Path) -> None:
    with collecting(tmp_path, *SLOW) as process:
        wait_for(lambda: (tmp_path / "x.jsonl").exists() and (tmp_path / "x.jsonl").stat().st_size > 0)
        process.send_signal(signal.SIGKILL)
        process.wait()
    shown = run("gymnast", "status", "x.jsonl")
    assert shown.code == 1
    assert "running" not in shown.out.splitlines()[0]


def test_metrics_are_served_while_it_runs(tmp_path: Path) -> None:
    with collecting(tmp_path, *SLOW, "--metrics-port", "0") as process:
        assert process.stderr is not None
        url = next(match[0] for line in process.stderr if (match := re.search(r"http://[\d.:]+/metrics", line)))
        with urllib.request.urlopen(url) as answer:
            text = answer.read().decode()
    assert text.endswith("# EOF\n")
    assert "gymnast_rollouts" in text


def test_workers_share_the_work_and_the_result_is_the_same(run: Run, tmp_path: Path) -> None:
    demo = (*MCQA, "-c", DEMO_POLICY, "-n", "20")
    done = run("gymnast", "collect", *demo, "--workers", "2")
    assert done.code == 0, done.err
    rewards = {
        (row["_ng_task_index"], row["_ng_rollout_index"]): row["reward"] for row in read_jsonl(tmp_path / "x.jsonl")
    }
    assert len(rewards) == 100
    alone = run("gymnast", "collect", *demo, "--overwrite")
    assert alone.code == 0
    again = read_jsonl(tmp_path / "x.jsonl")
    assert {(row["_ng_task_index"], row["_ng_rollout_index"]): row["reward"] for row in again} == rewards


def test_bad_rows_are_all_named_before_anything_is_spent_or_recorded_as_failures(run: Run, tmp_path: Path) -> None:
    good = example_rows("mcqa")[0]
    lines = [json.dumps(good), "{", json.dumps({"no": "params"}), json.dumps({**good, "agent_ref": {"name": "nobody"}})]
    (tmp_path / "in.jsonl").write_text("\n".join(lines) + "\n")
    names = ("-e", "mcqa", "-c", DEMO_POLICY, "-i", "in.jsonl", "-o", "x.jsonl", "-n", "2")
    refused = run("gymnast", "collect", *names)
    assert refused.code == 2
    assert all(f"line {number}" in refused.err for number in (2, 3, 4))
    assert not (tmp_path / "x.jsonl").exists()
    for _ in range(2):
        done = run("gymnast", "collect", *names, "--skip-bad-rows", "--resume")
        assert done.code == 1
        assert "2 of 8 rollouts were scored" in done.err
        failures = read_jsonl(tmp_path / "x_failures.jsonl")
        assert len(failures) == 6
        assert {row["failure"]["layer"] for row in failures} == {"data_schema"}
    assert run("gymnast", "collect", *names, "--skip-bad-rows", "--resume", "--max-failed", "75%").code == 0


def test_a_run_that_cannot_succeed_stops_early_and_says_why(run: Run, tmp_path: Path) -> None:
    broken = tmp_path / "resources_servers" / "broken"
    (broken / "configs").mkdir(parents=True)
    (broken / "app.py").write_text(
        "from gymnast.kit import Environment, Task\n\n\n"
        "class Broken(Environment[Task, None]):\n"
        "    async def verify(self, attempt):\n"
        "        raise LookupError('no such table')\n"
    )
    (broken / "configs" / "broken.yaml").write_text(
        "broken:\n  resources_servers:\n    broken: {entrypoint: app.py, domain: other}\n"
        "broken_agent:\n  responses_api_agents:\n    simple_agent:\n      entrypoint: app.py\n"
        "      resources_server: {type: resources_servers, name: broken}\n"
        "      model_server: {type: responses_api_models, name: policy_model}\n"
    )
    write_jsonl(
        tmp_path / "in.jsonl", [{"responses_create_params": {"input": "q"}, "n": number} for number in range(2000)]
    )
    done = run("gymnast", "collect", "-e", "broken", "-c", DEMO_POLICY, "-i", "in.jsonl", "-o", "x.jsonl")
    assert done.code == 1
    assert "0 of 2000 rollouts were scored" in done.err
    assert "verifier_error" in done.err
    assert "why it ended" in done.err
    assert (tmp_path / "x.jsonl").read_text() == ""
    assert len(read_jsonl(tmp_path / "x_failures.jsonl")) < 400


@needs("memory control groups")
def test_a_worker_that_ran_out_of_memory_is_recognised(tmp_path: Path) -> None:
    hungry = tmp_path / "resources_servers" / "hungry"
    (hungry / "configs").mkdir(parents=True)
    (hungry / "app.py").write_text(
        "from gymnast.kit import Environment, Task\n\n\n"
        "class HungryTask(Task):\n    megabytes: int\n\n\n"
        "class Hungry(Environment[HungryTask, None]):\n"
        "    async def verify(self, attempt):\n"
        "        return float(len(bytearray(attempt.task.megabytes << 20)) > 0)\n"
    )
    (hungry / "configs" / "hungry.yaml").write_text(
        "hungry:\n  resources_servers:\n    hungry: {entrypoint: app.py, domain: other}\n"
        "hungry_agent:\n  responses_api_agents:\n    simple_agent:\n      entrypoint: app.py\n"
        "      resources_server: {type: resources_servers, name: hungry}\n"
        "      model_server: {type: responses_api_models, name: policy_model}\n"
    )
    rows = [{"responses_create_params": {"input": "q"}, "megabytes": size} for size in (1, 2, 3, 1000)]
    write_jsonl(tmp_path / "in.jsonl", rows)
    cgroup = CGROUPS / f"gymnast-test-{os.getpid()}"
    cgroup.mkdir()
    try:
        (cgroup / "memory.limit_in_bytes").write_text(str(400 << 20))
        names = ("-e", "hungry", "-c", DEMO_POLICY, "-i", "in.jsonl", "-o", "x.jsonl")
        with collecting(tmp_path, *names, "--workers", "1", "--max-attempts", "2", cgroup=cgroup) as process:
            _, said = process.communicate(timeout=300)
    finally:
        wait_for(lambda: not (cgroup / "cgroup.procs").read_text())
        cgroup.rmdir()
    assert process.returncode == 1, said
    assert "out_of_memory" in said
    assert "num_samples_in_parallel" in said
    assert "3 of 4 rollouts were scored" in said
    kinds = {row["failure"]["kind"] for row in read_jsonl(tmp_path / "x_failures.jsonl") if row["_ng_task_index"] == 3}
    assert kinds == {"out_of_memory"}
