"""Planning in chunks: once, whoever asks and however many at the same moment; a planner that died is no obstacle."""

from __future__ import annotations

from pathlib import Path

import pytest

from gymnast.chunks import planning
from gymnast.chunks.lease import claim
from gymnast.chunks.planning import ChunkingOptions, PlannedRun, plan_run
from gymnast.chunks.status import read_run_status
from gymnast.chunks.worker_spec import ConfigArguments
from gymnast.config import compose, read_environ
from gymnast.errors import UserError
from gymnast.rollouts.budget import Budget
from gymnast.rollouts.engine import EngineOptions
from gymnast.rollouts.options import RunOptions
from gymnast.rollouts.plan import PlanOptions
from gymnast.store.chunk_files import Holder
from gymnast.store.chunk_layout import ChunkFolder
from gymnast.store.chunk_state import read_chunk_plan, read_folder_state
from tests.helpers.jsonl import example_rows, write_jsonl
from tests.helpers.planned_runs import DEMO, plan_examples


def test_a_planner_that_died_halfway_is_not_an_obstacle(tmp_path: Path) -> None:
    """Killed after the inputs were written and before the plan was: nothing was collected, so it is planned anew."""
    first = plan_examples(tmp_path)
    layout = first.layout
    layout.plan.unlink()
    dead = Holder(worker="dead", pid=1, started=1, pid_namespace="")
    won = claim(read_folder_state(ChunkFolder(layout.planning), "planning"), holder=dead, token="dead")
    assert won is not None
    again = plan_examples(tmp_path, ChunkingOptions(lease_s=0.5))
    assert again.is_new
    assert again.plan.run_id != first.plan.run_id
    assert read_run_status(layout).owed == 40


def test_a_resume_with_other_rows_is_refused_with_the_difference(tmp_path: Path) -> None:
    plan_examples(tmp_path)
    rows = example_rows("mcqa")
    write_jsonl(tmp_path / "tasks.jsonl", [*rows[:-1], {**rows[-1], "expected_answer": "Z"}])
    with pytest.raises(UserError, match="8 rollouts changed"):
        plan_examples(tmp_path, existing="resume")
    with pytest.raises(UserError, match="an earlier run exists"):
        plan_examples(tmp_path)
    assert plan_examples(tmp_path, existing="overwrite").is_new


def test_only_ways_that_a_submit_has_are_named(tmp_path: Path) -> None:
    plan_examples(tmp_path)
    write_jsonl(tmp_path / "tasks.jsonl", [*example_rows("mcqa"), *example_rows("mcqa")])
    with pytest.raises(UserError) as caught:
        plan_examples(tmp_path, existing="resume")
    assert caught.value.next is not None
    assert "--overwrite" in caught.value.next
    assert not any(word in caught.value.next for word in ("--extend", "--fork", "--force"))


def test_a_folder_that_cannot_be_is_reported_in_words(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match=r"cannot write into .*file"):
        plan_examples(tmp_path, output=tmp_path / "file" / "x.jsonl")


def test_what_many_cannot_keep_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="budget"):
        plan_examples(tmp_path, engine=EngineOptions(budget=Budget(max_tokens=5)))
    with pytest.raises(UserError, match="--extend"):
        plan_examples(tmp_path, existing="resume", on_change="extend")
    config = compose(read_environ(), environments=("mcqa",), config_paths=DEMO).require_valid()
    names = ConfigArguments(environments=("mcqa",), config_paths=DEMO, overrides=("++policy_api_key=sk-secret",))
    with pytest.raises(UserError, match="policy_api_key"):
        plan_run(RunOptions(source=tmp_path / "tasks.jsonl", output=tmp_path / "x.jsonl"), config, names)
    assert not (tmp_path / "x_chunks").exists()


def test_rows_that_are_skipped_are_failures_of_the_run(tmp_path: Path) -> None:
    write_jsonl(tmp_path / "tasks.jsonl", [*example_rows("mcqa")[:2], {"no": "params"}])
    options = PlanOptions(agent="mcqa_simple_agent", repeats=2, skip_bad_rows=True)
    found = plan_examples(tmp_path, plan=options)
    account = read_run_status(found.layout)
    assert (account.requested, account.owed, account.failed) == (6, 4, {"bad_row": 2})


def test_a_run_that_was_planned_after_the_look_is_not_planned_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another submit plans between the look for files that are in the way and the lease."""
    make_folder = planning._make_folder
    first: list[PlannedRun] = []

    def plan_before(folder: Path) -> None:
        monkeypatch.setattr(planning, "_make_folder", make_folder)
        first.append(plan_examples(tmp_path))
        make_folder(folder)

    monkeypatch.setattr(planning, "_make_folder", plan_before)
    with pytest.raises(UserError, match="another submit planned this run just now"):
        plan_examples(tmp_path)
    assert read_chunk_plan(first[0].layout) == first[0].plan
