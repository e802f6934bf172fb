"""Keeps given text text: what spells a control token, wholly or in part, is broken by a private-use character.

The character goes through a template like any letter and is taken out when the template's own control tokens have been
found. Half-spelled tokens are broken as well: a template could complete them.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from gymnast.tokens.spelling import literal_pattern

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

# Words that templates compare with: they are never broken, and no text of somebody else can hide in them.
_STRUCTURE: Final = frozenset(
    {"system", "developer", "user", "assistant", "tool", "ipython", "function", "text", "type", "role", "content"}
    | {"string", "number", "integer", "boolean", "object", "array", "null", "name", "description", "parameters"}
    | {"properties", "required", "arguments", "tool_calls", "reasoning_content", "thinking", "id", "tool_call_id"}
    | {"items", "enum", "default", "strict", "title", "anyOf", "oneOf", "allOf", "nullable", "json", "return"}
)
_PRIVATE: Final = re.compile("[\U0010f000-\U0010fffd]")
_FIRST_PRIVATE: Final = 0x10F000


def private_characters(count: int, values: Iterable[Any]) -> str:
    """So many private-use characters that occur nowhere in the values."""
    used = {character for value in values for text in _texts(value) for character in _PRIVATE.findall(text)}
    found: list[str] = []
    code = _FIRST_PRIVATE
    while len(found) < count:
        if chr(code) not in used:
            found.append(chr(code))
        code += 1
    return "".join(found)


def _texts(value: Any) -> Iterable[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, below in value.items():
            yield str(key)
            yield from _texts(below)
    elif isinstance(value, (list, tuple)):
        for below in value:
            yield from _texts(below)


class Shield:
    """Breaks spelled control tokens; those in `allowed` may stand. Not `partial`: only those that are spelled out."""

    def __init__(self, controls: Collection[str], allowed: Collection[str] = (), *, partial: bool = True) -> None:
        broken = [control for control in controls if control not in allowed]
        self._whole = re.compile(f"(?={literal_pattern(broken)})", re.DOTALL)
        halves = [(control, size) for control in broken for size in range(1, len(control))] if partial else []
        self._beginnings = _by_length(control[:size] for control, size in halves)
        self._endings = _by_length(control[size:] for control, size in halves)
        self._inside = "\0".join(broken) if partial else ""
        self._longest = max(map(len, broken), default=0)

    def text(self, text: str, breaker: str) -> str:
        """The text with every control token in it broken, whole ones and those that something else could complete."""
        if not text or text in _STRUCTURE:
            return text
        cuts = {match.start() + 1 for match in self._whole.finditer(text)}
        cuts |= {len(text) - size + 1 for size, known in self._beginnings.items() if text[-size:] in known}
        cuts |= {size - 1 for size, known in self._endings.items() if text[:size] in known}
        if len(text) < self._longest and text in self._inside:
            cuts.add(1)
        return _with_breaks(text, sorted(cuts), breaker) if cuts else text

    def value(self, value: Any, breaker: str) -> Any:
        """Every text in a JSON value, keys too."""
        if isinstance(value, str):
            return self.text(value, breaker)
        if isinstance(value, dict):
            return {self.text(str(key), breaker): self.value(below, breaker) for key, below in value.items()}
        if isinstance(value, (list, tuple)):
            return [self.value(below, breaker) for below in value]
        return value


def _with_breaks(text: str, cuts: list[int], breaker: str) -> str:
    return breaker.join(text[start:end] for start, end in zip([0, *cuts], [*cuts, len(text)], strict=True))


def _by_length(texts: Iterable[str]) -> dict[int, frozenset[str]]:
    grouped: dict[int, set[str]] = {}
    for text in texts:
        grouped.setdefault(len(text), set()).add(text)
    return {size: frozenset(known) for size, known in grouped.items()}
