"""single_step_tool_use_with_argument_comparison: how arguments are compared, and what each step is called."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gymnast.builtin.resources_servers.single_step_tool_use_with_argument_comparison.actions import (
    StepRewardCategory as Category,
)
from gymnast.builtin.resources_servers.single_step_tool_use_with_argument_comparison.app import (
    SingleStepSettings,
    SingleStepToolUse,
)
from gymnast.builtin.resources_servers.single_step_tool_use_with_argument_comparison.strict_rules import (
    ToolCallComparatorConfig,
    mismatches,
)
from tests.helpers.environments import called, check_cases, collect_examples, response, said, started, thought

NAME = "single_step_tool_use_with_argument_comparison"
BOOK = {"bike": "E-17", "days": 2, "extras": ["helmet", "lock"], "note": None}
LOOSELY = {"days": 2.0, "bike": " e-17"}
EXPECTED = {"type": "function_call", "name": "book", "arguments": json.dumps(BOOK)}
MESSAGE = {"type": "message", "content": "whatever"}
STRICT = SingleStepSettings(scoring="strict")


def config(**values: Any) -> ToolCallComparatorConfig:
    return ToolCallComparatorConfig(**values)


@pytest.mark.parametrize(
    ("expected", "found", "settings", "wrong"),
    [
        ({"a": "X y"}, {"a": " x  Y "}, {}, []),
        ({"a": "X y"}, {"a": "x y"}, {"string_comparison": "exact"}, ["a"]),
        ({"a": "B"}, {"a": "В"}, {}, ["a"]),  # a Cyrillic letter that looks like B
        ({"a": "ﬁne"}, {"a": "fine"}, {}, []),  # a ligature
        ({"a": "I am ill today"}, {"a": "ill, today I am"}, {"string_comparison": "word_overlap"}, []),
        ({"a": "I am ill today"}, {"a": "I am fine"}, {"string_comparison": "word_overlap"}, ["a"]),
        ({"a": "!"}, {"a": "?"}, {"string_comparison": "word_overlap"}, ["a"]),
        ({"a": "one two"}, {"a": "one"}, {"string_comparison": "word_overlap", "min_word_overlap": 0.5}, []),
        ({"a": "x", "b": "x"}, {"a": "X", "b": "X"}, {"string_comparison_by_argument": {"b": "exact"}}, ["b"]),
        ({"a": "x"}, {"a": "X"}, {"string_comparison_by_argument": {"tool.a": "exact", "a": "normalized"}}, ["a"]),
        ({"a": 1}, {"a": 1.0}, {}, []),
        ({"a": 1}, {"a": True}, {}, ["a"]),
        ({"a": 1}, {"a": "1"}, {}, ["a"]),
        ({"a": 1}, {"a": " 1 "}, {"numbers_in_strings": True}, []),
        ({"a": "1.50"}, {"a": 1.5}, {"numbers_in_strings": True}, []),
        ({"a": "one"}, {"a": 1}, {"numbers_in_strings": True}, ["a"]),
        ({"a": 0.1}, {"a": 0.1 + 1e-12}, {}, []),
        ({"a": 100}, {"a": 101}, {}, ["a"]),
        ({"a": 4111111111111111}, {"a": 4111111111111112}, {}, ["a"]),
        ({"a": 100.0}, {"a": 101}, {"relative_tolerance": 0.02}, []),
        ({"a": 0}, {"a": 0.4}, {"absolute_tolerance": 0.5}, []),
        ({"a": 0}, {"a": 0.4}, {"relative_tolerance": 100.0}, []),
        ({"a": [1, 2]}, {"a": [2, 1]}, {}, ["a"]),
        ({"a": [1, 2]}, {"a": [2, 1]}, {"list_order_matters": False}, []),
        ({"a": [1, 1, 2]}, {"a": [1, 2, 2]}, {"list_order_matters": False}, ["a"]),
        ({"a": [1]}, {"a": [1, 1]}, {}, ["a"]),
        ({"a": {"x": "P", "y": None}}, {"a": {"x": "p"}}, {}, []),
        ({"a": {"x": 1}}, {"a": {"x": 1, "y": 2}}, {}, ["a"]),
        ({"a": None}, {}, {}, []),
        ({"a": None}, {}, {"null_is_missing": False}, ["a"]),
        ({"a": 1}, {}, {}, ["a"]),
        ({}, {"b": 1}, {}, ["b"]),
        ({}, {"b": 1}, {"allow_extra_arguments": True}, []),
        ({"a": 1}, {"a": 2}, {"ignored_arguments": ["a"]}, []),
        ({"a": 1, "b": 1}, {"a": 2, "c": 1}, {"ignored_arguments": ["tool.a", "other.b"]}, ["b", "c"]),
        ({"a": "x"}, {"a": ["x"]}, {}, ["a"]),
        ({"a": False}, {"a": None}, {}, ["a"]),
    ],
)
def test_arguments_are_compared(
    expected: dict[str, Any], found: dict[str, Any], settings: dict[str, Any], wrong: list[str]
) -> None:
    assert mismatches("tool", expected, found, config(**settings)) == wrong


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=8,
)
OBJECTS = st.dictionaries(st.text(max_size=4), JSON, max_size=4)
CONFIGS = st.builds(
    ToolCallComparatorConfig,
    string_comparison=st.sampled_from(["exact", "normalized", "word_overlap"]),
    numbers_in_strings=st.booleans(),
    list_order_matters=st.booleans(),
    null_is_missing=st.booleans(),
)


@given(OBJECTS, CONFIGS, st.randoms(use_true_random=False))
def test_arguments_equal_themselves_whatever_the_order_of_keys(
    arguments: dict[str, Any], settings: ToolCallComparatorConfig, chance: Any
) -> None:
    def shuffled(value: Any) -> Any:
        if isinstance(value, dict):
            items = [(name, shuffled(child)) for name, child in value.items()]
            chance.shuffle(items)
            return dict(items)
        return [shuffled(child) for child in value] if isinstance(value, list) else value

    assert mismatches("tool", arguments, shuffled(arguments), settings) == []


@given(OBJECTS, OBJECTS)
def test_comparing_goes_both_ways(one: dict[str, Any], other: dict[str, Any]) -> None:
    assert mismatches("tool", one, other, config()) == mismatches("tool", other, one, config())


@pytest.mark.parametrize(
    ("expected", "output", "category", "reward"),
    [
        (EXPECTED, [called("book", BOOK)], Category.EXPECTED_TOOL_CALL, 1),
        (
            EXPECTED,
            ["I book it.", called("book", {**LOOSELY, "extras": ["Helmet", "lock"]})],
            Category.EXPECTED_TOOL_CALL,
            1,
        ),
        (EXPECTED, [thought("hm"), called("book", BOOK)], Category.EXPECTED_TOOL_CALL, 1),
        (EXPECTED, [called("book", {**BOOK, "days": 3, "bike": "E-18"})], Category.ARGUMENT_VALUE_DIFFERENT, 0),
        (EXPECTED, [called("book", '{"bike": "E-17"')], Category.ARGUMENTS_DECODE_ERROR, 0),
        (EXPECTED, [called("book", "[1]")], Category.ARGUMENTS_DECODE_ERROR, 0),
        (EXPECTED, [called("Book", BOOK)], Category.UNEXPECTED_TOOL, 0),
        (EXPECTED, [called("book", BOOK), called("book", BOOK)], Category.FUNCTION_CALL_BATCH_LENGTH_DIFFERENT, 0),
        (EXPECTED, [json.dumps({"name": "book", "arguments": BOOK})], Category.NO_EXPECTED_TOOL_CALL, 0),
        (EXPECTED, [thought(json.dumps(BOOK))], Category.NO_ACTION_FOUND, 0),
        (EXPECTED, [" "], Category.NO_ACTION_FOUND, 0),
        (EXPECTED, [], Category.NO_ACTION_FOUND, 0),
        (MESSAGE, ["Which bike?"], Category.EXPECTED_CHAT_MESSAGE_FOUND, 1),
        (MESSAGE, ["One moment.", called("book", BOOK)], Category.NO_EXPECTED_CHAT_MESSAGE, 0),
        (MESSAGE, [thought("Which bike?")], Category.NO_ACTION_FOUND, 0),
        (MESSAGE, ["\n"], Category.NO_ACTION_FOUND, 0),
        ({**EXPECTED, "arguments": BOOK}, [called("book", BOOK)], Category.EXPECTED_TOOL_CALL, 1),
        ({"type": "function_call", "name": "stop"}, [called("stop", "")], Category.EXPECTED_TOOL_CALL, 1),
    ],
)
async def test_steps_are_named_and_scored(expected: Any, output: list[Any], category: Category, reward: int) -> None:
    async with started(SingleStepToolUse, STRICT) as subject:
        verdict = await subject.verify(
            {"responses_create_params": {"input": "q"}, "expected_action": expected}, *output
        )
    assert (verdict["reward"], verdict["category"]) == (reward, category)
    assert verdict["expected_action"].items() >= expected.items()
    assert verdict["mismatched_arguments"] == (
        ["bike", "days"] if category == Category.ARGUMENT_VALUE_DIFFERENT else []
    )


async def test_only_what_comes_before_the_first_tool_answer_is_the_step() -> None:
    row = {"responses_create_params": {"input": "q"}, "expected_action": EXPECTED}
    answer = {"type": "function_call_output", "call_id": "c", "output": "ok"}
    async with started(SingleStepToolUse, STRICT) as subject:
        assert (await subject.verify(row, called("book", BOOK), answer, called("pay", {}), "done"))["reward"] == 1
        assert (await subject.verify(row, called("find", {}), answer, called("book", BOOK)))["reward"] == 0


async def test_a_message_that_was_cut_off_is_none() -> None:
    row = {"responses_create_params": {"input": "q"}, "expected_action": MESSAGE}
    cut = {**response(said("Which bi")), "incomplete_details": {"reason": "max_output_tokens"}}
    async with started(SingleStepToolUse, STRICT) as subject:
        reply = await subject.calls.call("env", "/verify", {**row, "response": cut})
    assert (reply.body["reward"], reply.body["category"]) == (0.0, Category.NO_ACTION_FOUND)


async def test_more_calls_may_be_allowed() -> None:
    settings = SingleStepSettings(scoring="strict", tool_call_comparator_config=config(allow_extra_calls=True))
    row = {"responses_create_params": {"input": "q"}, "expected_action": EXPECTED}
    async with started(SingleStepToolUse, settings) as subject:
        assert (await subject.verify(row, called("find", {}), called("book", BOOK)))["reward"] == 1
        wrong = await subject.verify(row, called("find", {}), called("book", {}))
        assert wrong["category"] == Category.ARGUMENT_VALUE_DIFFERENT


@pytest.mark.parametrize(
    "action",
    [None, {"type": "dance"}, {"type": "function_call"}, {**EXPECTED, "arguments": "{"}, {**EXPECTED, "name": 3}],
)
async def test_rows_without_a_readable_action_are_refused(action: Any) -> None:
    async with started(SingleStepToolUse, STRICT) as subject:
        told = await subject.refusal({"responses_create_params": {"input": "q"}, "expected_action": action})
        assert "expected_action" in told


async def test_arguments_that_are_not_json_are_refused_only_if_the_tool_is_right() -> None:
    row = {"responses_create_params": {"input": "q"}, "expected_action": {**EXPECTED, "arguments": "{"}}
    async with started(SingleStepToolUse, SingleStepSettings()) as subject:
        assert (await subject.verify(row, "Done."))["category"] == Category.NO_EXPECTED_TOOL_CALL
        assert (await subject.verify(row, called("find", {})))["category"] == Category.UNEXPECTED_TOOL
        reply = await subject.calls.call("env", "/verify", {**row, "response": response(called("book", BOOK))})
        assert reply.status == 422


async def test_the_verdict_repeats_only_what_is_known_of_an_action() -> None:
    row = {"responses_create_params": {"input": "q"}, "expected_action": {**EXPECTED, "call_id": "c"}}
    async with started(SingleStepToolUse, SingleStepSettings()) as subject:
        assert "call_id" not in (await subject.verify(row, "Done."))["expected_action"]


async def test_verifier_cases() -> None:
    async with started(SingleStepToolUse, SingleStepSettings()) as subject:
        await check_cases(subject, NAME)


def test_unknown_settings_are_refused() -> None:
    with pytest.raises(ValueError, match="string_comparisons"):
        SingleStepSettings.model_validate({"tool_call_comparator_config": {"string_comparisons": "exact"}})


async def test_a_run_over_the_example_rows(tmp_path: Path) -> None:
    def call(name: str, **arguments: Any) -> dict[str, Any]:
        return {"tool_calls": [{"name": name, "arguments": arguments}]}

    replies = [
        call("find_bikes", date="2025-05-10", kind="cargo", station="harbour"),
        "Of course, one moment.",
        call("book_bike", bike_id="E-17", customer_id="C-204", date="2025-05-07", days=1, extras=["helmet"]),
        call("cancel_booking", booking_id="B-5531", reason="ill"),
        call("cancel_booking", booking_id="B-5602"),
        call("refund", booking_id="B-5480", amount=24.0),
        "Which booking do you mean?",
    ]
    strict = f"++{NAME}_resources_server.resources_servers.{NAME}.scoring=strict"
    records = await collect_examples(tmp_path, NAME, replies, strict)
    assert [(record["reward"], record["category"]) for record in records] == [
        (1.0, Category.EXPECTED_TOOL_CALL),
        (0.0, Category.NO_EXPECTED_TOOL_CALL),
        (0.0, Category.ARGUMENT_VALUE_DIFFERENT),
        (1.0, Category.EXPECTED_TOOL_CALL),
        (0.0, Category.UNEXPECTED_TOOL),
        (1.0, Category.EXPECTED_TOOL_CALL),
        (1.0, Category.EXPECTED_CHAT_MESSAGE_FOUND),
    ]
    assert records[2]["mismatched_arguments"] == ["days"]
    assert [item["type"] for item in records[0]["response"]["output"]] == ["function_call"]  # no tool was run
