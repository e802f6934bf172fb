"""Which text of a policy's response NeMo Gym scores, where that is not the text of its messages."""

from __future__ import annotations

from gymnast.kit import JsonObject


def stated_text(response: JsonObject) -> str | None:
    """The response's own `output_text`, which is scored if the content of a message is a text instead of parts."""
    text = response.get("output_text")
    return text if isinstance(text, str) and any(map(_is_plain, response["output"])) else None


def _is_plain(item: JsonObject) -> bool:
    content = item.get("content") if item.get("type", "message") == "message" else None
    return isinstance(content, str) and content != ""
