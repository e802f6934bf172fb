"""The name that Python 3.13, the oldest version that NeMo Gym runs on, suggests for an unknown argument. Pure.

Its interpreter adds the suggestion to the text of the error, which the model reads as the tool's reply. Older ones do
not, so that the same call would be answered differently.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable
from typing import Any, Final

_UNKNOWN: Final = re.compile(r"\(\) got an unexpected keyword argument '(.*)'\Z", re.DOTALL)
_MOVE_COST: Final = 2
_CASE_COST: Final = 1
_MAX_BYTES: Final = 40
"""Longer differences are not looked at."""


def describe_call_error(function: Callable[..., Any], error: Exception) -> str:
    """The text of an error of a call, with the suggestion if it is about an argument's name."""
    match = _UNKNOWN.search(str(error)) if isinstance(error, TypeError) else None
    if match is None:
        return str(error)
    suggestion = suggest(match[1], ["self", *inspect.signature(function).parameters])
    return f"{error}. Did you mean '{suggestion}'?" if suggestion else str(error)


def suggest(name: str, candidates: Iterable[str]) -> str | None:
    """The closest candidate of which a third of the characters, or fewer, would have to change."""
    best, best_distance = None, None
    for candidate in candidates:
        first, second = name.encode(), candidate.encode()
        allowed = (len(first) + len(second) + 3) * _MOVE_COST // 6
        if best_distance is not None:
            allowed = min(allowed, best_distance - 1)
        distance = _distance(first, second)
        if distance is not None and distance <= allowed:
            best, best_distance = candidate, distance
    return best


def _distance(first: bytes, second: bytes) -> int | None:
    """What the changes from one name to the other cost; None if they differ in too many places to be compared."""
    first, second = _trim(first, second)
    if not first or not second:
        return (len(first) + len(second)) * _MOVE_COST
    if max(len(first), len(second)) > _MAX_BYTES:
        return None
    above = [index * _MOVE_COST for index in range(len(first) + 1)]
    for row, other in enumerate(second, start=1):
        line = [row * _MOVE_COST]
        for column, byte in enumerate(first):
            moved = min(line[column], above[column + 1]) + _MOVE_COST
            line.append(min(moved, above[column] + _cost_of_replacing(byte, other)))
        above = line
    return above[-1]


def _trim(first: bytes, second: bytes) -> tuple[bytes, bytes]:
    """Both without what they have in common at their start and end."""
    start = 0
    while start < min(len(first), len(second)) and first[start] == second[start]:
        start += 1
    first, second = first[start:], second[start:]
    end = 0
    while end < min(len(first), len(second)) and first[-1 - end] == second[-1 - end]:
        end += 1
    return first[: len(first) - end], second[: len(second) - end]


def _cost_of_replacing(byte: int, other: int) -> int:
    if byte == other:
        return 0
    return _CASE_COST if bytes([byte]).lower() == bytes([other]).lower() else _MOVE_COST
