"""imo_gradingbench: which word is the grade, and a run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gymnast.builtin.resources_servers.imo_gradingbench.app import ImoGradingBench, ImoGradingBenchSettings
from gymnast.builtin.resources_servers.imo_gradingbench.grades import last_word_grade, strict_grade
from gymnast.kit.metrics import aggregate
from tests.helpers.environments import check_cases, collect_examples, started


@pytest.mark.parametrize(
    ("text", "last", "stated"),
    [
        ("correct", "correct", "correct"),
        ("So: **Partial.**", "partial", "partial"),
        ("Not bad, but a gap.\nalmost", "almost", "almost"),
        ("not correct", "correct", None),
        ("correct or almost", "almost", None),
        ("correct\nalmost", "almost", "almost"),
        ("<think> correct", "correct", None),
        ("<think> partial </think> correct", "correct", None),
        ("<think>\npartial\n</think>\ncorrect", "correct", "correct"),
        ("y" + "*" * 2000 + "correct", None, None),
        ("", None, None),
    ],
)
def test_grades(text: str, last: str | None, stated: str | None) -> None:
    assert (last_word_grade(text), strict_grade(text)) == (last, stated)


async def test_a_row_without_a_grade_is_refused_under_strict_scoring() -> None:
    row = {"responses_create_params": {"input": "Grade it."}, "expected_answer": "right"}
    async with started(ImoGradingBench, ImoGradingBenchSettings(scoring="strict")) as subject:
        assert "must be one of correct, almost, partial, incorrect, got 'right'" in await subject.refusal(row)


def test_the_metrics_of_a_run() -> None:
    def graded(task: int, rollout: int, grade: str | None, distance: float | None) -> dict[str, Any]:
        is_near = distance is not None and distance <= 1
        fields = {"reward": float(distance == 0), "binary_match": is_near, "score_diff": distance}
        return {**fields, "extracted_grade": grade, "_ng_task_index": task, "_ng_rollout_index": rollout}

    rows = [graded(0, 1, None, None), graded(0, 0, "almost", 1.0), graded(4, 0, "partial", 6.0)]
    found = aggregate([*rows, graded(4, 1, "correct", 0.0)], ImoGradingBench.custom_metrics)
    metrics, selected = found["agent_metrics"], found["key_metrics"]
    wanted = {"pass@1/mae": 3.5, "pass@2/mae": 0.5, "pass@1[avg-of-1]/mae": 3.5}
    wanted |= {"pass@1[avg-of-2]/mae": 7 / 3, "mae": 7 / 3}
    wanted |= {"mae_count": 3.0, "pass@1[avg-of-1]/mae_count": 2.0, "pass@2/mae_count": 2.0}
    wanted |= {"pass@2/exact_accuracy": 50.0, "pass@2/binarized_accuracy": 100.0, "majority@1/binarized_accuracy": 50.0}
    assert {name: metrics[name] for name in wanted} == pytest.approx(wanted)
    assert {name.rpartition("/")[0] for name in selected} == {"", "mean", "pass@1[avg-of-2]", "pass@2", "majority@2"}
    assert "pass@2/no_answer" not in selected


async def test_cases() -> None:
    async with started(ImoGradingBench, ImoGradingBenchSettings()) as subject:
        await check_cases(subject, "imo_gradingbench")


async def test_a_run_over_the_example_rows(tmp_path: Path) -> None:
    replies = ["correct", "Fine. correct", {"reasoning": "correct", "text": "almost"}, "partial", "no idea", "almost"]
    records = await collect_examples(tmp_path, "imo_gradingbench", replies)
    assert [record["reward"] for record in records] == [1.0, 0.0, 1.0, 1.0, 0.0, 0.0]
    assert [record["score_diff"] for record in records] == [0.0, 1.0, 0.0, 0.0, None, 1.0]
    assert [record["binary_match"] for record in records] == [True, True, True, True, False, True]
