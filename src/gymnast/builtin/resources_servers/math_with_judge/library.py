"""Compares answers with math-verify, in worker processes.

Importing this takes a second or more, so only workers do, before their first comparison.
"""

from __future__ import annotations

import logging
import re
from functools import lru_cache
from typing import Any, Final, Literal

import math_verify  # type: ignore[import-untyped]

from gymnast.builtin.cpu_time import OutOfTimeError, cpu_time
from gymnast.kit import last_boxed

_MAX_SHOWN: Final = 4096
_WITH_BASE: Final = re.compile(r"(?<![\w.\\])([0-9A-Za-z]+)_(?:(\d)|\{\s*\(?\s*(\d{1,2})\s*\)?\s*\})")
"""A number and its base, as in `4210_5` and `AC7_{16}`."""
_LAST_DOT: Final = re.compile(r"(?<=\d)\.(?=\s*\})")
Scoring = Literal["nemo_gym", "strict"]


def score(expected: str, text: str, cpu_s: float, scoring: Scoring) -> dict[str, Any]:
    """`reward` 1.0 or 0.0, the `extracted` answer, and whether the time `ran_out`."""
    logging.getLogger("math_verify").setLevel(logging.CRITICAL)  # it logs whole answers
    compare = _compare if scoring == "strict" else _compare_as_nemo_gym
    try:
        with cpu_time(cpu_s):
            return compare(expected, text)
    except OutOfTimeError:
        return {"reward": 0.0, "extracted": None, "ran_out": True}
    except Exception:  # noqa: BLE001 - an answer that the library cannot read is a mismatch
        return {"reward": 0.0, "extracted": None, "ran_out": False}


def _compare(expected: str, text: str) -> dict[str, Any]:
    expected = strip_delimiters(expected)
    expected_values, answers = _parse_expected(expected), _parse(_LAST_DOT.sub("", text), _ANY)
    correct = next(
        (answer for answer in answers if math_verify.verify(list(expected_values), answer, timeout_seconds=None)), None
    )
    if correct is not None and _has_other_base(expected, text):
        correct = None
    extracted = correct if correct is not None else next(iter(answers), None)
    return {"reward": float(correct is not None), "extracted": _to_text(extracted), "ran_out": False}


def _has_other_base(expected: str, text: str) -> bool:
    """Whether the answer is the expected number with another base. math-verify ignores bases."""
    wanted = _WITH_BASE.fullmatch(expected.strip())
    if wanted is None:
        return False
    numbers = _WITH_BASE.findall(last_boxed(text) or text)
    bases = [digit or digits for number, digit, digits in numbers if number.upper() == wanted[1].upper()]
    return bool(bases) and bases[-1] != (wanted[2] or wanted[3])


def _compare_as_nemo_gym(expected: str, text: str) -> dict[str, Any]:
    expected_values, answers = _parse_expected(strip_delimiters(expected)), _parse(text, _ANY)
    if not expected_values:
        return {"reward": 0.0, "extracted": None, "ran_out": False}
    values = list(expected_values)
    is_right = any(math_verify.verify(values, answer, timeout_seconds=None) for answer in answers)
    return {"reward": float(is_right), "extracted": _same_text(values, answers), "ran_out": False}


def strip_delimiters(expected: str) -> str:
    r"""An expected answer without `\(\)` and `$` around it."""
    expected = expected.strip()
    if expected.startswith("\\(") and expected.endswith("\\)"):
        expected = expected[2:-2].strip()
    if expected.startswith("$") and expected.endswith("$") and len(expected) > 1:
        expected = expected[1:-1].strip()
    return expected


def _same_text(expected_values: list[Any], answers: list[Any]) -> str | None:
    """The first answer that reads like an expected value, or else the first answer."""
    try:
        wanted = {str(value).strip() for value in expected_values}
        texts = [str(answer) for answer in answers]
    except (ValueError, RecursionError):  # some answers can be compared but not written out
        return None
    return next((text for text in texts if text.strip() in wanted), next(iter(texts), None))


@lru_cache(maxsize=4096)
def _parse_expected(expected: str) -> tuple[Any, ...]:
    return tuple(_parse(f"\\boxed{{{expected}}}", _LATEX))


_LATEX: Final = (math_verify.LatexExtractionConfig(),)
_ANY: Final = (math_verify.ExprExtractionConfig(), *_LATEX)


def _parse(text: str, targets: tuple[Any, ...]) -> list[Any]:
    parsed: list[Any] = math_verify.parse(text, targets, parsing_timeout=None)
    return parsed


def _to_text(extracted: Any) -> str | None:
    try:
        return None if extracted is None else str(extracted)[:_MAX_SHOWN]
    except (OutOfTimeError, ValueError, RecursionError):  # some answers can be compared but not written out
        return None
