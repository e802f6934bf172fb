"""The shipped environments: their rules, adversarial answers included, and their example data."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from gymnast.builtin.resources_servers.example_multi_step.app import ExampleMultiStep
from gymnast.builtin.resources_servers.example_session_state_mgmt.app import ExampleSessionState
from gymnast.builtin.resources_servers.example_single_tool_call.app import ExampleSingleToolCall
from gymnast.builtin.resources_servers.mcqa.app import MCQA, MCQASettings
from gymnast.builtin.resources_servers.mcqa.strict_rules import grade_by_mode
from gymnast.config import Config
from gymnast.config.roots import BUILTIN
from gymnast.wire.calls import Scope
from gymnast.wire.validate import validate_params
from tests.helpers.environments import called, host_environment, response, said
from tests.helpers.jsonl import example_rows

OPTIONS = {"A": "red", "B": "green", "C": "deep blue", "D": "D-flat"}
STRICT, BOXED, COLON, COLON_MD = (
    *("strict_single_letter_boxed", "lenient_boxed", "lenient_answer_colon", "lenient_answer_colon_md"),
)


@pytest.mark.parametrize(
    ("mode", "text", "letter"),
    [
        (STRICT, r"\boxed{B}", "B"),
        (STRICT, r"first \boxed{A}, no: \boxed{B}", "B"),
        (STRICT, r"\boxed{\text{C}}", "C"),
        (STRICT, r"\boxed{ C }", "C"),
        (STRICT, r"\boxed{C: deep blue}", "C"),
        (STRICT, r"\boxed{C) deep blue}", "C"),
        (STRICT, r"\boxed{C. deep blue}", "C"),
        (STRICT, r"\boxed{C - deep blue}", "C"),
        (STRICT, r"\boxed{b}", None),
        (STRICT, r"\boxed{AB}", None),
        (STRICT, r"\boxed{E}", None),
        (STRICT, r"\boxed{green}", None),
        (STRICT, r"\boxed{A or B}", None),
        (STRICT, r"\boxed{}", None),
        (STRICT, r"\boxed{B", None),
        (STRICT, "the answer is B", None),
        (STRICT, r"\boxed{В}", None),  # a Cyrillic letter that looks like B
        (STRICT, r"\fbox{B}", None),
        (STRICT, "", None),
        (BOXED, r"\boxed{b}", "B"),
        (BOXED, r"\boxed{(b)}", "B"),
        (BOXED, r"\boxed{**B**}", "B"),
        (BOXED, r"\boxed{B. green}", "B"),
        (BOXED, r"\boxed{Deep  blue.}", "C"),
        (BOXED, r"\boxed{D-flat}", "D"),
        (BOXED, r"\boxed{blue}", None),
        (BOXED, "b", None),
        (COLON, "Answer: B", "B"),
        (COLON, "answer: b)", "B"),
        (COLON, "Answer: A\nno\nAnswer: C", "C"),
        (COLON, "The answer is: deep blue", "C"),
        (COLON, "Answer: maybe", None),
        (COLON, "**Answer:** B", "B"),
        (COLON, "no verdict", None),
        (COLON_MD, "**Answer:** **B**", "B"),
        (COLON_MD, "__Answer__: `b`", "B"),
    ],
)
def test_grading(mode: str, text: str, letter: str | None) -> None:
    assert grade_by_mode(text, OPTIONS, mode) == letter


async def test_mcqa_scores_and_reports() -> None:
    _, calls = host_environment(MCQA, MCQASettings())
    row = {**example_rows("mcqa")[0], "expected_answer": "b"}
    right = (await calls.call("env", "/verify", {**row, "response": response(said(r"\boxed{B}"))})).body
    assert (right["reward"], right["expected_answer"], right["extracted_answer"]) == (1.0, "B", "B")
    wrong = (await calls.call("env", "/verify", {**row, "response": response(said("no idea"))})).body
    assert (wrong["reward"], wrong["extracted_answer"]) == (0.0, None)


async def test_an_answer_inside_reasoning_does_not_count() -> None:
    _, calls = host_environment(MCQA, MCQASettings())
    reasoning = {"type": "reasoning", "id": "r", "summary": [{"type": "summary_text", "text": r"\boxed{B}"}]}
    body = {**example_rows("mcqa")[0], "response": response(reasoning, said("hm"))}
    assert (await calls.call("env", "/verify", body)).body["reward"] == 0.0


async def test_the_server_may_force_a_grading_mode() -> None:
    row = example_rows("mcqa")[0]
    body = {**row, "response": response(said("**Answer:** B"))}
    for mode, reward in ((None, 0.0), ("lenient_answer_colon_md", 1.0)):
        _, calls = host_environment(MCQA, MCQASettings(grading_mode=mode))
        assert (await calls.call("env", "/verify", body)).body["reward"] == reward


async def test_a_row_with_a_broken_pattern_is_refused_under_strict_scoring() -> None:
    _, calls = host_environment(MCQA, MCQASettings(scoring="strict"))
    row = {**example_rows("mcqa")[0], "template_metadata": {"output_regex": "(unclosed"}}
    reply = await calls.call("env", "/verify", {**row, "response": response(said("B"))})
    assert reply.status == 422
    assert "invalid regular expression" in str(reply.body)


async def test_multi_step_rules() -> None:
    _, calls = host_environment(ExampleMultiStep)
    row = example_rows("example_multi_step")[0]
    expected, mine = row["expected_synonym_values"], row["minefield_label_value"]
    value = await calls.call("env", "/get_synonym_value", {"synonym": row["expected_synonyms"][0]})
    assert value.body == {"synonym_value": expected[0]}
    cases: list[tuple[list[Any], dict[str, Any]]] = [
        (
            [called("extract_synonym_values", {"synonym_values": expected})],
            {"reward": 1.0, "accuracy": True, "set_overlap": 1.0},
        ),
        (
            [called("extract_synonym_values", {"synonym_values": expected[::-1]})],
            {"reward": 0.0, "set_overlap": 1.0, "order_instruction_following_failure": True},
        ),
        (
            [called("extract_synonym_values", {"synonym_values": [expected[0], mine]})],
            {"reward": 0.0, "set_overlap": 0.5, "original_term_minefield_hit": True},
        ),
        (
            [
                called("extract_synonym_values", {"synonym_values": [1]}),
                called("extract_synonym_values", {"synonym_values": expected}),
            ],
            {"reward": 1.0},
        ),
        (
            [called("extract_synonym_values", {"synonym_values": "nonsense"})],
            {"reward": 0.0, "parsed_synonym_values": []},
        ),
        ([said("done")], {"reward": 0.0, "set_overlap": 0.0}),
    ]
    for output, wanted in cases:
        found = (await calls.call("env", "/verify", {**row, "response": response(*output)})).body
        assert {key: found[key] for key in wanted} == wanted


async def test_the_counter_counts_for_each_rollout() -> None:
    _, calls = host_environment(ExampleSessionState)
    row = {**example_rows("example_session_state_mgmt")[0], "initial_count": 2, "expected_count": 7}
    for add, reward in ((5, 1.0), (4, 0.0)):
        scope = Scope()
        await calls.call("env", "/seed_session", row, scope)
        await calls.call("env", "/increment_counter", {"count": add}, scope)
        assert (await calls.call("env", "/get_counter_value", {}, scope)).body == {"count": 2 + add}
        verdict = await calls.call("env", "/verify", {**row, "response": response(said("ok"))}, scope)
        assert verdict.body["reward"] == reward


@pytest.mark.parametrize(
    "name", sorted(path.parent.parent.name for path in BUILTIN.glob("resources_servers/*/data/example.jsonl"))
)
def test_example_rows_are_five_or_more_and_valid(name: str, configure: Callable[..., Config]) -> None:
    rows = example_rows(name)
    assert len(rows) >= 5
    assert len({json.dumps(row) for row in rows}) == len(rows)
    for row in rows:
        validate_params(row["responses_create_params"])
    assert (BUILTIN / "resources_servers" / name / "README.md").exists()


@pytest.mark.parametrize(
    ("name", "server_class"),
    [
        ("example_single_tool_call", ExampleSingleToolCall),
        ("example_multi_step", ExampleMultiStep),
        ("example_session_state_mgmt", ExampleSessionState),
    ],
)
def test_tools_in_example_rows_are_the_servers_own(name: str, server_class: Any) -> None:
    server, _ = host_environment(server_class)
    declared = [found.declaration() for found in server.tools.values()]
    for row in example_rows(name):
        assert row["responses_create_params"]["tools"] == declared
