"""Removes from an error body what the request contained: text of a row or a model is evidence of nothing."""

from __future__ import annotations

import re
from typing import Any, Final

_STEP: Final = 12
"""A quote of at least twice this many characters is found wherever it starts."""
_MAX_CHARS: Final = 2_000_000
_MAX_PLACES: Final = 8
"""A text that repeats itself must not take quadratic time."""
_NOT_TEXT: Final = frozenset(
    {"role", "type", "model", "tool_choice", "id", "call_id", "tool_call_id", "status", "format", "object", "encoding"}
)
"""Keys whose values are words of the API, which servers use in their own messages, too."""
_ECHO: Final = frozenset(
    {"input", "ctx", "failed_generation", "flagged_input", "body", "request", "messages", "prompt"}
)
"""Keys of error bodies that repeat what was sent or generated."""
_ECHO_TEXT: Final = re.compile(
    r"(input_value=).*?(?=, input_type=)|((?:'input'|\"input\"|'ctx'|\"ctx\"): ).*?(?=\}\s*[,\]]|$)", re.DOTALL
)
MASK: Final = "…"


def is_echo(key: str, value: Any) -> bool:
    """Whether a field of an error body repeats the request or a generation."""
    return key in _ECHO and not (key == "input" and isinstance(value, (int, float)))


def mask_quoted(text: str, request: Any) -> str:
    """`text` without what it repeats from `request`, a decoded JSON body."""
    text = _ECHO_TEXT.sub(lambda match: (match[1] or match[2]) + MASK, text)
    if request is None or not text:
        return text
    long, short = _texts_of(request)
    for value in short:
        for quote in "\"'`":
            text = text.replace(f"{quote}{value}{quote}", f"{quote}{MASK}{quote}")
    return _mask_long(text, "\0".join(long))


def _texts_of(request: Any) -> tuple[list[str], set[str]]:
    """The texts of a request: the long ones, and the short ones."""
    long: list[str] = []
    short: set[str] = set()
    stack: list[tuple[str, Any]] = [("", request)]
    size = 0
    while stack and size < _MAX_CHARS:
        key, value = stack.pop()
        if isinstance(value, dict):
            stack += value.items()
        elif isinstance(value, list):
            stack += [(key, entry) for entry in value]
        elif isinstance(value, str) and key not in _NOT_TEXT:
            size += len(value)
            if len(value) >= 2 * _STEP:
                long.append(value)
            elif len(value) > 3:
                short.add(value)
    return long, short


def _mask_long(text: str, source: str) -> str:
    """Mask what `text` and `source` have in common, if it is long enough not to be a coincidence."""
    if len(source) < 2 * _STEP:
        return text
    places: dict[str, list[int]] = {}
    for start in range(len(text) - _STEP + 1):
        known = places.setdefault(text[start : start + _STEP], [])
        if len(known) < _MAX_PLACES:
            known.append(start)
    spans: list[tuple[int, int]] = []
    covered = bytearray(len(text))
    for start in range(0, len(source) - _STEP + 1, _STEP):
        for place in places.get(source[start : start + _STEP], ()):
            if not covered[place]:
                left, right = _extend(text, place, source, start)
                covered[left:right] = b"\1" * (right - left)
                spans.append((left, right))
    return _cut(text, [span for span in spans if span[1] - span[0] >= 2 * _STEP - 1])


def _extend(text: str, place: int, source: str, start: int) -> tuple[int, int]:
    left = 0
    while left < min(place, start) and text[place - left - 1] == source[start - left - 1]:
        left += 1
    end = _STEP
    while place + end < len(text) and start + end < len(source) and text[place + end] == source[start + end]:
        end += 1
    return place - left, place + end


def _cut(text: str, spans: list[tuple[int, int]]) -> str:
    parts, position = [], 0
    for start, end in sorted(set(spans)):
        if end <= position:
            continue
        parts += [text[position : max(start, position)], MASK]
        position = end
    return "".join(parts) + text[position:]
