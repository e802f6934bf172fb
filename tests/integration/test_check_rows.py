"""`gymnast check rows`: what of a dataset does not fit an environment, named field by field."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gymnast.checks.rows import check_rows
from gymnast.kit import Task
from tests.helpers.commands import Outcome
from tests.helpers.jsonl import example_rows, write_jsonl

PARAMS = {"input": "hi"}


class Choice(Task):
    text: str
    score: float = 0.0


class Quiz(Task):
    expected_answer: str
    choices: list[Choice]
    points: int = 1


def row(**fields: Any) -> dict[str, Any]:
    return {"responses_create_params": PARAMS, **fields}


GOOD = row(expected_answer="A", choices=[{"text": "x"}], points=2)


def test_every_field_is_named_with_counts_and_lines(tmp_path: Path) -> None:
    rows = [
        GOOD,
        row(expected_answr="A", choices=[]),
        row(expected_answer=7, choices=[{"text": "x"}, {"text": None}]),
        {"expected_answer": "A"},
        row(expected_answer="A", choices=[{}], agent_ref={"name": "other_agent"}),
    ]
    report = check_rows(write_jsonl(tmp_path / "rows.jsonl", rows), Quiz, "quiz", {"quiz_agent"})
    assert (report.rows, report.bad_rows, report.ok) == (5, 4, False)
    assert {name: tally.rows for name, tally in report.missing.items()} == {"expected_answer": 1, "choices[*].text": 1}
    wrong = {name.split(":")[0]: tally for name, tally in report.wrong.items()}
    assert set(wrong) == {"expected_answer", "choices[*].text"}
    assert wrong["expected_answer"].first == [{"line": 3, "value": "7"}]
    assert report.extra["expected_answr"].first == [{"line": 2, "value": '"A"'}]
    assert [name.split(":")[0] for name in report.other] == ["schema", "agent"]
    assert report.hints() == ["'expected_answer' is missing; map it: --map expected_answer=expected_answr"]
    assert report.declared["points"] == {"type": "int", "required": False, "present": 1}
    assert report.declared["choices"]["type"] == "list[Choice]"


def test_what_rows_say_of_themselves_is_not_held_against_them(tmp_path: Path) -> None:
    rows = [{**GOOD, "id": 1, "uuid": "u", "_ng_task_index": 3, "agent_ref": {"name": "quiz_agent"}}]
    report = check_rows(write_jsonl(tmp_path / "rows.jsonl", rows), Quiz, "quiz", {"quiz_agent"})
    assert report.ok
    assert not report.extra


def test_keys_of_free_mappings_do_not_fill_the_memory(tmp_path: Path) -> None:
    rows = [{**GOOD, f"field_{number}": 1} for number in range(700)]
    report = check_rows(write_jsonl(tmp_path / "rows.jsonl", rows), Quiz, "quiz", ())
    assert len(report.extra) == 500
    assert report.not_counted["extra"] == 200
    assert report.ok


@pytest.mark.parametrize("name", ["mcqa", "workplace_assistant", "arithmetic", "example_multi_turn_gymnasium"])
def test_shipped_examples_fit_their_environments(tmp_path: Path, invoke: Callable[..., Outcome], name: str) -> None:
    write_jsonl(tmp_path / "rows.jsonl", example_rows(name))
    done = invoke("gymnast", "check", "rows", "rows.jsonl", "--against", name)
    assert done.code == 0, done.out + done.err
    assert f"rows fit {name}" in done.out


def test_rows_whose_prompt_a_template_makes(tmp_path: Path, invoke: Callable[..., Outcome]) -> None:
    rows = [{"question": "2+2?", "expected_answer": "B", "options": [{"A": "3"}, {"B": "4"}]}]
    write_jsonl(tmp_path / "rows.jsonl", rows)
    (tmp_path / "prompt.yaml").write_text("user: '{question}'\n")
    check = ("gymnast", "check", "rows", "rows.jsonl", "--against", "mcqa")
    assert invoke(*check).code == 1
    done = invoke(*check, "--prompt-config", "prompt.yaml")
    assert done.code == 0, done.out + done.err


def test_rows_of_another_environment_do_not_fit(tmp_path: Path, invoke: Callable[..., Outcome]) -> None:
    write_jsonl(tmp_path / "rows.jsonl", example_rows("mcqa"))
    done = invoke("gymnast", "check", "rows", "rows.jsonl", "--against", "workplace_assistant", "--json")
    assert done.code == 1
    report = done.json()
    assert report["bad_rows"] == report["rows"] == 5
    assert report["missing"]["ground_truth"]["first"][0] == {"line": 1}
    assert invoke("gymnast", "check", "rows", "rows.jsonl", "--against", "mqca").code == 2


def _changed(name: str, params: dict[str, Any] | None = None, **fields: Any) -> list[dict[str, Any]]:
    """Example rows with other fields; None takes a field out."""
    rows = []
    for example in example_rows(name):
        changed = {
            **example,
            **fields,
            "responses_create_params": {**example["responses_create_params"], **(params or {})},
        }
        rows.append({field: value for field, value in changed.items() if value is not None})
    return rows


UNSCORABLE: dict[str, tuple[str, list[dict[str, Any]], str]] = {
    "no answer": ("mcqa", _changed("mcqa", expected_answer=None), "no expected_answer"),
    "a blank answer": ("mcqa", _changed("mcqa", expected_answer="  "), "no expected_answer"),
    "an answer under another name": ("mcqa", _changed("mcqa", expected_answer=None, answer="A"), "no expected_answer"),
    "an answer that is no option": ("mcqa", _changed("mcqa", expected_answer="Z"), "not one of the options"),
    "the text of the option": ("mcqa", _changed("mcqa", expected_answer="Paris"), "not one of the options"),
    "nothing for the judge": (
        "equivalence_llm_judge",
        _changed("equivalence_llm_judge", expected_answer=None, metadata=None),
        "no expected_answer",
    ),
    "nothing for the rules": ("math_with_judge", _changed("math_with_judge", expected_answer=""), "is blank"),
    "a blank word": ("word_tasks", _changed("word_tasks", expected_answer=" "), "is blank"),
    "a blank result": ("math_with_code", _changed("math_with_code", expected_result=""), "is blank"),
    "a blank query": ("text_to_sql", _changed("text_to_sql", sql=""), "is blank"),
    "no last answer": (
        "example_multi_turn_gymnasium",
        _changed("example_multi_turn_gymnasium", expected_answer=None),
        "no expected_answer",
    ),
    "no tools": ("shop_lookup", _changed("shop_lookup", {"tools": []}), "has tools"),
    "no office": ("workplace_assistant", _changed("workplace_assistant", {"tools": []}), "has tools"),
    "other tools than expected": (
        "single_step_tool_use_with_argument_comparison",
        _changed("single_step_tool_use_with_argument_comparison", {"tools": []}),
        "which its tools do not have",
    ),
}


@pytest.mark.parametrize("case", UNSCORABLE)
def test_rows_to_which_no_answer_can_be_right_do_not_fit(
    tmp_path: Path, invoke: Callable[..., Outcome], case: str
) -> None:
    name, rows, message = UNSCORABLE[case]
    write_jsonl(tmp_path / "rows.jsonl", rows)
    done = invoke("gymnast", "check", "rows", "rows.jsonl", "--against", name)
    assert done.code == 1, done.out
    assert message in done.out


def test_tools_that_the_environment_does_not_have_are_named(tmp_path: Path, invoke: Callable[..., Outcome]) -> None:
    tool = {"type": "function", "name": "launch_rocket", "parameters": {"type": "object"}, "strict": False}
    write_jsonl(tmp_path / "rows.jsonl", _changed("shop_lookup", {"tools": [tool]}))
    done = invoke("gymnast", "check", "rows", "rows.jsonl", "--against", "shop_lookup", "--json")
    assert done.code == 0, done.out + done.err
    assert set(done.json()["unknown_tools"]) == {"launch_rocket"}


class Loose(Task):
    expected_answer: str | None = None


def test_an_optional_answer_that_no_row_has_is_mentioned(tmp_path: Path) -> None:
    report = check_rows(write_jsonl(tmp_path / "rows.jsonl", [row()]), Loose, "loose", ())
    assert report.ok
    assert report.hints() == ["no row has 'expected_answer': is there another way to tell a right answer?"]
