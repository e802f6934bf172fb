"""Thoughts in <think> tags."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from gymnast.tokens.families.family import Tag, TaggedText, find_tag, is_blank, to_text

if TYPE_CHECKING:
    from collections.abc import Sequence

OPEN: Final = "<think>"
CLOSE: Final = "</think>"
_OPEN_TAG: Final = Tag(OPEN)
UNCLOSED: Final = "the thought was never closed"


@dataclass(frozen=True, slots=True)
class Thought:
    """The leading thought of a turn, and the rest of the turn."""

    reasoning: str | None
    rest: TaggedText
    is_open: bool = False


def split_thought(pieces: TaggedText, *, in_thought: bool) -> Thought:
    """Split off the leading thought. `in_thought`: the prompt has already opened it.

    A closing tag without an opening one ends a thought that the prompt opened. Later thoughts are content.
    """
    start = _find_opening_end(pieces)
    end = find_tag(pieces, CLOSE, start or 0)
    if end is None:
        if start is None and not in_thought:
            return Thought(None, list(pieces))
        return Thought(to_text(pieces[start or 0 :]).strip("\n"), [], is_open=True)
    return Thought(to_text(pieces[start or 0 : end]).strip("\n"), _without_leading_newlines(pieces[end + 1 :]))


def _find_opening_end(pieces: Sequence[str | Tag]) -> int | None:
    """The index after an opening tag that only whitespace precedes."""
    for index, piece in enumerate(pieces):
        if piece == _OPEN_TAG:
            return index + 1
        if not is_blank(piece):
            return None
    return None


def _without_leading_newlines(pieces: TaggedText) -> TaggedText:
    if pieces and isinstance(pieces[0], str):
        first = pieces[0].lstrip("\n")
        return [first, *pieces[1:]] if first else pieces[1:]
    return pieces
