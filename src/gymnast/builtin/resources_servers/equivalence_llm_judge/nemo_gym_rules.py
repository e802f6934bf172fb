"""NeMo Gym's rules: which texts are compared, and whether a second question follows. Pure functions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from gymnast.kit import JsonObject


@dataclass(frozen=True, slots=True)
class Extraction:
    """How to find an answer."""

    pattern: Any
    """None for the whole message. What a row has instead of a text is refused when it is used."""
    has_own_pattern: bool
    """The row has a pattern, used or not: only then the whole message may be compared too."""
    is_long: bool
    """The expected answer is too long for the row's pattern: there is no second question."""


def find_expected(answer: str | None, metadata: dict[str, Any] | None) -> str:
    """The expected answer of a row or of its metadata, as written; empty if there is none."""
    if answer:
        return answer
    value = (metadata or {}).get("expected_answer")
    return "" if value is None else str(value)


def choose_pattern(
    own: Any, configured: str | None, expected: str, max_chars: int | None, *, use_own: bool
) -> Extraction:
    """The row's pattern before the configured one; a long answer is only compared as a whole if the row has one."""
    has_own = bool(own) and use_own
    is_long = has_own and max_chars is not None and len(expected) > max_chars
    pattern = (None if is_long else own) if has_own else configured
    return Extraction(pattern or None, has_own, is_long)


def last_message(output: Sequence[JsonObject]) -> str:
    """The text of the last assistant message; its parts are lines, those of an input left out. Empty without one."""
    messages = (item for item in reversed(output) if item.get("type", "message") == "message")
    content = next((item.get("content") for item in messages if item.get("role") == "assistant"), "")
    own = [part for part in content if part.get("type") != "input_text"] if isinstance(content, list) else content
    return join_parts(own)


def last_question(value: str | Sequence[JsonObject]) -> str:
    """The text of the last user message that has any. An input that is a text has no messages, so no question."""
    items = () if isinstance(value, str) else value
    contents = [item.get("content") for item in items if item.get("role") == "user"]
    return next((join_parts(content) for content in reversed(contents) if _has_text(content)), "")


def _has_text(content: Any) -> bool:
    """Whether it is a text, even an empty one, or has a part with one."""
    return isinstance(content, str) or any(isinstance(part.get("text"), str) for part in content or ())


def join_parts(content: Any) -> str:
    """The text of a message's content."""
    if isinstance(content, str):
        return content.strip()
    return "\n".join(part["text"] for part in content or () if isinstance(part.get("text"), str)).strip()
