"""Metrics that environments add to the statistics of all numbers."""

from __future__ import annotations

import math
import random
from pathlib import Path
from typing import Any

import orjson
import pytest

from gymnast.builtin.resources_servers.code_gen.app import CodeGen
from gymnast.builtin.resources_servers.math_with_judge.app import MathWithJudge
from gymnast.builtin.resources_servers.mcqa.app import MCQA
from gymnast.builtin.resources_servers.structured_outputs.app import StructuredOutputs
from gymnast.compat.nemo_gym.reward_profile import compute_pass_majority_metrics
from gymnast.kit.custom_metrics import CustomMetrics, PassMajority
from gymnast.kit.metrics import Aggregation, aggregate
from gymnast.rollouts.aggregate import write_local_metrics
from gymnast.store.paths import RunPaths
from tests.helpers.jsonl import write_jsonl


def rollout(task: Any, number: Any, reward: float, **fields: Any) -> dict[str, Any]:
    usage = {"input_tokens": 10 + (number if isinstance(number, int) else 0), "output_tokens": 5}
    return {
        "_ng_task_index": task,
        "_ng_rollout_index": number,
        "agent_ref": {"name": "a"},
        "reward": reward,
        "response": {"usage": usage},
        **fields,
    }


def test_letters_that_were_chosen() -> None:
    answers: list[list[str | None]] = [["A", "A", "B", None], ["C", "D", "D", "D"]]
    rewards = [[1.0, 1.0, 0.0, 0.0], [1.0, 0.0, 0.0, 0.0]]
    rows = [
        rollout(task, number, rewards[task][number], extracted_answer=answers[task][number])
        for task in range(2)
        for number in range(4)
    ]
    random.Random(1).shuffle(rows)  # the number of a rollout says which it is
    found = aggregate(rows, MCQA.custom_metrics)
    metrics = found["agent_metrics"]
    assert metrics["pass@4/accuracy"] == 100.0
    assert metrics["pass@1/accuracy"] == pytest.approx(37.5)
    assert metrics["majority@4/accuracy"] == 50.0
    assert metrics["pass@1[avg-of-4]/no_answer"] == 12.5
    assert metrics["per_sample_aggregate"]["accuracy"] == [100.0, 50.0, 0.0, 0.0]
    assert set(found["key_metrics"]) == {
        *("mean/reward", "pass@1[avg-of-4]/accuracy", "pass@1[avg-of-4]/no_answer", "pass@4/no_answer"),
        *("majority@4/accuracy", "pass@1/accuracy"),
    }


def test_scores_of_the_library_and_of_the_judge() -> None:
    rows = [
        rollout(0, 0, 1.0, library_reward=0.0, judge_evaluations=[{}], extracted_answer="2"),
        rollout(0, 1, 1.0, library_reward=1.0, judge_evaluations=None, extracted_answer="2"),
    ]
    found = aggregate(rows, MathWithJudge.custom_metrics)
    assert found["agent_metrics"]["pass@2/symbolic_accuracy"] == 100.0
    assert found["agent_metrics"]["pass@1/judge_accuracy"] == 100.0
    assert "pass@2/judge_accuracy" not in found["agent_metrics"]
    assert "mean/input_tokens" in found["key_metrics"]
    assert "pass@2/no_answer" not in found["key_metrics"]


def test_programs_by_difficulty() -> None:
    rows = [
        rollout(task, number, reward, extracted_model_code="x", difficulty=difficulty)
        for task, difficulty, rewards in ((0, "easy", (1.0, 1.0)), (1, "hard", (0.0, 1.0)), (2, None, (0.0, 0.0)))
        for number, reward in enumerate(rewards)
    ]
    found = aggregate(rows, CodeGen.custom_metrics)
    assert found["agent_metrics"]["easy/pass@1[avg-of-2]/accuracy"] == 100.0
    assert found["agent_metrics"]["hard/pass@2/accuracy"] == 100.0
    assert found["agent_metrics"]["pass@1[avg-of-2]/accuracy/avg_sample_std_dev"] == pytest.approx(0.5**0.5 / 3)
    assert found["key_metrics"]["hard/pass@1[avg-of-2]/accuracy"] == 50.0


def test_documents_by_format() -> None:
    rows = [
        rollout(0, 0, 1.0, schema_type="json", num_tools=0, has_distractors=False, problem_type=""),
        rollout(0, 1, 0.0, schema_type="json", num_tools=2, parallel_tool_calls=True),
        rollout(1, 0, 1.0, schema_repr="xsd"),
    ]
    metrics = aggregate(rows, StructuredOutputs.custom_metrics)["agent_metrics"]
    expected = {
        "mean/reward_json": 0.5,
        "mean/reward_unknown": 1.0,
        "mean/reward_repr_xsd": 1.0,
        "mean/reward_num_tools_0": 1.0,
        "mean/reward_num_tools_2": 0.0,
        "mean/reward_has_distractors_false": 1.0,
        "mean/reward_parallel_tool_calls_true": 0.0,
    }
    assert {name: value for name, value in metrics.items() if name.startswith("mean/reward_")} == expected


