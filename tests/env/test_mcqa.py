"""mcqa: grading rules against evasive answers, patterns with a deadline, and a run over the example rows."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from gymnast.builtin.resources_servers.mcqa.app import MCQA, MCQASettings
from gymnast.builtin.resources_servers.mcqa.strict_rules import grade_by_mode
from tests.helpers.environments import check_cases, collect_examples, response, said, started, thought
from tests.helpers.jsonl import example_rows
from tests.helpers.waiting import looks_during

OPTIONS = {"A": "red", "B": "green", "C": "deep blue", "D": "D-flat", "I": "a vowel"}
STRICT, BOXED, COLON = "strict_single_letter_boxed", "lenient_boxed", "lenient_answer_colon"
COLON_MD = "lenient_answer_colon_md"


@pytest.mark.parametrize(
    ("mode", "text", "letter"),
    [
        (STRICT, r"\boxed{A}\boxed{B}\boxed{C}", "C"),
        (STRICT, r"\boxed{\boxed{B}}", "B"),
        (STRICT, r"\boxed{\mathrm{\text{B}}}", "B"),
        (STRICT, r"\boxed{A} and now something long that was cut off \boxed{B", "A"),
        (STRICT, r"\boxed{{B}}", "B"),
        (STRICT, r"\boxed{B}. The end, nothing boxed any more: {C}", "B"),
        (STRICT, "\\boxed{\uff22}", None),  # full width
        (STRICT, "\\boxed{B\u200b}", None),
        (BOXED, r"\boxed{A or B}", None),
        (BOXED, r"\boxed{A, B}", None),
        (BOXED, r"\boxed{(A) / (B)}", None),
        (BOXED, r"\boxed{A and A}", "A"),
        (BOXED, r"\boxed{c: deep blue}", "C"),
        (BOXED, r"\boxed{\text{(C) deep blue}}", "C"),
        (COLON, "Answer: B because it is the colour of grass", "B"),
        (COLON, "Answer: A or C", None),
        (COLON, "Answer: a colour", None),  # an article, no choice
        (COLON, "Answer: a", "A"),
        (COLON, "Answer: b green", "B"),
        (COLON, "Answer：C", "C"),
        (COLON, "Answer:\nB", "B"),
        (COLON, "My answer is: (D)", "D"),
        (COLON, "Answer: none of them", None),
        (COLON, "Answer: B\nAnswer: I do not know", "I"),
        (COLON_MD, "### **Final Answer**: **(C)** deep blue", "C"),
        (COLON_MD, "**Answer: `deep blue`**", "C"),
    ],
)
def test_evasive_answers(mode: str, text: str, letter: str | None) -> None:
    assert grade_by_mode(text, OPTIONS, mode) == letter


async def test_verifier_cases() -> None:
    async with started(MCQA, MCQASettings()) as subject:
        await check_cases(subject, "mcqa")


def with_pattern(pattern: Any) -> dict[str, Any]:
    return {**example_rows("mcqa")[0], "template_metadata": {"output_regex": pattern}}


async def test_a_catastrophic_pattern_is_given_up_and_nobody_waits_for_it() -> None:
    row = with_pattern([r"(\w+\s?)+!", r"choice (\w)"])
    async with started(MCQA, MCQASettings(regex_timeout_s=0.5)) as subject:
        await subject.verify(row, "choice b")  # the worker is up
        scoring = asyncio.create_task(subject.verify(row, "w" * 60 + " choice b; " + r"\boxed{A}"))
        assert await looks_during(scoring) > 3
        assert (await scoring)["extracted_answer"] == "B"


async def test_a_text_of_a_megabyte_is_graded_elsewhere() -> None:
    async with started(MCQA, MCQASettings()) as subject:
        text = "\\boxed{" * 150_000 + "B}"
        assert (await subject.verify(example_rows("mcqa")[0], text))["extracted_answer"] == "B"


@pytest.mark.parametrize("pattern", ["(" * 20_000, 7, [3], {"a": 1}])
async def test_patterns_that_are_none_are_refused(pattern: Any) -> None:
    async with started(MCQA, MCQASettings(scoring="strict")) as subject:
        assert "output_regex" in await subject.refusal(with_pattern(pattern))


@pytest.mark.parametrize("pattern", [7, [3], [r"choice (\w)", 7], True])
async def test_a_pattern_that_is_not_text_is_refused_only_where_it_is_used(pattern: Any) -> None:
    async with started(MCQA, MCQASettings()) as subject:
        assert (await subject.verify(with_pattern(pattern), " "))["reward"] == 0.0
        reply = await subject.calls.call("env", "/verify", {**with_pattern(pattern), "response": response(said("B"))})
        assert (reply.status, "output_regex" in str(reply.body)) == (422, True)


async def test_rows_without_options_accept_every_letter() -> None:
    row = {**example_rows("mcqa")[0], "options": None, "expected_answer": "K"}
    async with started(MCQA, MCQASettings(scoring="strict")) as subject:
        assert (await subject.verify(row, r"\boxed{K}"))["reward"] == 1.0
        assert (await subject.verify(row, thought(r"\boxed{K}"), "no"))["reward"] == 0.0


async def test_a_run_over_the_example_rows(tmp_path: Path) -> None:
    replies = [r"\boxed{B}", r"\boxed{B}", r"\boxed{\text{C}}", "D", r"\boxed{A} \boxed{B. Shakespeare}"]
    records = await collect_examples(tmp_path, "mcqa", replies)
    assert [record["reward"] for record in records] == [1.0, 0.0, 1.0, 0.0, 1.0]
    assert [record["extracted_answer"] for record in records] == ["B", "B", "C", None, "B"]


async def test_an_invalid_pattern_is_logged_once_per_expression(caplog: pytest.LogCaptureFixture) -> None:
    async with started(MCQA, MCQASettings(scoring="nemo_gym")) as subject:
        for pattern in ("(", "(", "[", "("):
            await subject.verify(with_pattern(pattern), "Answer: B")
    logged = [record.getMessage() for record in caplog.records if "output_regex" in record.getMessage()]
    assert len(logged) == 2
    assert "'('" in logged[0]
    assert "'['" in logged[1]
