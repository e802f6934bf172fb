"""`gymnast eval` as a whole: data from a Hub, rollouts, tables, JSON, resume, extension, baselines, interruption."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from gymnast.store.manifest import read_manifest
from gymnast.store.paths import RunPaths
from tests.helpers.benchmarks import GUESSING, guess_rows, write_benchmark
from tests.helpers.command_functions import invoke_command
from tests.helpers.commands import BIN, DEMO_POLICY, SCRIPTED, Outcome, run_command
from tests.helpers.hub_server import Repo, running_hub
from tests.helpers.jsonl import read_jsonl, write_jsonl
from tests.helpers.waiting import wait_until

ROOT = Path(__file__).parents[2]
POLICY = ("-c", SCRIPTED, "--override", f"++policy_model.responses_api_models.scripted_model.script={GUESSING}")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with the benchmark `guess`, of six tasks in two subsets."""
    write_benchmark(tmp_path / "benchmarks")
    write_jsonl(tmp_path / "benchmarks" / "rows.jsonl", guess_rows(6))
    return tmp_path


def evaluate(folder: Path, *arguments: str) -> Outcome:
    return invoke_command(folder, "gymnast", "eval", *arguments, *POLICY)


def test_tables_and_json_agree(folder: Path) -> None:
    done = evaluate(folder, "guess", "-n", "4")
    assert done.code == 0, done.err
    for text in ("pass@1[avg-of-4]", "maj@4", "pass@4", "guess: a", "guess: b", "95% interval"):
        assert text in done.out
    assert "num_repeats is 4; the published protocol has 2" in done.err
    again = evaluate(folder, "guess", "-n", "4", "--resume", "--json")
    (result,) = again.json()
    assert result == json.loads((folder / "eval" / "guess" / "rollouts_eval.json").read_text())
    (whole, first, second) = result["scores"]["tables"]
    assert [table["subset"] for table in (whole, first, second)] == [None, "a", "b"]
    value = whole["metrics"][0]["estimate"]["value"]
    rewards = [record["reward"] for record in read_jsonl(folder / "eval" / "guess" / "rollouts.jsonl")]
    assert value == pytest.approx(sum(rewards) / 24)
    assert f"{value:.4f}" in done.out
    params = read_jsonl(RunPaths(folder / "eval" / "guess" / "rollouts.jsonl").materialized_inputs)[0]
    assert params["responses_create_params"]["temperature"] == 0.5, "the protocol's"


def test_more_repeats_extend_a_run_and_a_baseline_is_compared(folder: Path) -> None:
    assert evaluate(folder, "guess").code == 0
    assert evaluate(folder, "guess", "-o", "other", "--temperature", "0.9").code == 0
    refused = evaluate(folder, "guess", "-n", "4", "--resume")
    assert refused.code == 2
    assert "--extend" in refused.err
    done = evaluate(folder, "guess", "-n", "4", "--resume", "--extend", "--baseline", "other/guess/rollouts.jsonl")
    assert done.code == 0, done.err
    assert "6 tasks in both" in done.out
    assert "baseline" in done.out
    assert len(read_jsonl(folder / "eval" / "guess" / "rollouts.jsonl")) == 24


def test_a_baseline_is_looked_for_before_anything_is_spent(folder: Path) -> None:
    done = evaluate(folder, "guess", "--baseline", "nope.jsonl")
    assert done.code == 2
    assert "nope.jsonl" in done.err
    assert not (folder / "eval").exists()


def test_failures_are_reported_and_the_exit_code_says_so(folder: Path) -> None:
    write_jsonl(folder / "benchmarks" / "rows.jsonl", [*guess_rows(2, "3"), *guess_rows(1, "!")])
    done = evaluate(folder, "guess", "--max-attempts", "1")
    assert done.code == 1
    assert "2 of 6 rollouts have no score (2 × model_error)" in done.out
    assert "would make the mean reward 0.6667" in done.out
    assert "pass@1[avg-of-2] │ 1.0000" in done.out
    assert evaluate(folder, "guess", "--max-attempts", "1", "--overwrite", "--max-failed", "2").code == 0


