"""Finds the program in a model's answer, and leaked reasoning. Pure functions."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

FENCE: Final = "```"
_THINKING: Final = re.compile(r"</?think(?:ing)?>", re.IGNORECASE)


def extract_program(text: str) -> str | None:
    """The text between the last two lines with a triple backtick; None if there are fewer than two."""
    lines = text.split("\n")
    fences = [number for number, line in enumerate(lines) if FENCE in line]
    if len(fences) < 2:
        return None
    return "\n".join(lines[fences[-2] + 1 : fences[-1]])


def leaked_reasoning_rate(messages: Sequence[str]) -> float:
    """The share of messages with thinking tags: reasoning belongs in separate items."""
    if not messages:
        return 0.0
    return sum(bool(_THINKING.search(message)) for message in messages) / len(messages)
