"""Grades a reply by the rules of a scoring."""

from __future__ import annotations

from typing import Any

from gymnast.builtin.resources_servers.calendar import nemo_gym_rules, strict_rules
from gymnast.kit import Scoring


def grade(text: str, expected: dict[str, Any], scoring: Scoring) -> str:
    """`pass`, or the first reason why not."""
    return strict_rules.grade(text, expected) if scoring == "strict" else nemo_gym_rules.grade(text, expected)
