"""The four grades of a proof, and how they are found in a text. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final

from gymnast.kit import JsonObject

POINTS: Final = {"correct": 7, "almost": 6, "partial": 1, "incorrect": 0}
_HIGH: Final = frozenset({"correct", "almost"})
_MARKS: Final = re.compile(r"[*_`.,;:!?()\[\]{}]+")
_THINKING: Final = ("<think>", "<thinking>")
_MAX_LINE: Final = 1_000
"""Characters at the end of the last line that are read."""


def join_messages(output: Sequence[JsonObject]) -> str:
    """The text of all assistant messages, parts as lines. Parts of an input have no text, as in NeMo Gym."""
    texts: list[Any] = []
    for item in output:
        if item.get("type", "message") == "message" and item.get("role") == "assistant":
            content = item.get("content") or []
            parts = [{"text": content}] if isinstance(content, str) else content
            texts += [part.get("text") for part in parts if part.get("type") != "input_text"]
    return "\n".join(text for text in texts if isinstance(text, str)).strip()


def last_word_grade(text: str) -> str | None:
    """The last word, without marks and in lower case, if it is a grade."""
    words = text.rsplit(None, 1)
    word = _MARKS.sub("", words[-1]).lower() if words else ""
    return word if word in POINTS else None


def strict_grade(text: str) -> str | None:
    """The same, unless the line has another grade, or `not` before it, or thinking was never closed."""
    if any(text.rfind(tag) > text.rfind(f"</{tag[1:]}") for tag in _THINKING):
        return None
    grade = last_word_grade(text)
    words = [_MARKS.sub("", word).lower() for word in text.rstrip().rpartition("\n")[2][-_MAX_LINE:].split()]
    others = {word for word in words if word in POINTS} - {grade}
    return None if others or words[-2:-1] == ["not"] else grade


def expected_grade(text: str | None) -> str | None:
    """A row's grade, or None if it is not one."""
    grade = (text or "").strip().lower()
    return grade if grade in POINTS else None


def is_same_half(one: str, other: str) -> bool:
    """Whether both grades are high (correct, almost) or both low."""
    return (one in _HIGH) == (other in _HIGH)


def distance(one: str, other: str) -> float:
    """The difference in points."""
    return float(abs(POINTS[one] - POINTS[other]))
