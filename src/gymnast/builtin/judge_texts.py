"""Which text of a judge's response NeMo Gym reads. Environments differ: the last part only, or all messages."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gymnast.kit import JsonObject


def last_part(response: JsonObject) -> str:
    """The last part of the last item, if that is a message; what comes before is not read."""
    item = response["output"][-1] if response["output"] else {}
    content = item.get("content") if item.get("type", "message") == "message" else None
    return (_texts(content[-1:]) or [""])[0] if isinstance(content, list) else ""


def all_messages(response: JsonObject) -> str:
    """The parts of all assistant messages, as lines."""
    messages = (item for item in response["output"] if item.get("type", "message") == "message")
    contents = (item.get("content") for item in messages if item.get("role", "assistant") == "assistant")
    return "\n".join(filter(None, map(_as_lines, contents)))


def _as_lines(content: object) -> str:
    if isinstance(content, str):
        return content.strip()
    texts = _texts(content) if isinstance(content, list) else []
    return "\n".join(text.strip() for text in texts if text.strip())


def _texts(parts: list[JsonObject]) -> list[str]:
    """What a model wrote; input parts are not read."""
    return [part["text"] for part in parts if part.get("type") == "output_text" and isinstance(part.get("text"), str)]
