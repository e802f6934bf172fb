"""What a person with unusable rows is told: the path in the row, the likely name, a step that helps."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from gymnast.config import compose, read_environ
from gymnast.errors import DataError
from gymnast.rollouts.param_problems import describe_bad_params
from gymnast.rollouts.plan import PlanOptions, missing_params, write_plan
from gymnast.rollouts.row_fit import RowCheck
from gymnast.wire.validate import InvalidBody, validate_params


def problem(params: Any) -> str:
    with pytest.raises(InvalidBody) as caught:
        validate_params(params, loc=("responses_create_params",))
    return describe_bad_params(caught.value, params)


@pytest.mark.parametrize(
    ("params", "text"),
    [
        ({"input": "x", "temprature": 1}, ".temprature: unknown parameter; did you mean 'temperature'?"),
        ({"input": "x", "zzz": 1}, ".zzz: unknown parameter; available: "),
        ({"input": 5}, ".input: expected a text or a list of messages, got 5"),
        ({"input": {"role": "user"}}, ".input: expected a text or a list of messages, got {'role': 'user'}"),
        ({}, ".input: Field required"),
        ({"input": [{"role": "wizard", "content": "x"}]}, ".input.0.role: Input should be 'user', "),
        ({"input": "x", "tools": [{"type": "function", "name": "f", "parameters": {}}]}, ".tools.0.strict: Field"),
    ],
)
def test_a_bad_parameter_is_named_by_its_path_in_the_row(params: Any, text: str) -> None:
    assert problem(params).startswith(f"responses_create_params{text}")


@pytest.mark.parametrize(
    ("row", "advice"),
    [
        ({"expected_answer": "A"}, "--map input=FIELD, or write a prompt: --prompt '{FIELD}'"),
        ({"answer": "A", "body": "Who?"}, "--map input=body, or write a prompt: --prompt '{body}'"),
        ({"messages": [{"role": "user", "content": "x"}], "answer": "A"}, "--map input=messages (fields"),
        ({"options": ["a"], "answer": "A"}, "--map input=FIELD"),
    ],
)
def test_the_advice_for_a_row_without_an_input_never_shows_the_model_the_answer(
    row: dict[str, Any], advice: str
) -> None:
    assert advice in missing_params(row)


@pytest.mark.parametrize("text", ['{\n "a": 1\n}\n', '[\n{"a": 1}\n]\n'])
def test_a_json_document_that_is_called_jsonl_is_recognised(tmp_path: Path, text: str) -> None:
    assert "the file is one JSON document" in refused(tmp_path, text)


def test_rows_without_an_agent_are_not_to_be_skipped_but_given_one(tmp_path: Path) -> None:
    text = refused(tmp_path, json.dumps({"responses_create_params": {"input": "x"}}) + "\n")
    assert "next:  pass the environment: -e NAME" in text
    assert "--skip-bad-rows" not in text


def test_rows_to_which_no_answer_can_be_right_are_a_warning_before_the_run(tmp_path: Path) -> None:
    params = {"responses_create_params": {"input": "Which?\nA: a\nB: b"}, "options": [{"A": "a"}, {"B": "b"}]}
    rows = [{**params, "expected_answer": "A"}, params, {**params, "expected_answer": "C"}, {**params, "id": 2}]
    source = tmp_path / "in.jsonl"
    source.write_text("".join(json.dumps(row) + "\n" for row in rows))
    config = compose(read_environ({}), environments=["mcqa"], stub_policy=True)
    options = PlanOptions(agent="mcqa_simple_agent", row_check=RowCheck(config.instances))
    warnings = write_plan(source, tmp_path / "out.jsonl", options, config.agents).warnings
    assert warnings[0].startswith("2 rows cannot be scored (no expected_answer: every answer gets 0)")
    assert warnings[1].startswith("1 row cannot be scored (expected_answer is not one of the options (A, B)")


def refused(folder: Path, text: str) -> str:
    source = folder / "in.jsonl"
    source.write_text(text)
    with pytest.raises(DataError) as caught:
        write_plan(source, folder / "out.jsonl", PlanOptions(), None)
    return str(caught.value)
