"""Whether what a program produced is what a test expects. Pure, and always outside the sandbox."""

from __future__ import annotations

import json
from decimal import Decimal, InvalidOperation
from typing import Any


def same_output(actual: str, expected: str) -> bool:
    """Line by line without surrounding white space; lines of numbers may write the same numbers differently."""
    ours, theirs = _lines(actual), _lines(expected)
    return len(ours) == len(theirs) and all(
        mine == other or _same_numbers(mine, other) for mine, other in zip(ours, theirs, strict=True)
    )


def same_value(encoded: str, expected: Any) -> bool:
    """Whether a function's value, as JSON, equals the expected one: a text that holds JSON, or the value itself."""
    try:
        actual = json.loads(encoded)
        wanted = _decoded(expected)
        return bool(actual == wanted)
    except (ValueError, RecursionError):
        return False


def _decoded(expected: Any) -> Any:
    if not isinstance(expected, str):
        return expected
    try:
        return json.loads(expected)
    except ValueError:
        return expected  # rows exist that hold a bare text


def _lines(text: str) -> list[str]:
    return [line.strip() for line in text.strip().split("\n")]


def _same_numbers(mine: str, other: str) -> bool:
    numbers, wanted = _numbers(mine), _numbers(other)
    try:
        return numbers is not None and numbers == wanted
    except InvalidOperation:  # signalling NaN
        return False


def _numbers(line: str) -> list[Decimal] | None:
    if not line.isascii() or "_" in line:  # Decimal reads digits of any script, and underscores
        return None
    try:
        return [Decimal(word) for word in line.split()]
    except InvalidOperation:
        return None
