"""Thoughts in <think> tags."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from gymnast.tokens.families.family import Script, Tag, index_of, is_blank, written

if TYPE_CHECKING:
    from collections.abc import Sequence

OPEN: Final = "<think>"
CLOSE: Final = "</think>"
UNCLOSED: Final = "the thought was never closed"


@dataclass(frozen=True, slots=True)
class Thought:
    """A thought at the beginning of a turn, and the rest of the turn."""

    reasoning: str | None
    rest: Script
    is_open: bool = False


def split_thought(script: Script, *, in_thought: bool) -> Thought:
    """The leading thought. `in_thought`: the prompt has already opened one.

    A closing tag without an opening one ends a thought that the prompt opened. Thoughts further on are words.
    """
    start = _opening(script)
    end = index_of(script, CLOSE, start or 0)
    if end is None:
        if start is None and not in_thought:
            return Thought(None, list(script))
        return Thought(written(script[start or 0 :]).strip("\n"), [], is_open=True)
    return Thought(written(script[start or 0 : end]).strip("\n"), _without_leading_newlines(script[end + 1 :]))


def _opening(script: Sequence[str | Tag]) -> int | None:
    """The place after an opening tag that nothing but whitespace precedes."""
    for at, piece in enumerate(script):
        if piece == Tag(OPEN):
            return at + 1
        if not is_blank(piece):
            return None
    return None


def _without_leading_newlines(script: Script) -> Script:
    if script and isinstance(script[0], str):
        first = script[0].lstrip("\n")
        return [first, *script[1:]] if first else script[1:]
    return script
