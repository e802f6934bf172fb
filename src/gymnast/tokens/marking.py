"""Tracks the source of each character of a rendered conversation with marks that pass through the template.

Marks go after the first and before the last character of a text, never at its edges, so that templates trim as usual.
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


class TextKind(IntEnum):
    """Whose text it is. Calls are a separate kind: losing one is worse than losing a thought."""

    SYSTEM = 0
    USER = 1
    TOOL = 2
    ASSISTANT = 3
    CALL = 4


MARKS_NEEDED: Final = 2 * len(TextKind) + 2
"""An opening and a single mark for each kind, a closing one, and the separator that escapes control tokens."""

_SOURCES: Final = {
    TextKind.SYSTEM: Source.SYSTEM,
    TextKind.USER: Source.USER,
    TextKind.TOOL: Source.TOOL,
    TextKind.ASSISTANT: Source.ASSISTANT,
    TextKind.CALL: Source.ASSISTANT,
}
_ROLES: Final = {
    "system": TextKind.SYSTEM,
    "developer": TextKind.SYSTEM,
    "user": TextKind.USER,
    "tool": TextKind.TOOL,
    "ipython": TextKind.TOOL,
    "assistant": TextKind.ASSISTANT,
}


@dataclass(frozen=True, slots=True)
class CleanText:
    """Text without marks, and the positions where each source starts."""

    text: str
    starts: tuple[tuple[int, Source], ...]


class Marks:
    """The private-use characters of one rendering."""

    def __init__(self, characters: str) -> None:
        self.separator = characters[0]
        self._close = characters[1]
        self._opens = characters[2 : 2 + len(TextKind)]
        self._singles = characters[2 + len(TextKind) : MARKS_NEEDED]
        self.counts = dict.fromkeys(TextKind, 0)
        """The number of marked texts of each kind."""
        self._all = frozenset(characters)
        self._pieces = re.compile(f"([{characters}])")
        self._marks = re.compile(f"[{characters[1:]}]")

    def mark_message(self, message: JsonObject, tags: re.Pattern[str]) -> JsonObject:
        """Mark the texts of a message. Tags that an assistant may write stay intact."""
        kind = _ROLES.get(message["role"], TextKind.USER)
        marked = dict(message)
        for key in ("content", "reasoning_content", "thinking"):
            if isinstance(text := message.get(key), str):
                is_assistant = kind is TextKind.ASSISTANT
                marked[key] = self._mark_around_tags(text, kind, tags) if is_assistant else self._mark(text, kind)
        if "tool_calls" in message:
            marked["tool_calls"] = [self._mark_call(call) for call in message["tool_calls"]]
        return marked

    def lost_kinds(self, text: str) -> set[TextKind]:
        """The kinds with fewer texts in the rendering than were marked."""
        counts = Counter(self._marks.findall(text))
        return {
            kind for kind in TextKind if counts[self._opens[kind]] + counts[self._singles[kind]] < self.counts[kind]
        }

    def strip_marks(self, text: str) -> str:
        """Remove marks, but not the separators."""
        return self._marks.sub("", text)

    def clean(self, text: str) -> CleanText:
        """Remove marks and separators from text without control tokens, and find where the sources change."""
        texts: list[str] = []
        starts: list[tuple[int, Source]] = []
        length, ends_at = 0, -1
        for piece in self._pieces.split(text):
            if piece not in self._all:
                texts.append(piece)
                length += len(piece)
                if 0 <= ends_at < length:
                    starts.append((ends_at + 1, Source.TEMPLATE))
                    ends_at = -1
            elif (kind := self._opens.find(piece)) >= 0:
                starts.append((max(0, length - 1), _SOURCES[TextKind(kind)]))
            elif (kind := self._singles.find(piece)) >= 0:
                starts += [(max(0, length - 1), _SOURCES[TextKind(kind)]), (length, Source.TEMPLATE)]
            elif piece == self._close:
                ends_at = length
        return CleanText("".join(texts), tuple(starts))

    def _mark(self, text: str, kind: TextKind) -> str:
        first = next((index for index, character in enumerate(text) if not self._is_edge(character)), None)
        if first is None:
            return text
        self.counts[kind] += 1
        last = next(index for index in range(len(text) - 1, -1, -1) if not self._is_edge(text[index]))
        if first == last:
            return text[: first + 1] + self._singles[kind] + text[first + 1 :]
        opened = text[: first + 1] + self._opens[kind]
        return opened + text[first + 1 : last] + self._close + text[last:]

    def _is_edge(self, character: str) -> bool:
        return character.isspace() or character == self.separator

    def _mark_around_tags(self, text: str, kind: TextKind, tags: re.Pattern[str]) -> str:
        pieces, start = [], 0
        for tag in tags.finditer(text):
            pieces += [self._mark(text[start : tag.start()], kind), tag[0]]
            start = tag.end()
        return "".join([*pieces, self._mark(text[start:], kind)])

    def _mark_call(self, call: JsonObject) -> JsonObject:
        function = dict(call["function"])
        function["name"] = self._mark(function["name"], TextKind.CALL)
        if isinstance(function.get("arguments"), dict):
            function["arguments"] = {
                key: self._mark(value, TextKind.ASSISTANT) if isinstance(value, str) else value
                for key, value in function["arguments"].items()
            }
        return {**call, "function": function}


def source_runs(starts: Sequence[int], clean: CleanText) -> list[tuple[Source, int]]:
    """Group tokens into runs of one source, from the positions where the tokens start."""
    if not clean.starts:
        return [(Source.TEMPLATE, len(starts))] if starts else []
    runs: list[tuple[Source, int]] = []
    source, changes = Source.TEMPLATE, iter(clean.starts)
    end = (sys.maxsize, Source.TEMPLATE)  # beyond every token
    change, following = next(changes)
    for start in starts:
        while start >= change:
            source, (change, following) = following, next(changes, end)
        append_run(runs, source, 1)
    return runs


def append_run(runs: list[tuple[Source, int]], source: Source, count: int) -> None:
    """Append a run, merged with the last one if it has the same source."""
    if runs and runs[-1][0] is source:
        runs[-1] = (source, runs[-1][1] + count)
    elif count:
        runs.append((source, count))
