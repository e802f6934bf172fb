"""Finding the program in a model's answer, and reasoning that leaked into it. Pure functions."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

FENCE: Final = "```"
_THINKING: Final = re.compile(r"</?think(?:ing)?>", re.IGNORECASE)


def program_of(text: str) -> str | None:
    """What stands between the last two lines with a triple backtick; None when there are fewer than two."""
    lines = text.split("\n")
    fences = [number for number, line in enumerate(lines) if FENCE in line]
    if len(fences) < 2:
        return None
    return "\n".join(lines[fences[-2] + 1 : fences[-1]])


def leaked_reasoning_rate(messages: Sequence[str]) -> float:
    """The share of messages that carry thinking tags: reasoning belongs in items of its own."""
    if not messages:
        return 0.0
    return sum(bool(_THINKING.search(message)) for message in messages) / len(messages)