def test_a_file_of_tasks_needs_no_benchmark(folder: Path) -> None:
    rows = [
        {"responses_create_params": {"input": f"{n} [3 4]"}, "expected_answer": 3, "level": n % 2} for n in range(4)
    ]
    write_jsonl(folder / "mine.jsonl", rows)
    done = evaluate(folder, "mine.jsonl", "-e", "arithmetic", "-n", "2", "--subset-key", "level")
    assert done.code == 0, done.err
    assert "mine: 1" in done.out
    assert "maj@2" in done.out
    assert "agent" in evaluate(folder, "mine.jsonl", "-o", "without").err


def test_two_benchmarks_at_once(folder: Path) -> None:
    write_benchmark(folder / "benchmarks", "second")
    done = evaluate(folder, "guess", "second", "--json")
    assert [result["benchmark"] for result in done.json()] == ["guess", "second"]
    assert evaluate(folder, "guess", "guess").code == 2


def test_benchmarks_are_listed_and_shown(folder: Path) -> None:
    listed = invoke_command(folder, "gymnast", "eval", "--list")
    assert {"aime24", "gsm8k", "guess"} <= {line.split()[0] for line in listed.out.splitlines()}
    names = [entry["name"] for entry in invoke_command(folder, "gymnast", "eval", "--list", "--json").json()]
    assert names == sorted(names)
    shown = invoke_command(folder, "gymnast", "eval", "--show", "aime24")
    assert "repo: Maxwell-Jia/AIME_2024" in shown.out
    assert "did you mean 'guess'" in invoke_command(folder, "gymnast", "eval", "gues").err
    assert "--list" in invoke_command(folder, "gymnast", "eval").err


def test_data_comes_from_the_hub_that_the_environment_names(tmp_path: Path) -> None:
    lines = b"".join(json.dumps(row).encode() + b"\n" for row in guess_rows(5))
    write_benchmark(tmp_path / "own", data={"repo": "org/d", "file": "test.jsonl"})
    with running_hub() as hub:
        hub.repos["org/d"] = repo = Repo({"test.jsonl": lines}, token="secret")
        path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
        env = {"HF_ENDPOINT": hub.url, "HF_HOME": str(tmp_path / "hf"), "HF_TOKEN": "secret", "PYTHONPATH": path}
        words = ("eval", "guess", "--search-dir", "own", *POLICY)
        done = run_command(tmp_path, "gymnast", *words, "--json", env=env)
        assert done.code == 0, done.err
        result: dict[str, Any] = done.json()[0]
        assert result["data"]["commit"] == repo.commit
        refused = run_command(
            tmp_path, "gymnast", *words, "-o", "again", env={**env, "HF_TOKEN": "wrong", "HF_HOME": "x"}
        )
        assert refused.code == 2
        assert "private" in refused.err


def test_the_commit_of_the_data_is_recorded_and_a_moved_branch_is_reported(tmp_path: Path) -> None:
    def lines(answer: str) -> bytes:
        return b"".join(json.dumps(row).encode() + b"\n" for row in guess_rows(3, answer))

    write_benchmark(tmp_path / "benchmarks", data={"repo": "org/d", "file": "test.jsonl"})
    with running_hub() as hub:
        hub.repos["org/d"] = repo = Repo({"test.jsonl": lines("3")})
        path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
        state = {"HF_HOME": str(tmp_path / "hf"), "GYMNAST_STATE_DIR": str(tmp_path / "state")}
        env = {**state, "HF_ENDPOINT": hub.url, "PYTHONPATH": path}

        def run(*words: str) -> Outcome:
            return run_command(tmp_path, "gymnast", "eval", "guess", *words, *POLICY, env=env)

        first, commit = run(), repo.commit
        assert first.code == 0, first.err
        assert f"data      org/d at {commit} (main), test.jsonl, SHA-256 " in first.out
        assert "is now commit" not in first.err
        manifest = read_manifest(RunPaths(tmp_path / "eval" / "guess" / "rollouts.jsonl").manifest)
        assert manifest is not None
        assert manifest.source["origin"]["commit"] == commit
        assert len(manifest.source["origin"]["sha256"]) == 64

        repo.push({"test.jsonl": lines("4"), "README.md": b"new"})
        baseline = ("--baseline", "eval/guess/rollouts.jsonl")
        moved = run("-o", "later", *baseline)
        assert f"warning: guess: 'main' of org/d is now commit {repo.commit}; it was {commit}" in moved.err
        assert "the file 'test.jsonl' differs" in moved.err
        assert f"--revision {commit}" in moved.err
        assert "warning: the baseline was made from other data" in moved.err

        pinned = run("-o", "pinned", "--revision", commit, *baseline)
        assert pinned.code == 0, pinned.err
        assert "warning" not in pinned.err
        assert f"data      org/d at {commit}, test.jsonl" in pinned.out
        again = run("-o", "again")
        assert "is now commit" not in again.err, "said once"
        repo.push({"test.jsonl": lines("4"), "README.md": b"newer"})
        same = run("-o", "same")
        assert f"note: guess: 'main' of org/d is now commit {repo.commit}" in same.err
        assert "is the same" in same.err
        other = run("-o", "same", "--resume", "--revision", commit)
        assert other.code == 2
        assert "this run started with the data of org/d at" in other.err
        assert run("-o", "x", "--revision", "nope").code == 2


