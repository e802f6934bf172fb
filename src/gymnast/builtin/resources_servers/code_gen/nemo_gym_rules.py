"""NeMo Gym's rules: which output or value passes a test, and what its reply says about one that does not. Pure.

They accept more than the strict ones: a single number is right within a hundred-thousandth, also if it is an integer
or a text.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from decimal import Decimal, InvalidOperation
from fractions import Fraction
from typing import Any, Final

from gymnast.kit import JsonObject

from .nemo_gym_arrays import Array, Truth

THINK_TAGS: Final = ("<think>", "</think>")
_RELATIVE: Final = 1e-5
_ABSOLUTE: Final = 1e-8
_MAX_SHOWN: Final = 300


class Number:
    """A value of another type of which only its number is known."""

    def __init__(self, number: float) -> None:
        self._number = number

    def __float__(self) -> float:
        return self._number


def leaks_reasoning(text: str, reasoning: str) -> bool:
    """Whether there are thinking tags in the answer, or more than one of a kind in the reasoning."""
    return any(tag in text or reasoning.count(tag) > 1 for tag in THINK_TAGS)


def find_output_mismatch(output: str, expected: str) -> str | None:
    """What is wrong with the output of a program; None if nothing is. Raises InvalidOperation for signalling NaNs."""
    lines, expected_lines = _lines(output), _lines(expected)
    if len(lines) != len(expected_lines):
        return "Wrong answer: mismatched output length"
    for number, (line, expected_line) in enumerate(zip(lines, expected_lines, strict=True)):
        if line != expected_line and not _same_decimals(line, expected_line):
            return f"Wrong answer at output_line_idx={number}: {shorten(line)} != {shorten(expected_line)}"
    return None


def compare_values(value: Any, expected: Any) -> bool | int:
    """Whether the value of a function is the expected one: equal, equal as JSON, or two numbers that are close.

    1 or 0 if numpy says so. Raises ValueError if it cannot compare them.
    """
    equal = value == expected
    is_numpys = isinstance(equal, Truth)
    if is_numpys and equal.size != 1:  # NeMo Gym fails
        return bool(value.items == expected)
    if equal:
        return 1 if is_numpys else True
    checks = (_same_json(value, expected), _close(value, expected))
    return True if any(checks) else 0 if is_numpys and checks == (None, None) else False


def decode_value(encoded: Any) -> Any:
    """The value that the sandbox encoded, or one that compares like it."""
    if isinstance(encoded, list):
        return [decode_value(item) for item in encoded]
    if not isinstance(encoded, dict):
        return encoded
    ((kind, content),) = encoded.items()
    return _DECODERS[kind](content)


def shorten(value: Any) -> str:
    """A value as text, without its middle if it is long."""
    text, half = str(value), _MAX_SHOWN // 2
    return text if len(text) <= _MAX_SHOWN else f"{text[:half]}...(truncated) ...{text[-half:]}"


def make_start_failure(error: object) -> tuple[list[bool | int], JsonObject]:
    """The result if not even the tests could start."""
    return [-4], {"error_code": -4, "error_message": f"Error during testing: {error}"}


def parse_arguments(given: Any) -> Any:
    """The arguments of a test: JSON values, one per line."""
    return [json.loads(line) for line in given.split("\n")] if isinstance(given, str) else given


def parse_outputs(outputs: Sequence[Any]) -> list[Any]:
    """The expected values of all tests. Raises ValueError if one of them is not JSON."""
    return [json.loads(output) if isinstance(output, str) else output for output in outputs]


def _lines(text: str) -> list[str]:
    return [line.strip() for line in text.strip().split("\n")]


def _same_decimals(line: str, expected_line: str) -> bool:
    numbers, expected = _decimals(line), _decimals(expected_line)
    return numbers is not None and expected is not None and numbers == expected


def _decimals(line: str) -> list[Decimal] | None:
    try:
        return [Decimal(word) for word in line.split()]
    except (InvalidOperation, ValueError):
        return None


def _same_json(value: Any, expected: Any) -> bool | None:
    """Whether two values are the same JSON; None if one of them is not JSON."""
    try:
        return json.dumps(value, default=_plain) == json.dumps(expected)
    except (TypeError, ValueError, RecursionError):
        return None


def _plain(value: Any) -> float:
    if isinstance(value, Array) and value.is_float:
        return float(value)
    raise TypeError(f"{type(value).__name__} is not JSON")


def _close(value: Any, expected: Any) -> bool | None:
    """Whether two numbers are close; None if one of the values is not a number."""
    try:
        number, right = float(value), float(expected)
    except (TypeError, ValueError, OverflowError):
        return None
    is_finite = abs(right) < float("inf")
    return number == right or (is_finite and abs(number - right) <= _ABSOLUTE + _RELATIVE * abs(right))


def _decode_array(content: Any) -> Array:
    return Array(**{**content, "items": decode_value(content["items"])})


def _decode_number(content: Any) -> Any:
    return object() if content is None else Number(decode_value(content))


_DECODERS: Final[dict[str, Callable[[Any], Any]]] = {
    "int": lambda content: int(content, 16),
    "float": float,
    "decimal": Decimal,
    "fraction": lambda content: Fraction(int(content[0], 16), int(content[1], 16)),
    "complex": lambda content: complex(*map(decode_value, content)),
    "tuple": lambda content: tuple(decode_value(content)),
    "set": lambda content: set(decode_value(content)),
    "dict": lambda content: {decode_value(key): decode_value(item) for key, item in content},
    "numpy": _decode_array,
    "other": _decode_number,
}
