r"""Finds the answer in a model's text: `<answer>` tags, then `\boxed{…}`, then the rest. Pure, linear."""

from __future__ import annotations

import re
from typing import Final

from gymnast.kit import last_boxed, unwrap_text

_OPEN, _CLOSE, _BOX = "<answer>", "</answer>", "\\boxed{"
_LABEL: Final = re.compile(r"\**(?:the\s+)?(?:final\s+)?answer(?:\s+is)?\s*\**\s*:\s*", re.IGNORECASE)


def nemo_gym_answer(text: str) -> str:
    r"""NeMo Gym's rule: the last pair of tags, else the first `\boxed{}` up to its first brace, else all text."""
    answer, start = None, text.find(_OPEN)
    while start >= 0 and (end := text.find(_CLOSE, start)) >= 0:
        answer, start = text[start + len(_OPEN) : end], text.find(_OPEN, end)
    return (_first_box(text) if answer is None else answer).strip()


def _first_box(text: str) -> str:
    """The content of the first box that is not empty; the whole text if there is none."""
    start = text.find(_BOX)
    while start >= 0 and (end := text.find("}", start)) >= 0:
        if content := text[start + len(_BOX) : end]:
            return content
        start = text.find(_BOX, end)
    return text


def strict_answer(text: str, *, last_line: bool) -> str | None:
    """Our own rule, after thoughts: the last pair of tags, the last box or, with `last_line`, the last line."""
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