def test_a_revision_is_refused_where_it_means_nothing(folder: Path) -> None:
    write_benchmark(folder / "benchmarks", "second")
    assert "is local" in evaluate(folder, "guess", "--revision", "main").err
    assert "one benchmark" in evaluate(folder, "guess", "second", "--revision", "main").err
    write_jsonl(folder / "mine.jsonl", [{"responses_create_params": {"input": "1 [3 4]"}, "expected_answer": 3}])
    assert "is a file" in evaluate(folder, "mine.jsonl", "-e", "arithmetic", "--revision", "main").err


def test_options_of_collect_reach_an_evaluation(folder: Path) -> None:
    (folder / "mine.csv").write_text("task,answer\n1 [3 4],3\n2 [3 4],4\n")
    words = ("-e", "arithmetic", "--map", "expected_answer=answer", "--prompt", "{task}", "--disable-aggregation")
    done = evaluate(folder, "mine.csv", *words, "--override", "++expected_answer=3")
    assert done.code != 0, "an override that nothing reads"
    done = evaluate(folder, "mine.csv", *words)
    assert done.code == 0, done.err
    paths = RunPaths(folder / "eval" / "mine" / "rollouts.jsonl")
    assert len(read_jsonl(paths.output)) == 2
    assert not paths.aggregate_metrics.exists()
    assert "expected score, mask or fail" in evaluate(folder, "guess", "--truncated", "scor").err
    replaced = evaluate(folder, "guess", "--prompt", "Guess: {question}")
    assert "your prompt replaces the benchmark's" in replaced.err


def test_an_interrupted_evaluation_is_resumed(folder: Path) -> None:
    write_jsonl(folder / "benchmarks" / "rows.jsonl", guess_rows(600))
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    command = [str(BIN / "gymnast"), "eval", "guess", "-n", "16", "--concurrency", "1", *POLICY]
    output = folder / "eval" / "guess" / "rollouts.jsonl"
    process = subprocess.Popen(
        command,
        cwd=folder,
        env={**os.environ, "PYTHONPATH": path},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    wait_until(lambda: output.exists() and output.stat().st_size > 0)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=300)
    assert process.returncode == 130, err
    assert "not run" in out
    done = evaluate(folder, "guess", "-n", "16", "--resume")
    assert done.code == 0, done.err
    assert len(read_jsonl(output)) == 9600


def test_the_benchmark_of_the_how_to_page_works(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "how-to" / "benchmarks.md").read_text()
    (definition,) = re.findall(r"^```yaml\n(.*?)^```$", page, flags=re.MULTILINE | re.DOTALL)
    (tmp_path / "benchmarks").mkdir()
    (tmp_path / "copy" / "data").mkdir(parents=True)
    (tmp_path / "benchmarks" / "trivia.yaml").write_text(definition)
    row = {
        "text": ' Who wrote "Hamlet"? ',
        "a": 'Sh"a',
        "b": "Jupiter",
        "c": "no",
        "d": "o",
        "topic": "books",
        "label": 0,
    }
    write_jsonl(tmp_path / "copy" / "data" / "test.jsonl", [row] * 200)
    words = ("trivia", "--from", "copy", "-n", "2", "-c", DEMO_POLICY)
    done = invoke_command(tmp_path, "gymnast", "eval", *words)
    assert done.code == 0, done.err
    assert "trivia: books" in done.out
    assert "the published protocol has 8" in done.err
