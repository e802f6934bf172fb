"""Our own, stricter comparison of the arguments of two tool calls. Pure functions; every tolerance has a setting."""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Mapping
from typing import Any, Literal

from pydantic import Field, NonNegativeFloat

from .nemo_gym_rules import NemoGymComparison

StringComparison = Literal["exact", "normalized", "word_overlap"]


class ToolCallComparatorConfig(NemoGymComparison):
    """How arguments are compared under `scoring: strict`, and under `scoring: nemo_gym` by its base class."""

    string_comparison: StringComparison = "normalized"
    """`exact`; `normalized`: ignores case and the amount of white space; `word_overlap`: enough words in common."""
    min_word_overlap: float = Field(default=0.8, gt=0, le=1)
    """Minimum share of common words among all distinct words of both texts."""
    string_comparison_by_argument: dict[str, StringComparison] = {}
    """Rules for individual arguments, by `argument` or `tool.argument`."""
    relative_tolerance: NonNegativeFloat = 1e-9
    absolute_tolerance: NonNegativeFloat = 0.0
    """How much numbers may differ; either tolerance is enough. Two integers differ by the absolute one only."""
    numbers_in_strings: bool = False
    """Whether '3' equals 3."""
    list_order_matters: bool = True
    null_is_missing: bool = True
    """Whether a null argument equals a missing one."""
    ignored_arguments: list[str] = []
    """Arguments to ignore, by `argument` or `tool.argument`."""
    allow_extra_arguments: bool = False
    """Whether the call may have unexpected arguments."""
    allow_extra_calls: bool = False
    """Whether the model may make more calls in the same turn, as long as one is the expected one."""


def mismatches(
    tool: str, expected: Mapping[str, Any], actual: Mapping[str, Any], config: ToolCallComparatorConfig
) -> list[str]:
    """The names of the arguments that differ, in alphabetical order."""
    left, right = (_relevant(tool, arguments, config) for arguments in (expected, actual))
    names = left.keys() if config.allow_extra_arguments else left.keys() | right.keys()
    return sorted(
        name
        for name in names
        if name not in left or name not in right or not same(left[name], right[name], _rule(tool, name, config), config)
    )


def same(expected: Any, actual: Any, rule: StringComparison, config: ToolCallComparatorConfig) -> bool:
    """Whether two JSON values are equivalent."""
    if isinstance(expected, dict) and isinstance(actual, dict):
        return _same_objects(expected, actual, rule, config)
    if isinstance(expected, list) and isinstance(actual, list):
        return _same_lists(expected, actual, rule, config)
    if config.numbers_in_strings:
        expected, actual = _as_number(expected), _as_number(actual)
    if isinstance(expected, int) and isinstance(actual, int) and _is_number(expected) and _is_number(actual):
        return abs(expected - actual) <= config.absolute_tolerance
    if _is_number(expected) and _is_number(actual):
        return math.isclose(
            expected, actual, rel_tol=min(config.relative_tolerance, 1.0), abs_tol=config.absolute_tolerance
        )
    if isinstance(expected, str) and isinstance(actual, str):
        return same_text(expected, actual, rule, config.min_word_overlap)
    return type(expected) is type(actual) and bool(expected == actual)


def same_text(expected: str, actual: str, rule: StringComparison, min_word_overlap: float) -> bool:
    """Whether two texts are equal by a rule. Look-alike letters of other alphabets stay different."""
    if expected == actual:
        return True
    if rule == "exact":
        return False
    left, right = _normalize_text(expected), _normalize_text(actual)
    if left == right or rule == "normalized":
        return left == right
    words, others = set(re.findall(r"\w+", left)), set(re.findall(r"\w+", right))
    return bool(words | others) and len(words & others) / len(words | others) >= min_word_overlap


def _relevant(tool: str, arguments: Mapping[str, Any], config: ToolCallComparatorConfig) -> dict[str, Any]:
    ignored = set(config.ignored_arguments)
    kept = {name: value for name, value in arguments.items() if not {name, f"{tool}.{name}"} & ignored}
    return {name: value for name, value in kept.items() if value is not None or not config.null_is_missing}


def _rule(tool: str, name: str, config: ToolCallComparatorConfig) -> StringComparison:
    special = config.string_comparison_by_argument
    return special.get(f"{tool}.{name}") or special.get(name) or config.string_comparison


def _same_objects(
    expected: dict[str, Any], actual: dict[str, Any], rule: StringComparison, config: ToolCallComparatorConfig
) -> bool:
    if config.null_is_missing:
        expected = {name: value for name, value in expected.items() if value is not None}
        actual = {name: value for name, value in actual.items() if value is not None}
    return expected.keys() == actual.keys() and all(
        same(value, actual[name], rule, config) for name, value in expected.items()
    )


def _same_lists(
    expected: list[Any], actual: list[Any], rule: StringComparison, config: ToolCallComparatorConfig
) -> bool:
    if len(expected) != len(actual):
        return False
    if config.list_order_matters:
        return all(same(item, other, rule, config) for item, other in zip(expected, actual, strict=True))
    unmatched = list(actual)
    for item in expected:
        match = next((number for number, other in enumerate(unmatched) if same(item, other, rule, config)), None)
        if match is None:
            return False
        del unmatched[match]
    return True


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _as_number(value: Any) -> Any:
    if isinstance(value, str) and re.fullmatch(r"\s*[+-]?\d{1,300}(\.\d{1,300})?\s*", value, re.ASCII):
        return float(value) if "." in value else int(value)
    return value


def _normalize_text(text: str) -> str:
    return " ".join(unicodedata.normalize("NFKC", text).casefold().split())
