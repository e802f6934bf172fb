"""The part of a long text that may contain the answer."""

from __future__ import annotations

from typing import Final

MAX_WHOLE_CHARS: Final = 32_768
"""Longer texts are not searched as a whole: math-verify takes seconds for a megabyte of `\\boxed`."""


def excerpt(text: str) -> str:
    r"""The end of a long text, and its last `\boxed` if that comes earlier."""
    if len(text) <= MAX_WHOLE_CHARS:
        return text
    start, end = text.rfind("\\boxed"), len(text) - MAX_WHOLE_CHARS
    if start < 0 or start >= end:
        return text[end:]
    if start + MAX_WHOLE_CHARS >= end:
        return text[start:]
    return f"{text[start : start + MAX_WHOLE_CHARS]}\n{text[end:]}"
