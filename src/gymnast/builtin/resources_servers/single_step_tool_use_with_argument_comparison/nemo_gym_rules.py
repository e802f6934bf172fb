"""NeMo Gym's comparison of tool calls, to the letter. Pure functions."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from typing import Any, Literal

from gymnast.kit import Settings

from .actions import ExpectedToolCall, MadeCall, StepRewardCategory
from .matching import match_calls

RewardMode = Literal["binary_strict", "fractional", "f1"]


class NemoGymComparison(Settings):
    """How tool calls are compared under `scoring: nemo_gym`."""

    word_count_similarity_threshold: float = 0.1
    """Texts of two or more words are equal if their common words are this share of the words of both together; a text
    compared with itself has 0.5."""
    floating_point_comparison_threshold: float = 1e-6
    parallel_tool_call_rewarding: bool = False
    """Whether the number of calls matters. If not, the expected calls must be there, and others cost nothing."""
    allow_subset: bool = False
    """Where the number matters: whether fewer calls than expected can have a reward."""
    allow_superset: bool = False
    """Where the number matters: whether more calls than expected can have a reward."""
    parallel_tool_call_reward_mode: RewardMode = "binary_strict"
    """Where the number matters: the reward for a part of the calls."""


Grade = tuple[float, StepRewardCategory]


def compare_calls(expected: Sequence[ExpectedToolCall], made: Sequence[MadeCall], config: NemoGymComparison) -> Grade:
    """The reward and category of the calls made, in any order."""
    if len(expected) == len(made) == 1:
        failure = compare_call(expected[0], made[0], config)
        return (0.0, failure) if failure else (1.0, StepRewardCategory.EXPECTED_TOOL_CALL)
    if not _may_have_reward(len(expected), len(made), config):
        return 0.0, StepRewardCategory.FUNCTION_CALL_BATCH_LENGTH_DIFFERENT
    failures = [[compare_call(wanted, call, config) for call in made] for wanted in expected]
    partners = match_calls([[number for number, failure in enumerate(row) if failure is None] for row in failures])
    reward = _reward(len(partners), len(expected), len(made), config)
    if reward == 1.0:
        is_batch = len(expected) > 1
        category = StepRewardCategory.EXPECTED_TOOL_CALL_BATCH if is_batch else StepRewardCategory.EXPECTED_TOOL_CALL
        return reward, category
    alone = [number for number in range(len(expected)) if number not in partners.values()]
    if not alone or len(partners) == len(made):
        return reward, StepRewardCategory.FUNCTION_CALL_BATCH_LENGTH_DIFFERENT
    return reward, _closest_failure(failures[alone[0]])


def compare_call(expected: ExpectedToolCall, made: MadeCall, config: NemoGymComparison) -> StepRewardCategory | None:
    """Why a call is not the expected one, or None if it is."""
    if expected.name != made.name:
        return StepRewardCategory.UNEXPECTED_TOOL
    wanted = expected.parsed
    try:
        arguments = json.loads(made.arguments)
    except (ValueError, RecursionError):
        return StepRewardCategory.ARGUMENTS_DECODE_ERROR
    return compare_values(wanted, arguments, config)


def compare_values(expected: Any, actual: Any, config: NemoGymComparison) -> StepRewardCategory | None:
    """The first difference of two JSON values, or None."""
    if not isinstance(actual, type(expected)):  # so that true is an integer, and 1 is not a float
        return StepRewardCategory.ARGUMENT_VALUE_TYPE_DIFFERENT
    if isinstance(expected, dict):
        if expected.keys() != actual.keys():
            return StepRewardCategory.ARGUMENT_OBJECT_KEYS_DIFFERENT
        pairs = [(value, actual[name]) for name, value in expected.items()]
        return _first_difference(pairs, config)
    if isinstance(expected, list):
        if len(expected) != len(actual):
            return StepRewardCategory.ARGUMENT_LIST_LENGTH_DIFFERENT
        return _first_difference(list(zip(expected, actual, strict=True)), config)
    return None if _is_same(expected, actual, config) else StepRewardCategory.ARGUMENT_VALUE_DIFFERENT


def _first_difference(pairs: Sequence[tuple[Any, Any]], config: NemoGymComparison) -> StepRewardCategory | None:
    return next((found for left, right in pairs if (found := compare_values(left, right, config))), None)


def _is_same(expected: Any, actual: Any, config: NemoGymComparison) -> bool:
    if isinstance(expected, float):
        return bool(abs(actual - expected) < config.floating_point_comparison_threshold)
    if not isinstance(expected, str):
        return bool(expected == actual)
    words, others = (Counter(text.lower().split()) for text in (expected, actual))
    if words.total() < 2 or others.total() < 2:
        return bool(expected == actual)
    common = (words & others).total() / (words.total() + others.total())
    return common >= config.word_count_similarity_threshold


def _may_have_reward(expected: int, made: int, config: NemoGymComparison) -> bool:
    if expected == made or not config.parallel_tool_call_rewarding:
        return True
    return config.allow_subset if made < expected else config.allow_superset


def _reward(matched: int, expected: int, made: int, config: NemoGymComparison) -> float:
    if not config.parallel_tool_call_rewarding:
        return float(matched == expected)
    if config.parallel_tool_call_reward_mode == "f1":
        return 2 * matched / (expected + made)
    required = min(expected, made) if config.allow_subset else expected
    return matched / required if config.parallel_tool_call_reward_mode == "fractional" else float(matched == required)


def _closest_failure(failures: Sequence[StepRewardCategory | None]) -> StepRewardCategory:
    """The first reason other than another tool."""
    reasons = (failure for failure in failures if failure not in {None, StepRewardCategory.UNEXPECTED_TOOL})
    return next(reasons, None) or StepRewardCategory.UNEXPECTED_TOOL
