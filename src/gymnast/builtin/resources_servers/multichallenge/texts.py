"""What the judge is shown, and what it answered: texts without thinking, the conversation, verdicts. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final

from gymnast.kit import JsonObject, Labels, message_text

from .rubric import Answer

_THINKING: Final = ("think", "thinking")


def last_message(output: Sequence[JsonObject]) -> str:
    """The text of the last assistant message, its parts as lines, without thinking.

    Parts of an input have no text, as in NeMo Gym.
    """
    for item in reversed(output):
        if item.get("type", "message") == "message" and item.get("role") == "assistant":
            content = item.get("content") or ()
            parts = [{"text": content}] if isinstance(content, str) else content
            texts = [part.get("text") for part in parts if part.get("type") != "input_text"]
            return remove_thinking("\n".join(text for text in texts if isinstance(text, str)).strip())
    return ""


def remove_thinking(text: str) -> str:
    """The text without closed blocks, then without what precedes a closing tag that nothing opened."""
    for tag in _THINKING:
        text = _remove_blocks(text, f"<{tag}>", f"</{tag}>")
    for tag in _THINKING:
        before, closing, after = text.partition(f"</{tag}>")
        text = after if closing else before
    return text.strip()


def _remove_blocks(text: str, opening: str, closing: str) -> str:
    parts, at = [], 0
    while (start := text.find(opening, at)) >= 0 and (end := text.find(closing, start + len(opening))) >= 0:
        parts.append(text[at:start])
        at = end + len(closing)
    return "".join([*parts, text[at:]])


def cut_open_thinking(text: str) -> str:
    """The text before a block that was never closed: the model did not come to its answer."""
    return re.split("<think(?:ing)?>", text, maxsplit=1)[0].strip()


def show_messages(messages: Sequence[Any]) -> str:
    """A conversation as NeMo Gym shows it: each message with its role, except thinking."""
    shown = [(message.get("role", "unknown"), message.get("content", "")) for message in messages]
    return "\n\n".join(f"[{role.upper()}]: {content}" for role, content in shown if role != "thinking")


def show_input(value: str | Sequence[JsonObject]) -> str:
    """The row's own conversation, for rows without `context`."""
    items = [{"role": "user", "content": value}] if isinstance(value, str) else value
    return "\n\n".join(f"[{item['role'].upper()}]: {message_text(item)}" for item in items if item.get("role"))


def find_verdict(text: str, labels: Labels) -> Answer | None:
    """The last label in the judge's text."""
    yes, no = text.rfind(labels.equal), text.rfind(labels.not_equal)
    if yes < 0 and no < 0:
        return None
    return "YES" if yes > no else "NO"


def find_loose_verdict(text: str, labels: Labels) -> Answer | None:
    """The last label; without one, YES or NO anywhere in the last line, even inside words such as NOTHING."""
    last_line = text.strip().split("\n")[-1].upper()
    loose: Answer | None = "YES" if "YES" in last_line else "NO" if "NO" in last_line else None
    return find_verdict(text, labels) or loose
