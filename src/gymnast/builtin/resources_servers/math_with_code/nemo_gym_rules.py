r"""NeMo Gym's rules: the last `\boxed{}` of the last message that has one, or of what a tool returned. Pure."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Final

from gymnast.kit import JsonObject, message_text

_BOX: Final = "\\boxed{"
_TOLERANCE: Final = 1e-6


def find_answer(output: Sequence[JsonObject]) -> str | None:
    """The final answer in the messages of an output, or in what its tools returned."""
    messages = [message_text(item) for item in output if _is_assistant_message(item)]
    results = [_standard_output(item["output"]) for item in output if item.get("type") == "function_call_output"]
    answers = (last_box(text) for texts in (messages, results) for text in reversed(texts))
    return next((answer for answer in answers if answer is not None), None)


def last_box(text: str) -> str | None:
    r"""What is in the last `\boxed{}`. None if that one is empty or has no end, whatever came before."""
    start = text.rfind(_BOX)
    if start < 0:
        return None
    start += len(_BOX)
    depth = 1
    for position in range(start, len(text)):
        depth += {"{": 1, "}": -1}.get(text[position], 0)
        if depth == 0:
            return text[start:position].strip() or None
    return None


def same_answer(answer: str, expected: str) -> bool:
    """Whether two answers are the same text without dollar signs and spaces, or numbers up to one millionth."""
    answer, expected = _plain(answer), _plain(expected)
    if answer == expected:
        return True
    try:
        number, right = float(answer), float(expected)
    except ValueError:
        return False
    return abs(number - right) < _TOLERANCE * max(1.0, abs(right))


def _is_assistant_message(item: JsonObject) -> bool:
    return (item.get("type", "message"), item.get("role", "assistant")) == ("message", "assistant")


def _standard_output(result: Any) -> str:
    if not isinstance(result, str):
        return ""
    try:
        stdout = json.loads(result).get("stdout", "")
    except (ValueError, AttributeError, RecursionError):
        return result
    return stdout if isinstance(stdout, str) else ""


def _plain(text: str) -> str:
    text = text.strip()
    if text.startswith("\\(") and text.endswith("\\)"):
        text = text[2:-2].strip()
    if text.startswith("$") and text.endswith("$") and len(text) > 1:
        text = text[1:-1].strip()
    if text.startswith("\\text{") and text.endswith("}"):
        text = text.removeprefix("\\text{")[:-1].strip()
    return " ".join(text.split())
