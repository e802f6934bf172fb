r"""Strict rules: find the final answer in a model's last message and compare it with the expected one. Pure functions.

A `\boxed{}` answer comes first, then the text after "answer is" or "answer:", then the last number.
"""

from __future__ import annotations

import re
from fractions import Fraction
from typing import Final

from gymnast.kit import last_boxed, unwrap_text

_NUMBER: Final = re.compile(
    r"(?<![\w.])[-+−]?(?:\d{1,3}(?:,\d{3})+|\d+)?(?:\.\d+|(?<=\d))(?:[eE][-+]?\d{1,3})?(?:\s*/\s*\d+)?(?!\w)", re.ASCII
)
_DECIMAL: Final = re.compile(r"([-+]?)(\d*)(?:\.(\d*))?(?:e([-+]?\d{1,3}))?", re.ASCII | re.IGNORECASE)
_GROUPED: Final = re.compile(r"(?<=\d),(?=\d{3}(?!\d))", re.ASCII)
_STATED: Final = re.compile(r"answer\s*(?:is\b(?:\s*:)?|:|=)\s*(\S[^\n]*)", re.IGNORECASE)
_FRACTION: Final = re.compile(r"\\[dt]?frac\s*\{([^{}]+)\}\s*\{([^{}]+)\}")
_DECORATION: Final = re.compile(r"\\left|\\right|\\[,;:! ]|\\\(|\\\)|\\\[|\\\]|[$`*\s]")
_MAX_CHARS: Final = 1000
_TAIL: Final = 20_000
_TOLERANCE: Final = Fraction(1, 1_000_000)


def extract_answer(text: str) -> str | None:
    """The final answer of a text, as written."""
    content = last_boxed(text)
    if content is not None:
        return unwrap_text(content) or None
    text = text[-_TAIL:]
    stated = [match[1] for match in _STATED.finditer(text)]
    if stated:
        return _first_number(stated[-1]) or stated[-1].strip(" .*$`") or None
    numbers = [match[0] for match in _NUMBER.finditer(text)]
    return numbers[-1] if numbers else None


def same_answer(answer: str, expected: str) -> bool:
    """Whether two answers are equal as numbers (decimals up to one millionth), or as text without decoration."""
    answer_text, expected_text = _plain(answer), _plain(expected)
    number, expected_number = parse_number(answer_text), parse_number(expected_text)
    if number is None or expected_number is None:
        return bool(answer_text) and answer_text.casefold() == expected_text.casefold()
    if number == expected_number:
        return True
    both_exact = number.denominator == expected_number.denominator == 1
    return not both_exact and abs(number - expected_number) <= _TOLERANCE * max(abs(expected_number), _TOLERANCE)


def parse_number(text: str) -> Fraction | None:
    """Parse a decimal, with or without exponent and grouping commas, or a fraction of two, exactly."""
    if len(text) > _MAX_CHARS or not text.isascii():
        return None
    above, slash, below = text.partition("/")
    numerator, denominator = _decimal(above), _decimal(below) if slash else Fraction(1)
    return numerator / denominator if numerator is not None and denominator else None


def _decimal(text: str) -> Fraction | None:
    match = _DECIMAL.fullmatch(_GROUPED.sub("", text))
    if match is None or not (match[2] or match[3]):
        return None
    sign, whole, part, exponent = match[1], match[2], match[3] or "", int(match[4] or 0)
    value = Fraction(int(whole + part or "0"), 10 ** len(part)) * Fraction(10) ** exponent
    return -value if sign == "-" else value


def _first_number(text: str) -> str | None:
    match = _NUMBER.match(text.lstrip(" $*`("))
    return match[0] if match else None


def _plain(text: str) -> str:
    text = _FRACTION.sub(r"\1/\2", unwrap_text(text)).replace("−", "-")
    text = _DECORATION.sub("", text).rstrip(".")
    return text.rpartition("=")[2]
