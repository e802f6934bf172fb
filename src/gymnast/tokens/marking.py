"""Where each character of a rendered conversation came from, found by marks that went through the template with it.

A mark stands after the first and before the last character of a given text, never at its edge, so that templates trim
as they always do.
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, Final

from gymnast.types.tokens import Source

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gymnast.types.json import JsonObject


class Kind(IntEnum):
    """Whose text it is. Calls count apart: losing one is worse than losing a thought."""

    SYSTEM = 0
    USER = 1
    TOOL = 2
    ASSISTANT = 3
    CALL = 4


MARKS_NEEDED: Final = 2 * len(Kind) + 2
"""An opening and a lonely mark for each kind, a closing one, and the breaker of the shield."""

_SOURCES: Final = {
    Kind.SYSTEM: Source.SYSTEM,
    Kind.USER: Source.USER,
    Kind.TOOL: Source.TOOL,
    Kind.ASSISTANT: Source.ASSISTANT,
    Kind.CALL: Source.ASSISTANT,
}
_ROLES: Final = {
    "system": Kind.SYSTEM,
    "developer": Kind.SYSTEM,
    "user": Kind.USER,
    "tool": Kind.TOOL,
    "ipython": Kind.TOOL,
    "assistant": Kind.ASSISTANT,
}


@dataclass(frozen=True, slots=True)
class Clean:
    """Text without marks, and from which place on it has which source."""

    text: str
    starts: tuple[tuple[int, Source], ...]


class Marks:
    """The private-use characters of one rendering."""

    def __init__(self, characters: str) -> None:
        self.breaker = characters[0]
        self._close = characters[1]
        self._opens = characters[2 : 2 + len(Kind)]
        self._lonely = characters[2 + len(Kind) : MARKS_NEEDED]
        self.placed = dict.fromkeys(Kind, 0)
        """How many texts of each kind were marked."""
        self._all = frozenset(characters)
        self._pieces = re.compile(f"([{characters}])")
        self._marks = re.compile(f"[{characters[1:]}]")

    def message(self, message: JsonObject, tags: re.Pattern[str]) -> JsonObject:
        """A message whose texts are marked. Tags that an assistant may write are left whole."""
        kind = _ROLES.get(message["role"], Kind.USER)
        marked = dict(message)
        for key in ("content", "reasoning_content", "thinking"):
            if isinstance(text := message.get(key), str):
                marked[key] = self._around_tags(text, kind, tags) if kind is Kind.ASSISTANT else self._text(text, kind)
        if "tool_calls" in message:
            marked["tool_calls"] = [self._call(call) for call in message["tool_calls"]]
        return marked

    def lost(self, text: str) -> set[Kind]:
        """Kinds of which the rendered text has fewer than were marked."""
        found = Counter(self._marks.findall(text))
        return {kind for kind in Kind if found[self._opens[kind]] + found[self._lonely[kind]] < self.placed[kind]}

    def without_marks(self, text: str) -> str:
        """The text as a rendering without marks would be: the shield stays."""
        return self._marks.sub("", text)

    def clean(self, text: str) -> Clean:
        """Takes marks and shield out of text without control tokens, and tells where the sources change."""
        kept: list[str] = []
        starts: list[tuple[int, Source]] = []
        length, ends_at = 0, -1
        for piece in self._pieces.split(text):
            if piece not in self._all:
                kept.append(piece)
                length += len(piece)
                if 0 <= ends_at < length:
                    starts.append((ends_at + 1, Source.TEMPLATE))
                    ends_at = -1
            elif (kind := self._opens.find(piece)) >= 0:
                starts.append((max(0, length - 1), _SOURCES[Kind(kind)]))
            elif (kind := self._lonely.find(piece)) >= 0:
                starts += [(max(0, length - 1), _SOURCES[Kind(kind)]), (length, Source.TEMPLATE)]
            elif piece == self._close:
                ends_at = length
        return Clean("".join(kept), tuple(starts))

    def _text(self, text: str, kind: Kind) -> str:
        first = next((at for at, character in enumerate(text) if not self._is_edge(character)), None)
        if first is None:
            return text
        self.placed[kind] += 1
        last = next(at for at in range(len(text) - 1, -1, -1) if not self._is_edge(text[at]))
        if first == last:
            return text[: first + 1] + self._lonely[kind] + text[first + 1 :]
        opened = text[: first + 1] + self._opens[kind]
        return opened + text[first + 1 : last] + self._close + text[last:]

    def _is_edge(self, character: str) -> bool:
        return character.isspace() or character == self.breaker

    def _around_tags(self, text: str, kind: Kind, tags: re.Pattern[str]) -> str:
        pieces, at = [], 0
        for tag in tags.finditer(text):
            pieces += [self._text(text[at : tag.start()], kind), tag[0]]
            at = tag.end()
        return "".join([*pieces, self._text(text[at:], kind)])

    def _call(self, call: JsonObject) -> JsonObject:
        function = dict(call["function"])
        function["name"] = self._text(function["name"], Kind.CALL)
        if isinstance(function.get("arguments"), dict):
            function["arguments"] = {
                key: self._text(value, Kind.ASSISTANT) if isinstance(value, str) else value
                for key, value in function["arguments"].items()
            }
        return {**call, "function": function}


def sources_of(starts: Sequence[int], clean: Clean) -> list[tuple[Source, int]]:
    """Runs of tokens of one source, from the places where the tokens begin."""
    if not clean.starts:
        return [(Source.TEMPLATE, len(starts))] if starts else []
    runs: list[tuple[Source, int]] = []
    source, changes = Source.TEMPLATE, iter(clean.starts)
    end = (sys.maxsize, Source.TEMPLATE)  # whatever a tokenizer says, nothing begins there
    at, following = next(changes)
    for start in starts:
        while start >= at:
            source, (at, following) = following, next(changes, end)
        append_run(runs, source, 1)
    return runs


def append_run(runs: list[tuple[Source, int]], source: Source, count: int) -> None:
    """Adds to the last run if it has the same source."""
    if runs and runs[-1][0] is source:
        runs[-1] = (source, runs[-1][1] + count)
    elif count:
        runs.append((source, count))
