"""Keeps untrusted text text: breaks the text of control tokens, whole or partial, with a private-use character.

The character passes through a template like any letter and is removed after the template's own control tokens have
been found. Partial tokens are broken too, because a template could complete them.
"""

from __future__ import annotations

import re
from itertools import count, islice
from typing import TYPE_CHECKING, Any, Final

from gymnast.tokens.literal_match import build_literal_pattern

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

# Words that templates compare with. They are never broken: no other text can hide in them.
_STRUCTURE: Final = frozenset(
    {"system", "developer", "user", "assistant", "tool", "ipython", "function", "text", "type", "role", "content"}
    | {"string", "number", "integer", "boolean", "object", "array", "null", "name", "description", "parameters"}
    | {"properties", "required", "arguments", "tool_calls", "reasoning_content", "thinking", "id", "tool_call_id"}
    | {"items", "enum", "default", "strict", "title", "anyOf", "oneOf", "allOf", "nullable", "json", "return"}
)
_PRIVATE: Final = re.compile("[\U0010f000-\U0010fffd]")
_FIRST_PRIVATE: Final = 0x10F000


def unused_private_chars(number: int, values: Iterable[Any]) -> str:
    """The first private-use characters that do not occur in the values."""
    used = {character for value in values for text in _texts(value) for character in _PRIVATE.findall(text)}
    unused = (character for code in count(_FIRST_PRIVATE) if (character := chr(code)) not in used)
    return "".join(islice(unused, number))


def _texts(value: Any) -> Iterable[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, child in value.items():
            yield str(key)
            yield from _texts(child)
    elif isinstance(value, (list, tuple)):
        for child in value:
            yield from _texts(child)


class ControlEscaper:
    """Breaks the text of control tokens, except `allowed` ones. Without `partial`, only that of whole tokens."""

    def __init__(self, controls: Collection[str], allowed: Collection[str] = (), *, partial: bool = True) -> None:
        escaped = [control for control in controls if control not in allowed]
        self._whole = re.compile(f"(?={build_literal_pattern(escaped)})", re.DOTALL)
        splits = [(control, size) for control in escaped for size in range(1, len(control))] if partial else []
        self._prefixes = _by_length(control[:size] for control, size in splits)
        self._suffixes = _by_length(control[size:] for control, size in splits)
        self._infixes = "\0".join(escaped) if partial else ""
        self._max_length = max(map(len, escaped), default=0)

    def escape_text(self, text: str, separator: str) -> str:
        """Break every control token in the text, and every part of one that other text could complete."""
        if not text or text in _STRUCTURE:
            return text
        cuts = {match.start() + 1 for match in self._whole.finditer(text)}
        cuts |= {len(text) - size + 1 for size, prefixes in self._prefixes.items() if text[-size:] in prefixes}
        cuts |= {size - 1 for size, suffixes in self._suffixes.items() if text[:size] in suffixes}
        if len(text) < self._max_length and text in self._infixes:
            cuts.add(1)
        return _break_at(text, sorted(cuts), separator) if cuts else text

    def escape_value(self, value: Any, separator: str) -> Any:
        """Escape every text in a JSON value, including keys."""
        if isinstance(value, str):
            return self.escape_text(value, separator)
        if isinstance(value, dict):
            return {
                self.escape_text(str(key), separator): self.escape_value(child, separator)
                for key, child in value.items()
            }
        if isinstance(value, (list, tuple)):
            return [self.escape_value(child, separator) for child in value]
        return value


def _break_at(text: str, cuts: list[int], separator: str) -> str:
    return separator.join(text[start:end] for start, end in zip([0, *cuts], [*cuts, len(text)], strict=True))


def _by_length(texts: Iterable[str]) -> dict[int, frozenset[str]]:
    grouped: dict[int, set[str]] = {}
    for text in texts:
        grouped.setdefault(len(text), set()).add(text)
    return {size: frozenset(group) for size, group in grouped.items()}
