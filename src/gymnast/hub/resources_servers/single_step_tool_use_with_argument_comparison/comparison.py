"""Whether two sets of arguments mean the same. Pure functions; every leniency has a setting."""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Mapping
from typing import Any, Literal

from pydantic import Field, NonNegativeFloat

from gymnast.kit.settings import Settings

StringComparison = Literal["exact", "normalized", "word_overlap"]


class ToolCallComparatorConfig(Settings):
    """How arguments are compared."""

    string_comparison: StringComparison = "normalized"
    """`exact`; `normalized`: case and the number of spaces do not matter; `word_overlap`: enough equal words."""
    min_word_overlap: float = Field(default=0.8, gt=0, le=1)
    """Equal words as a share of all different words of both texts."""
    string_comparison_by_argument: dict[str, StringComparison] = {}
    """Another rule for some arguments, by `argument` or `tool.argument`."""
    relative_tolerance: NonNegativeFloat = 1e-9
    absolute_tolerance: NonNegativeFloat = 0.0
    """How far numbers may lie apart; either tolerance is enough."""
    numbers_in_strings: bool = False
    """Whether '3' is the same as 3."""
    list_order_matters: bool = True
    null_is_missing: bool = True
    """Whether an argument that is null is the same as one that is left out."""
    ignored_arguments: list[str] = []
    """Arguments that are not compared, by `argument` or `tool.argument`."""
    allow_extra_arguments: bool = False
    """Whether the call may have arguments that are not expected."""
    allow_extra_calls: bool = False
    """Whether the model may make more calls in the same turn: then it is enough that one is the expected one."""


def mismatches(
    tool: str, expected: Mapping[str, Any], found: Mapping[str, Any], config: ToolCallComparatorConfig
) -> list[str]:
    """The names of the arguments that differ, in alphabetical order."""
    wanted, got = (_counted(tool, arguments, config) for arguments in (expected, found))
    names = wanted.keys() if config.allow_extra_arguments else wanted.keys() | got.keys()
    return sorted(
        name
        for name in names
        if name not in wanted or name not in got or not same(wanted[name], got[name], _rule(tool, name, config), config)
    )


def same(expected: Any, found: Any, rule: StringComparison, config: ToolCallComparatorConfig) -> bool:
    """Whether two JSON values mean the same."""
    if isinstance(expected, dict) and isinstance(found, dict):
        return _same_objects(expected, found, rule, config)
    if isinstance(expected, list) and isinstance(found, list):
        return _same_lists(expected, found, rule, config)
    if config.numbers_in_strings:
        expected, found = _as_number(expected), _as_number(found)
    if _is_number(expected) and _is_number(found):
        return math.isclose(
            expected, found, rel_tol=min(config.relative_tolerance, 1.0), abs_tol=config.absolute_tolerance
        )
    if isinstance(expected, str) and isinstance(found, str):
        return same_text(expected, found, rule, config.min_word_overlap)
    return type(expected) is type(found) and bool(expected == found)


def same_text(expected: str, found: str, rule: StringComparison, min_word_overlap: float) -> bool:
    """Whether two texts are the same by a rule. Look-alike letters of other alphabets stay different."""
    if expected == found:
        return True
    if rule == "exact":
        return False
    one, other = _normalized(expected), _normalized(found)
    if one == other or rule == "normalized":
        return one == other
    words, others = set(re.findall(r"\w+", one)), set(re.findall(r"\w+", other))
    return bool(words | others) and len(words & others) / len(words | others) >= min_word_overlap


def _counted(tool: str, arguments: Mapping[str, Any], config: ToolCallComparatorConfig) -> dict[str, Any]:
    """The arguments that count."""
    ignored = set(config.ignored_arguments)
    kept = {name: value for name, value in arguments.items() if not {name, f"{tool}.{name}"} & ignored}
    return {name: value for name, value in kept.items() if value is not None or not config.null_is_missing}


def _rule(tool: str, name: str, config: ToolCallComparatorConfig) -> StringComparison:
    special = config.string_comparison_by_argument
    return special.get(f"{tool}.{name}") or special.get(name) or config.string_comparison


def _same_objects(
    expected: dict[str, Any], found: dict[str, Any], rule: StringComparison, config: ToolCallComparatorConfig
) -> bool:
    if config.null_is_missing:
        expected = {name: value for name, value in expected.items() if value is not None}
        found = {name: value for name, value in found.items() if value is not None}
    return expected.keys() == found.keys() and all(
        same(value, found[name], rule, config) for name, value in expected.items()
    )


def _same_lists(
    expected: list[Any], found: list[Any], rule: StringComparison, config: ToolCallComparatorConfig
) -> bool:
    if len(expected) != len(found):
        return False
    if config.list_order_matters:
        return all(same(one, other, rule, config) for one, other in zip(expected, found, strict=True))
    left = list(found)
    for one in expected:
        match = next((number for number, other in enumerate(left) if same(one, other, rule, config)), None)
        if match is None:
            return False
        del left[match]
    return True


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _as_number(value: Any) -> Any:
    if isinstance(value, str) and re.fullmatch(r"\s*[+-]?\d{1,300}(\.\d{1,300})?\s*", value, re.ASCII):
        return float(value) if "." in value else int(value)
    return value


def _normalized(text: str) -> str:
    return " ".join(unicodedata.normalize("NFKC", text).casefold().split())
