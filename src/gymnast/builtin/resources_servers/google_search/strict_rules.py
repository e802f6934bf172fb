"""The option in an answer, strictly: the last box of the final message, if it contains one option. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from gymnast.kit import JsonObject, last_boxed, message_text, unwrap_text

_THINKING: Final = re.compile(r"</think(?:ing)?>", re.IGNORECASE)
_UNCLOSED: Final = re.compile(r"<think(?:ing)?>.*", re.IGNORECASE | re.DOTALL)
_DECORATED: Final = re.compile(r"[\s(\[{*$]*([A-Za-z])[\s)\]}*$.:]*")


def find_option(output: Sequence[JsonObject]) -> str | None:
    """The content of the last complete box, or None; a rollout that ends with a tool call has no answer."""
    turns = [item for item in output if item.get("type", "message") != "reasoning"]
    last = turns[-1] if turns else {}
    if last.get("type", "message") != "message" or last.get("role") != "assistant":
        return None
    box = last_boxed(_UNCLOSED.sub("", _THINKING.split(message_text(last))[-1]))
    return None if box is None else unwrap_text(box).strip()


def same_option(option: str, expected: str) -> bool:
    """Whether both are the same letter, or the same text."""
    return _letter(option) == _letter(expected)


def _letter(text: str) -> str:
    match = _DECORATED.fullmatch(text)
    return match[1].upper() if match else " ".join(text.split())
