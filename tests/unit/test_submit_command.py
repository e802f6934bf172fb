"""`gymnast submit` without a scheduler: what it plans, shows and refuses. With one: tests/cluster/test_submit.py."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest

from gymnast.cli.commands import build_app
from gymnast.cli.main import run_guarded
from tests.helpers.commands import DEMO_POLICY

RUN = ["-e", "arithmetic", "-c", DEMO_POLICY, "-i", "resources_servers/arithmetic/data/example.jsonl", "-o", "x.jsonl"]


@pytest.fixture(autouse=True)
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "cluster_configs").mkdir()
    (tmp_path / "cluster_configs" / "mine.yaml").write_text("partition: gpu\ncontainers: {}\n")
    return tmp_path


def submit(*words: str) -> int:
    return run_guarded(lambda: build_app("submit")(args=["submit", *RUN, *words], standalone_mode=False))


def test_a_dry_run_needs_no_scheduler_and_writes_nothing(desk: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ("--cluster", "mine", "-n", "4", "--workers", "3", "--at-once", "2", "--requeue", "2", "--time", "01:00:00")
    assert submit(*words, "--dry-run", "--json") == 0
    data = json.loads(capsys.readouterr().out)
    assert sum(chunk["rows"] for chunk in data["chunks"]) == data["rollouts"] == 20
    assert data["workers"] == 3
    workers, finish = data["scripts"].values()
    for option in ("--array=0-2%2", "--partition=gpu", "--time=01:00:00", "--requeue"):
        assert f"#SBATCH {option}\n" in workers
    run = shlex.quote(f"{desk}/x.jsonl")
    assert f"worker {run}" in workers.replace(" \\\n   ", "")
    assert f"merge {run}" in finish.replace(" \\\n   ", "")
    assert [path.name for path in desk.iterdir()] == ["cluster_configs"]


def test_no_more_workers_than_chunks(capsys: pytest.CaptureFixture[str]) -> None:
    assert submit("--executor", "slurm", "--workers", "300", "--chunk-rows", "5", "--dry-run", "--json") == 0
    data = json.loads(capsys.readouterr().out)
    assert data["workers"] == len(data["chunks"]) == 1


def test_a_server_in_the_job_is_a_component(capsys: pytest.CaptureFixture[str]) -> None:
    policy = ("--server", "vllm", "-m", "org/model", "--server-gpus", "8", "--tensor-parallel", "4")
    words = ["submit", "-e", "arithmetic", "--model-type", "vllm_model", *RUN[4:], *policy, "--cluster", "mine"]
    assert run_guarded(lambda: build_app()(args=[*words, "--dry-run"], standalone_mode=False)) == 0
    shown = capsys.readouterr().out
    assert "#SBATCH --gpus-per-node=8" in shown
    assert "start policy srun --kill-on-bad-exit=1 --overlap" in shown
    assert "--ntasks=2" in shown


def test_a_sandbox_in_the_job_is_a_component(desk: Path, capsys: pytest.CaptureFixture[str]) -> None:
    site = "runtime: pyxis\npython: python3\ncontainers: {sandbox: /images/s.sqsh, other: /images/o.sqsh}\n"
    (desk / "cluster_configs" / "mine.yaml").write_text(site)
    assert submit("--cluster", "mine", "--with-sandbox", "--dry-run") == 0
    shown = capsys.readouterr().out
    assert shown.index("--container-image=/images/s.sqsh") > shown.index("start sandbox srun")
    assert "start worker srun" in shown
    assert submit("--cluster", "mine", "--with-sandbox", "--sandbox-container", "other", "--dry-run") == 0
    assert "--container-image=/images/o.sqsh" in capsys.readouterr().out
    assert submit("--cluster", "mine", "--with-sandbox", "--sandbox-container", "none", "--dry-run") == 2


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--cluster", "nine"], "did you mean 'mine'?"),
        (["--cluster", "mine", "--container", "vllm"], "there is no container 'vllm' at mine"),
        (["--code", "snapshoot"], "did you mean 'snapshot'"),
        (["--executor", "slrum"], "did you mean 'slurm'?"),
        (["--executor", "slurm", "--code", "container"], "--code container needs a container"),
        (["--run-after", "7"], "--run-after needs Slurm"),
        (["--code", "snapshot"], "--code snapshot needs Slurm"),
        (["--executor", "ray", "--server", "vllm", "-m", "x"], "servers in the job need Slurm"),
        (["--server", "vllm", "-m", "x", "--model-url", "http://a/v1"], "either in the job"),
        (["--server-gpus", "8"], "for a server in the job, but none is configured"),
        (["--with-sandbox"], "needs a container or a command for the sandbox service"),
        (["--agent", "simple_agent,codex"], "one agent and one model"),
        (["--agent", "simple_agnt"], "did you mean 'simple_agent'"),
        (["--sandbox-command", "x"], "add --with-sandbox"),
        (["--executor", "ray", "--with-sandbox", "--sandbox-command", "x"], "servers in the job need Slurm"),
    ],
)
def test_refusals_say_what_to_do(desk: Path, words: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert submit(*words) == 2
    assert said in capsys.readouterr().err
    assert [path.name for path in desk.iterdir()] == ["cluster_configs"], "nothing is planned before all is checked"


def test_the_options_of_collect_are_those_of_submit(capsys: pytest.CaptureFixture[str]) -> None:
    run_guarded(lambda: build_app("submit")(args=["submit", "--help"], standalone_mode=False))
    text = capsys.readouterr().out
    for option in ("--num-repeats", "--temperature", "--skip-bad-rows", "--server-args", "--workers", "--dry-run"):
        assert option in text


@pytest.mark.parametrize("command", ["cancel", "logs"])
def test_a_run_that_is_not_there(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_guarded(lambda: build_app(command)(args=[command, "nothing.jsonl"], standalone_mode=False)) == 2
    assert "nothing" in capsys.readouterr().err