def test_a_task_lists_its_rollouts() -> None:
    rows = [rollout(3, 1, 0.5), rollout(3, 0, 1.0, extra=True)]
    (group,) = aggregate(rows)["group_level_metrics"]
    assert (group["num_rollouts"], group["expected_num_rollouts"], group["missing_num_rollouts"]) == (2, 2, 0)
    assert group["rollout_infos"] == [
        {"rollout_id": "3:0", "_ng_task_index": 3, "_ng_rollout_index": 0, "reward": 1.0, "extra": 1}
        | {"input_tokens": 10, "output_tokens": 5},
        {"rollout_id": "3:1", "_ng_task_index": 3, "_ng_rollout_index": 1, "reward": 0.5}
        | {"input_tokens": 11, "output_tokens": 5},
    ]


@pytest.mark.parametrize("reward", [True, None, "1"])
def test_a_rollout_lists_a_reward_that_is_no_number_as_it_is(reward: Any) -> None:
    (group,) = aggregate([rollout(3, 0, 1.0), {**rollout(3, 1, 0.0), "reward": reward}])["group_level_metrics"]
    assert [info["reward"] for info in group["rollout_infos"]] == [1.0, reward]
    assert group["mean/reward"] == 1.0


def test_added_row_by_row_or_all_at_once_is_the_same() -> None:
    chance = random.Random(2)
    rows = [
        rollout(task, number, chance.choice([0.0, 1.0, 0.25]), answer=chance.choice(["x", "y", None, 3]))
        for task in range(20)
        for number in range(chance.randint(1, 6))
    ]
    tasks = [[row for row in rows if row["_ng_task_index"] == task] for task in range(20)]
    expected = compute_pass_majority_metrics(tasks, answer_key="answer")[0]
    metrics = aggregate(rows, PassMajority(answer_field="answer"))["agent_metrics"]
    assert {name: metrics[name] for name in expected} == expected


def test_without_rows_there_are_no_metrics() -> None:
    nothing: dict[str, Any] = {"group_level_metrics": [], "agent_metrics": {}, "key_metrics": {}}
    assert Aggregation(MCQA.custom_metrics).result() == nothing


def test_the_file_has_what_the_server_answers(tmp_path: Path) -> None:
    rows = [rollout(task, number, float(number), extracted_answer="A") for task in range(3) for number in range(2)]
    paths = RunPaths(write_jsonl(tmp_path / "x.jsonl", [*rows, {**rows[0], "agent_ref": {"name": "other"}}]))
    write_local_metrics(paths, {"a": MCQA.custom_metrics, "b": CustomMetrics()})
    (entry,) = orjson.loads(paths.aggregate_metrics.read_bytes())
    assert entry == {"agent_ref": {"name": "a"}, **aggregate(rows, MCQA.custom_metrics)}


def test_numbers_that_are_not_finite_do_not_stop_metrics() -> None:
    odd = (math.nan, math.inf, -math.inf, 1e308, 1e308)
    found = aggregate([rollout(0, number, 1.0, x=value) for number, value in enumerate(odd)], MCQA.custom_metrics)
    (group,) = found["group_level_metrics"]
    assert [info["x"] for info in group["rollout_infos"]] == [None, *odd[1:]]
    assert aggregate([rollout(0, number, 1.0, x=1e308) for number in range(2)])["agent_metrics"]["mean/x"] == math.inf


def test_a_reward_that_is_nan_is_left_out() -> None:
    found = aggregate([rollout(0, 0, math.nan), rollout(0, 1, 1.0), rollout(1, 0, 0.0)], MCQA.custom_metrics)
    assert found["agent_metrics"]["pass@1/accuracy"] == 50.0
    assert found["agent_metrics"]["per_sample_aggregate"]["accuracy"] == [0.0, 100.0]


@pytest.mark.parametrize("tasks", [("a", "b"), (0.5, 1.5), (False, True), (-1, 2)])
def test_tasks_of_other_programs_keep_their_indices(tasks: tuple[Any, Any]) -> None:
    rows = [rollout(task, number, float(task == tasks[0])) for task in tasks for number in "yx"]
    groups = aggregate(rows, MCQA.custom_metrics)["group_level_metrics"]
    assert [group["_ng_task_index"] for group in groups] == [*tasks]
    assert [group["mean/reward"] for group in groups] == [1.0, 0.0]
    assert [info["rollout_id"] for info in groups[0]["rollout_infos"]] == [f"{tasks[0]}:x", f"{tasks[0]}:y"]


def test_rows_without_a_task_are_in_no_group() -> None:
    found = aggregate([rollout(None, 0, 1.0)])
    assert (found["group_level_metrics"], found["agent_metrics"]["mean/reward"]) == ([], 1.0)


def test_a_reward_in_the_usage_is_the_one_that_counts() -> None:
    row = {**rollout(0, 0, 1.0), "response": {"usage": {"reward": 9}}}
    (group,) = aggregate([row])["group_level_metrics"]
    assert (group["mean/reward"], group["rollout_infos"][0]["reward"]) == (9.0, 9)
