"""Compares the output of a program with what a test expects. Pure; runs outside the sandbox."""

from __future__ import annotations

import json
from decimal import Decimal, InvalidOperation
from typing import Any


def same_output(actual: str, expected: str) -> bool:
    """Compare line by line without surrounding white space; equal numbers may be written differently."""
    actual_lines, expected_lines = _lines(actual), _lines(expected)
    return len(actual_lines) == len(expected_lines) and all(
        line == expected_line or _same_numbers(line, expected_line)
        for line, expected_line in zip(actual_lines, expected_lines, strict=True)
    )


def same_value(encoded: str, expected: Any) -> bool:
    """Whether a function's value, as JSON, equals the expected one, which is JSON text or the value itself."""
    try:
        actual = json.loads(encoded)
        expected_value = _decode(expected)
        return bool(actual == expected_value)
    except (ValueError, RecursionError):
        return False


def _decode(expected: Any) -> Any:
    if not isinstance(expected, str):
        return expected
    try:
        return json.loads(expected)
    except ValueError:
        return expected  # some rows have plain text


def _lines(text: str) -> list[str]:
    return [line.strip() for line in text.strip().split("\n")]


def _same_numbers(line: str, expected_line: str) -> bool:
    numbers, expected_value = _numbers(line), _numbers(expected_line)
    try:
        return numbers is not None and numbers == expected_value
    except InvalidOperation:  # signalling NaN
        return False


def _numbers(line: str) -> list[Decimal] | None:
    if not line.isascii() or "_" in line:  # Decimal reads digits of any script, and underscores
        return None
    try:
        return [Decimal(word) for word in line.split()]
    except InvalidOperation:
        return None
