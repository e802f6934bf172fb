r"""Finding the answer in a model's text: `<answer>` tags, then `\boxed{…}`, then the last line. Pure, linear."""

from __future__ import annotations

import re
from typing import Final

from gymnast.kit.extract import last_boxed, unwrap_text

_OPEN, _CLOSE = "<answer>", "</answer>"
_LABEL: Final = re.compile(r"\**(?:the\s+)?(?:final\s+)?answer(?:\s+is)?\s*\**\s*:\s*", re.IGNORECASE)


def answer_of(text: str, *, last_line: bool) -> str | None:
    """The answer a text gives: in its last pair of tags, else its last box, else (if wanted) its last line."""
    said = text.rpartition("</think>")[2]
    end = said.rfind(_CLOSE)
    start = said.rfind(_OPEN, 0, end) if end >= 0 else -1
    if start >= 0:
        return said[start + len(_OPEN) : end].strip()
    box = last_boxed(said)
    if box is not None:
        return unwrap_text(box)
    line = said.strip().rpartition("\n")[2].strip() if last_line else ""
    label = _LABEL.match(line)
    return line[label.end() :].strip("* ") or None if label else line or None
