r"""Finds the answer in a model's text: `<answer>` tags, then `\boxed{…}`, then the last line. Pure, linear."""

from __future__ import annotations

import re
from typing import Final

from gymnast.kit import last_boxed, unwrap_text

_OPEN, _CLOSE = "<answer>", "</answer>"
_LABEL: Final = re.compile(r"\**(?:the\s+)?(?:final\s+)?answer(?:\s+is)?\s*\**\s*:\s*", re.IGNORECASE)


def extract_answer(text: str, *, last_line: bool) -> str | None:
    """The answer of a text: in its last pair of tags, its last box or, with `last_line`, its last line."""
    reply = text.rpartition("</think>")[2]
    end = reply.rfind(_CLOSE)
    start = reply.rfind(_OPEN, 0, end) if end >= 0 else -1
    if start >= 0:
        return reply[start + len(_OPEN) : end].strip()
    box = last_boxed(reply)
    if box is not None:
        return unwrap_text(box)
    line = reply.strip().rpartition("\n")[2].strip() if last_line else ""
    label = _LABEL.match(line)
    return line[label.end() :].strip("* ") or None if label else line or None
