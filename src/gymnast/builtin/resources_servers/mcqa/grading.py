"""Grades a text by the rules of a scoring."""

from __future__ import annotations

import string
from collections.abc import Sequence
from typing import Final, Literal

from gymnast.kit import Scoring

from . import nemo_gym_rules, strict_rules

Options = Sequence[tuple[str, str]]
_LETTERS: Final = dict.fromkeys(string.ascii_uppercase, "")


def grade(text: str, options: Options, scoring: Scoring, kind: Literal["mode", "pattern"], rule: str) -> str | None:
    """The letter that a named mode or a row's pattern finds, or None. Raises re.error for an invalid pattern."""
    if scoring == "strict":
        choices = dict(options) or _LETTERS
        if kind == "pattern":
            return strict_rules.grade_by_pattern(text, choices, rule)
        return strict_rules.grade_by_mode(text, choices, rule)
    if kind == "pattern":
        return nemo_gym_rules.by_pattern(text, options, rule)
    return nemo_gym_rules.RULES[rule](text, options)
