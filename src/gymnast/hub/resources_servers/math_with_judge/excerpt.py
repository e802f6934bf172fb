"""The part of a long text that can hold the answer."""

from __future__ import annotations

from typing import Final

LONGEST_WHOLE: Final = 32_768
"""Characters up to which a text is searched as a whole: math-verify takes seconds for a megabyte of `\\boxed`."""


def excerpt(text: str) -> str:
    r"""The end of a long text, and its last `\boxed` if that stands before."""
    if len(text) <= LONGEST_WHOLE:
        return text
    start, end = text.rfind("\\boxed"), len(text) - LONGEST_WHOLE
    if start < 0 or start >= end:
        return text[end:]
    if start + LONGEST_WHOLE >= end:
        return text[start:]
    return f"{text[start : start + LONGEST_WHOLE]}\n{text[end:]}"
