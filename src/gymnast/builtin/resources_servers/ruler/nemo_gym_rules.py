"""Scores recall as NeMo Gym does: expected strings anywhere in the answer, in any case. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from gymnast.builtin.response_texts import stated_text
from gymnast.kit import JsonObject


def score(response: JsonObject, expected: Sequence[str], *, any_of: bool) -> float:
    """The share of the expected strings that the answer contains, or 1.0 if it contains any of them."""
    answer = answer_text(response).lower()
    hits = [1.0 if string.lower() in answer else 0.0 for string in expected]
    return max(hits) if any_of else sum(hits) / len(hits)


def answer_text(response: JsonObject) -> str:
    """The `output_text` parts of all messages; refusals are not an answer."""
    if (stated := stated_text(response)) is not None:
        return stated.strip()
    parts = [part for item in response["output"] if item.get("type", "message") == "message" for part in _parts(item)]
    return "".join(parts).strip()


def _parts(item: JsonObject) -> list[str]:
    content = item.get("content")
    if isinstance(content, str):
        return [content] if item.get("role") == "assistant" else []
    return [part["text"] for part in content or () if part.get("type") == "output_text"]
