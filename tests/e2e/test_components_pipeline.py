"""Whole local runs by seed: a policy server in each job, seeds that are done, a replica that dies in the middle."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from gymnast import UserError, nemo_gym_rollouts, run_cmd, wrap_arguments
from gymnast.sidecars.sidecar.job_registry import read_addresses
from gymnast.store.paths import RunPaths
from tests.helpers.commands import run_command
from tests.helpers.jsonl import example_rows, read_jsonl, write_jsonl

ENGINE = f"{sys.executable} {Path(__file__).parents[1] / 'helpers' / 'openai_server.py'} --port {{port}}"
CONFIGS = "resources_servers/mcqa/configs/mcqa.yaml,responses_api_models/vllm_model/configs/vllm_model.yaml"


def collect(folder: Path, *extra: str, **options: Any) -> Any:
    return nemo_gym_rollouts(
        ctx=wrap_arguments(" ".join(["+agent_name=mcqa_simple_agent", *extra])),
        config_paths=CONFIGS,
        output_dir=str(folder / "out"),
        **{
            "input_file": "resources_servers/mcqa/data/example.jsonl",
            "model": "small",
            "server_type": "command",
            "server_entrypoint": ENGINE,
            **options,
        },
    )


def test_seeds_run_one_after_the_other_and_done_ones_are_skipped(tmp_path: Path) -> None:
    messages: list[str] = []
    result = collect(tmp_path, num_random_seeds=2, on_note=messages.append)
    assert [(job.seed, job.exit_code) for job in result.jobs] == [(0, 0), (1, 0)]
    outputs = [job.output for job in result.jobs]
    assert [len(read_jsonl(path)) for path in outputs] == [5, 5]
    assert all(RunPaths(path).done.exists() for path in outputs)
    pids = {read_jsonl(path)[0]["response"]["output"][0]["content"][0]["text"] for path in outputs}
    assert len(pids) == 2  # each job had a server of its own
    before = outputs[1].read_bytes()
    again = collect(tmp_path, random_seeds="0,1", on_note=messages.append)
    assert (again.skipped, again.jobs) == ((0, 1), ())
    anew = collect(tmp_path, random_seeds="1", rerun_done=True, on_note=messages.append)
    assert [job.seed for job in anew.jobs] == [1]
    assert outputs[1].read_bytes() != before
    assert any("the earlier run was moved to" in line for line in messages)
    shown = run_command(tmp_path, "gymnast", "nemo-gym-rollouts", "--summary-only", "--output-dir", "out")
    assert shown.code == 0, shown.err
    assert "pass@1[avg-of-2]" in shown.out
    assert "maj@2" in shown.out
    assert (tmp_path / "out" / "rollouts_metrics.json").exists()


def test_a_server_that_does_not_start_is_named_and_nothing_is_collected(tmp_path: Path) -> None:
    messages: list[str] = []
    result = collect(tmp_path, server_args="--crash", on_note=messages.append)
    assert result.exit_code == 1
    assert any(line.startswith("nemo-gym-rollouts ended with policy: policy exited with code 1") for line in messages)
    assert not result.jobs[0].output.exists()


def test_a_killed_replica_costs_no_rollout(tmp_path: Path) -> None:
    """Its rollouts are tried again at the other one (that it comes back into rotation, other tests show)."""
    rows = example_rows("mcqa")
    source = write_jsonl(tmp_path / "tasks.jsonl", [{**rows[n % 5], "id": n} for n in range(60)])
    addresses = tmp_path / "out" / "jobs" / "nemo-gym-rollouts" / "1" / "job"
    killed: list[int] = []

    def kill() -> None:
        deadline = time.monotonic() + 300
        output = tmp_path / "out" / "rollouts.jsonl"
        while time.monotonic() < deadline and not (output.exists() and output.stat().st_size):
            time.sleep(0.02)
        guard = read_addresses(addresses, "policy")[0]["pid"]
        engine = psutil.Process(guard).children()[0].pid
        os.kill(engine, signal.SIGKILL)
        killed.append(engine)

    killer = threading.Thread(target=kill)
    killer.start()
    result = collect(
        tmp_path,
        "+num_samples_in_parallel=8 ++policy_model.responses_api_models.vllm_model.health_interval_s=0.2",
        input_file=str(source),
        server_replicas=2,
        server_args="--latency-s 0.4",
    )
    killer.join()
    records = read_jsonl(result.jobs[0].output)
    assert result.exit_code == 0
    assert len(records) == 60
    by = {record["response"]["output"][0]["content"][0]["text"].split()[1] for record in records}
    assert len(by - {str(killed[0])}) >= 1


def test_a_collection_that_was_interrupted_goes_on(tmp_path: Path) -> None:
    first = collect(tmp_path, "+limit=2")
    output = first.jobs[0].output
    RunPaths(output).done.unlink()
    lines = output.read_bytes().splitlines(keepends=True)
    output.write_bytes(lines[0])
    again = collect(tmp_path, "+limit=2")
    assert again.exit_code == 0
    assert output.read_bytes().startswith(lines[0])
    assert len(read_jsonl(output)) == 2


def test_data_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    rows = tmp_path / "rows.jsonl"
    fetched = run_cmd(command=f"{sys.executable} -c 'print(1)' > fetched", expname="fetch")
    assert fetched.exit_code == 0
    assert (tmp_path / "fetched").read_text() == "1\n"
    write_jsonl(rows, example_rows("mcqa"))
    failed = run_cmd(command="echo gone wrong >&2; exit 3", expname="bad")
    assert failed.exit_code == 3
    assert "gone wrong" in (failed.message or "")
    with pytest.raises(UserError, match="cannot prepare the data"):
        collect(tmp_path, before=[["data", "validate", "--input", "missing.jsonl"]])
    checked = collect(tmp_path, "+limit=1", input_file=str(rows), before=[["data", "validate", "--input", str(rows)]])
    assert checked.exit_code == 0


def test_local_workers_of_one_run_have_servers_of_their_own(tmp_path: Path) -> None:
    rows = ["-e", "mcqa", "-i", "resources_servers/mcqa/data/example.jsonl", "-a", "mcqa_simple_agent", "-n", "4"]
    server = ["--server", "command", "--server-command", ENGINE, "--model", "small", "--server-ready-path", "/health"]
    words = ["submit", *rows, "-o", "x.jsonl", "--model-type", "vllm_model", *server, "--workers", "2", "--wait"]
    done = run_command(tmp_path, "gymnast", *words)
    assert done.code == 0, done.err
    assert len(read_jsonl(tmp_path / "x.jsonl")) == 20
    logs = tmp_path.glob("x_chunks/submissions/1/jobs/*/logs/policy.0.log")
    assert len(list(logs)) == 2
