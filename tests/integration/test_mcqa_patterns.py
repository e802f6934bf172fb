"""Regular expressions of a row: they are searched for in a worker process, and come before the grading mode."""

from __future__ import annotations

import pytest

from gymnast.builtin.resources_servers.mcqa.app import MCQA, MCQASettings
from tests.helpers.environments import started
from tests.helpers.jsonl import example_rows

OPTIONS = {"A": "red", "B": "green", "C": "deep blue", "D": "D-flat"}


@pytest.mark.parametrize(
    ("patterns", "text", "letter"),
    [
        ([r"final:\s*(\w)"], "FINAL: a ... final: b", "B"),
        ([r"nomatch(\w)", r"choice (\w)"], r"choice c \boxed{A}", "C"),
        ([r"nomatch(\w)"], r"\boxed{A}", "A"),
        ([r"option [a-d]$"], "option b", None),  # without a group the whole match must be a letter or an option
    ],
)
async def test_patterns_of_a_row_come_first(patterns: list[str], text: str, letter: str | None) -> None:
    options = [{key: value} for key, value in OPTIONS.items()]
    row = {**example_rows("mcqa")[0], "options": options, "grading_mode": "strict_single_letter_boxed"}
    async with started(MCQA, MCQASettings()) as subject:
        verdict = await subject.verify({**row, "template_metadata": {"output_regex": patterns}}, text)
    assert verdict["extracted_answer"] == letter
