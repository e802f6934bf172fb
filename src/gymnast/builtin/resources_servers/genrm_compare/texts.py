"""What a comparison is about: the conversation, and the reasoning and answer of each response. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from gymnast.kit import JsonObject, message_text

NO_ANSWER: Final = "None"
"""What the judge sees of a response without text."""


def answer_of(response: Any, *, untyped: str = "message") -> str:
    """The text of all messages; none if a part has no text. `untyped` is the type of items that do not name theirs."""
    texts = [
        part.get("text", "")
        for item in _items(response, "message", untyped)
        for part in _objects(item.get("content"))
        if part.get("type") == "output_text"
    ]
    return "".join(texts) if all(isinstance(text, str) for text in texts) else ""


def answer_for_judge(response: Any, *, untyped: str = "message") -> str:
    """The answer as the judge sees it."""
    answer = answer_of(response, untyped=untyped)
    return answer if answer.strip() else NO_ANSWER


def without_untyped(response: Any) -> Any:
    """A response as NeMo Gym's `/compare` reads it, which passes over items that do not name their type."""
    output = response.get("output") if isinstance(response, dict) else None
    if not isinstance(output, list):
        return response
    return {**response, "output": [item for item in output if not isinstance(item, dict) or "type" in item]}


def reasoning_of(response: Any) -> str:
    """The summaries of all reasoning."""
    return "".join(
        part.get("text", "") for item in _items(response, "reasoning") for part in _objects(item.get("summary"))
    )


def history_as_nemo_gym(value: str | Sequence[JsonObject]) -> list[dict[str, str]]:
    """A row's input as NeMo Gym shows it: one message per item, empty if its content is not a plain text."""
    if isinstance(value, str):
        return [{"role": "user", "content": value}]
    contents = [(item.get("role", "user"), item.get("content")) for item in value]
    return [{"role": str(role), "content": content if isinstance(content, str) else ""} for role, content in contents]


def history(value: str | Sequence[JsonObject]) -> list[dict[str, str]]:
    """The messages of a row's input, with all of their text."""
    items = [{"role": "user", "content": value}] if isinstance(value, str) else value
    return [{"role": str(item["role"]), "content": message_text(item)} for item in items if item.get("role")]


def _items(response: Any, kind: str, untyped: str = "message") -> list[JsonObject]:
    output = response.get("output") if isinstance(response, dict) else None
    return [item for item in _objects(output) if item.get("type", untyped) == kind]


def _objects(value: Any) -> list[JsonObject]:
    return [entry for entry in value if isinstance(entry, dict)] if isinstance(value, list) else []
