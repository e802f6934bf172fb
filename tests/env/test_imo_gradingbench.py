"""imo_gradingbench: which word is the grade, and a run."""

from __future__ import annotations

from pathlib import Path

import pytest

from gymnast.builtin.resources_servers.imo_gradingbench.app import ImoGradingBench, ImoGradingBenchSettings
from gymnast.builtin.resources_servers.imo_gradingbench.grades import last_word_grade, strict_grade
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


async def test_cases() -> None:
    async with started(ImoGradingBench, ImoGradingBenchSettings()) as subject:
        await check_cases(subject, "imo_gradingbench")


async def test_a_run_over_the_example_rows(tmp_path: Path) -> None:
    replies = ["correct", "Fine. correct", {"reasoning": "correct", "text": "almost"}, "partial", "no idea", "almost"]
    records = await collect_examples(tmp_path, "imo_gradingbench", replies)
    assert [record["reward"] for record in records] == [1.0, 0.0, 1.0, 1.0, 0.0, 0.0]
    assert [record["score_diff"] for record in records] == [0.0, 1.0, 0.0, 0.0, None, 1.0]
    assert [record["binary_match"] for record in records] == [True, True, True, True, False, True]
