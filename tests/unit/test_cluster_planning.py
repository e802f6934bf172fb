"""Planning in chunks: once, whoever asks and however many at the same moment; a planner that died is no obstacle."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gymnast.cluster.account import run_account
from gymnast.cluster.lease import claim
from gymnast.cluster.order import ConfigNames, read_order
from gymnast.cluster.planning import InChunks, PlannedRun, plan_run
from gymnast.config import compose, read_environ
from gymnast.errors import UserError
from gymnast.rollouts.budget import Budget
from gymnast.rollouts.engine import EngineOptions
from gymnast.rollouts.plan import PlanOptions
from gymnast.rollouts.run import CollectRequest
from gymnast.store.chunk_files import Holder
from gymnast.store.chunk_layout import ChunkFolder, ChunkLayout
from gymnast.store.chunk_look import look_at_chunk, read_chunk_plan
from gymnast.store.paths import RunPaths
from tests.support import example_rows, write_jsonl

DEMO = ("responses_api_models/scripted_model/configs/demo.yaml",)
NAMES = ConfigNames(environments=("mcqa",), config_paths=DEMO)

PLAN_AT = """
import sys, time
from pathlib import Path
from gymnast.errors import UserError
from tests.unit.test_cluster_planning import plan
for folder in map(Path, sys.argv[2:]):
    (folder / f"ready{sys.argv[1]}").touch()
    while len(list(folder.glob("ready*"))) < 3:
        time.sleep(0.001)
    try:
        found = plan(folder, existing=folder.name)
        said = f"{'new' if found.is_new else 'old'} {found.plan.run_id}"
    except UserError as error:
        said = f"refused {error.what}"
    print(said, flush=True)
"""


def plan(folder: Path, how: InChunks | None = None, **request: Any) -> PlannedRun:
    """Plan the example rows, eight times each."""
    config = compose(read_environ(), environments=NAMES.environments, config_paths=DEMO).checked()
    source = folder / "tasks.jsonl"
    if not source.exists():
        write_jsonl(source, example_rows("mcqa"))
    options = PlanOptions(agent="mcqa_simple_agent", repeats=8)
    asked = replace(CollectRequest(source, folder / "x.jsonl", options), **request)
    return plan_run(asked, config, NAMES, how or InChunks(workers=2, lease_s=5.0))


def test_of_submits_at_the_same_moment_one_plans(tmp_path: Path) -> None:
    folders = [tmp_path / existing for existing in ("refuse", "resume", "overwrite")]
    for folder in folders:
        folder.mkdir()
        write_jsonl(folder / "tasks.jsonl", example_rows("mcqa"))
    command = [sys.executable, "-c", PLAN_AT]
    processes = [
        subprocess.Popen([*command, str(number), *map(str, folders)], stdout=subprocess.PIPE, text=True)
        for number in range(3)
    ]
    outputs = [process.communicate()[0].splitlines() for process in processes]
    for number, folder in enumerate(folders):
        said = [lines[number].split(maxsplit=1) for lines in outputs]
        planned = {rest.strip() for what, rest in said if what == "new"}
        assert len(planned) == 1 or folder.name == "overwrite", said  # who comes a moment later may overwrite
        others = "old" if folder.name == "resume" else "refused"
        assert [what for what, _ in said].count(others) == 3 - len(planned), said
        layout = ChunkLayout.of(RunPaths(folder / "x.jsonl"))
        run_id = read_chunk_plan(layout).run_id
        assert run_id == read_order(layout).run_id
        assert run_id in planned
        assert json.loads((folder / "x_run.json").read_bytes())["run_id"] == run_id
        assert run_account(layout).owed == 40


def test_a_planner_that_died_halfway_is_no_obstacle(tmp_path: Path) -> None:
    """Killed after the inputs were written and before the plan was: nothing was collected, so it is planned anew."""
    first = plan(tmp_path)
    layout = first.layout
    layout.plan.unlink()
    dead = Holder(worker="dead", pid=1, started=1, place="")
    won = claim(look_at_chunk(ChunkFolder(layout.planning), "planning"), holder=dead, token="dead")
    assert won is not None
    again = plan(tmp_path, InChunks(lease_s=0.5))
    assert again.is_new
    assert again.plan.run_id != first.plan.run_id
    assert run_account(layout).owed == 40


def test_a_resume_with_other_rows_is_refused_with_the_difference(tmp_path: Path) -> None:
    plan(tmp_path)
    rows = example_rows("mcqa")
    write_jsonl(tmp_path / "tasks.jsonl", [*rows[:-1], {**rows[-1], "expected_answer": "Z"}])
    with pytest.raises(UserError, match="8 rollouts changed"):
        plan(tmp_path, existing="resume")
    with pytest.raises(UserError, match="an earlier run is there"):
        plan(tmp_path)
    assert plan(tmp_path, existing="overwrite").is_new


def test_only_ways_that_a_submit_has_are_named(tmp_path: Path) -> None:
    plan(tmp_path)
    write_jsonl(tmp_path / "tasks.jsonl", [*example_rows("mcqa"), *example_rows("mcqa")])
    with pytest.raises(UserError) as caught:
        plan(tmp_path, existing="resume")
    assert caught.value.next is not None
    assert "--overwrite" in caught.value.next
    assert not any(word in caught.value.next for word in ("--extend", "--fork", "--force"))


def test_a_folder_that_cannot_be_is_told_in_words(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match=r"cannot write into .*file"):
        plan(tmp_path, output=tmp_path / "file" / "x.jsonl")


def test_what_many_cannot_keep_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="budget"):
        plan(tmp_path, engine=EngineOptions(budget=Budget(max_tokens=5)))
    with pytest.raises(UserError, match="--extend"):
        plan(tmp_path, existing="resume", on_change="extend")
    config = compose(read_environ(), environments=("mcqa",), config_paths=DEMO).checked()
    names = ConfigNames(environments=("mcqa",), config_paths=DEMO, overrides=("++policy_api_key=sk-secret",))
    with pytest.raises(UserError, match="policy_api_key"):
        plan_run(CollectRequest(tmp_path / "tasks.jsonl", tmp_path / "x.jsonl"), config, names)
    assert not (tmp_path / "x_chunks").exists()


def test_rows_that_are_skipped_are_failures_of_the_run(tmp_path: Path) -> None:
    write_jsonl(tmp_path / "tasks.jsonl", [*example_rows("mcqa")[:2], {"no": "params"}])
    options = PlanOptions(agent="mcqa_simple_agent", repeats=2, skip_bad_rows=True)
    found = plan(tmp_path, plan=options)
    account = run_account(found.layout)
    assert (account.requested, account.owed, account.failed) == (6, 4, {"bad_row": 2})
