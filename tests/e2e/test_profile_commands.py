"""profile, compare and curriculum as users type them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.helpers.commands import DEMO_POLICY, Outcome
from tests.helpers.jsonl import example_rows, read_jsonl, write_jsonl

Run = Callable[..., Outcome]
MCQA = ("-e", "mcqa", "-c", DEMO_POLICY, "-i", "resources_servers/mcqa/data/example.jsonl")


@pytest.fixture
def profiled(run: Run, tmp_path: Path) -> Path:
    assert run("gymnast", "collect", *MCQA, "-o", "x.jsonl", "-n", "8").code == 0
    return tmp_path


def test_a_run_is_profiled(run: Run, profiled: Path) -> None:
    done = run("gymnast", "profile", "x.jsonl", "--answer-key", "extracted_answer", "--table", "t.csv")
    assert done.code == 0, done.err
    assert "40/40 rollout rows (100.00%)" in done.out
    assert "5 in all, 5 complete, 0 partial, 0 without rollouts" in done.out
    assert "pass@8" in done.out
    assert "majority@8" in done.out
    assert len(read_jsonl(profiled / "x_reward_profiling.jsonl")) == 5
    assert len((profiled / "t.csv").read_text().splitlines()) == 41
    data = run("gymnast", "profile", "x.jsonl", "--json").json()
    assert (data["requested"], data["scored"], data["agents"][0]["tasks"]) == (40, 40, 5)
    same = run("ng_reward_profile", "+materialized_inputs_jsonl_fpath=x_materialized_inputs.jsonl",
               "+rollouts_jsonl_fpath=x.jsonl")  # fmt: skip
    assert same.code == 0, same.err


def test_a_partial_run_is_refused_unless_that_is_allowed(run: Run, profiled: Path) -> None:
    lines = (profiled / "x.jsonl").read_text().splitlines()
    (profiled / "x.jsonl").write_text("\n".join(lines[:10]) + "\n")
    refused = run("gymnast", "profile", "x.jsonl")
    assert refused.code == 2
    assert "30 of 40 rollouts have no result" in refused.err
    arguments = ("+materialized_inputs_jsonl_fpath=x_materialized_inputs.jsonl", "+rollouts_jsonl_fpath=x.jsonl")
    assert run("ng_reward_profile", *arguments).code == 1
    done = run("ng_reward_profile", *arguments, "++allow_partial_rollouts=True")
    assert done.code == 0, done.err
    assert "10/40 rollout rows (25.00%)" in done.out
    bounds = run("gymnast", "profile", "x.jsonl", "--allow-partial", "--failures-as", "bounds")
    assert "bounds over all rewards of rollouts without a score: " in bounds.out
    assert run("gymnast", "profile", "x.jsonl", "--failures-as", "maybe").code == 2


def test_two_runs_are_compared_and_a_gate_can_rely_on_it(run: Run, profiled: Path) -> None:
    rows = example_rows("mcqa")
    many = [{**row, "uuid": f"{row['uuid']}-{copy}"} for row in rows for copy in range(6)]
    write_jsonl(profiled / "many.jsonl", many)
    scripted = "responses_api_models/scripted_model/configs/scripted_model.yaml"
    wrong = '++policy_model.responses_api_models.scripted_model.replies=["no idea"]'
    assert run("gymnast", "collect", "-e", "mcqa", "-c", DEMO_POLICY, "-i", "many.jsonl", "-o", "a.jsonl").code == 0
    assert run("gymnast", "collect", "-e", "mcqa", "-c", scripted, wrong, "-i", "many.jsonl", "-o", "b.jsonl").code == 0
    done = run("gymnast", "compare", "a.jsonl", "b.jsonl")
    assert done.code == 0, done.err
    assert "30 tasks in both" in done.out
    assert "B is worse than A" in done.out
    assert run("gymnast", "compare", "a.jsonl", "b.jsonl", "--fail-if-worse").code == 1
    assert run("gymnast", "compare", "b.jsonl", "a.jsonl", "--fail-if-worse").code == 0
    assert run("gymnast", "compare", "b.jsonl", "a.jsonl", "--fail-if-below", "0.0").code == 0
    data = json.loads(run("gymnast", "compare", "a.jsonl", "b.jsonl", "--json").out)
    assert (data["verdict"], data["wins"]) == ("worse", 0)
    assert "No task differs" in run("gymnast", "compare", "a.jsonl", "a.jsonl").out


def test_a_run_without_scores_is_not_said_to_have_other_tasks(run: Run, profiled: Path) -> None:
    (profiled / "x.jsonl").rename(profiled / "y.jsonl")
    (profiled / "y_materialized_inputs.jsonl").write_bytes((profiled / "x_materialized_inputs.jsonl").read_bytes())
    (profiled / "x.jsonl").write_text("")
    done = run("gymnast", "compare", "x.jsonl", "y.jsonl")
    assert done.code == 2
    assert "nothing was scored in A" in done.err


def test_a_profile_becomes_training_data(run: Run, profiled: Path) -> None:
    assert run("gymnast", "profile", "x.jsonl").code == 0
    done = run(
        "gymnast", "curriculum", "x_reward_profiling.jsonl", "-o", "train.jsonl", "--steps", "3", "--batch-size", "2"
    )
    assert done.code == 0, done.err
    assert "5 tasks:" in done.out
    rows = read_jsonl(profiled / "train.jsonl")
    assert len(rows) == 6
    assert "reward_profile" in rows[0]
    assert json.loads((profiled / "train_summary.json").read_text())["rows"] == 6
    again = run("gymnast", "collect", "-e", "mcqa", "-c", DEMO_POLICY, "-i", "train.jsonl", "-o", "y.jsonl")
    assert again.code == 0, again.err  # training rows are task rows
    wrong = run("gymnast", "curriculum", "x_reward_profiling.jsonl", "-o", "t.jsonl", "--keep", "heard")
    assert "did you mean 'hard'" in wrong.err
    assert run("gymnast", "curriculum", "x.jsonl", "-o", "t.jsonl").code == 0  # the run, by its output file
