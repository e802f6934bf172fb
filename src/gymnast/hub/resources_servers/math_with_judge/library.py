"""math-verify, as worker processes run it: is what a text ends with the same as the expected answer?

Importing this takes a second or more: only workers do, before their first comparison.
"""

from __future__ import annotations

import logging
from functools import lru_cache
from typing import Any, Final

import math_verify  # type: ignore[import-untyped]

from gymnast.hub.cpu_time import OutOfTimeError, cpu_time

_LONGEST_SHOWN: Final = 4096


def score(expected: str, text: str, cpu_s: float) -> dict[str, Any]:
    """`reward` 1.0 or 0.0, what was `extracted`, and whether the time `ran_out`."""
    logging.getLogger("math_verify").setLevel(logging.CRITICAL)  # it logs whole answers
    try:
        with cpu_time(cpu_s):
            return _compared(expected, text)
    except OutOfTimeError:
        return {"reward": 0.0, "extracted": None, "ran_out": True}
    except Exception:  # noqa: BLE001 - what the library cannot read is not the expected answer
        return {"reward": 0.0, "extracted": None, "ran_out": False}


def _compared(expected: str, text: str) -> dict[str, Any]:
    golds, found = _gold(expected), _parsed(text, _ANY)
    right = next((one for one in found if math_verify.verify(list(golds), one, timeout_seconds=None)), None)
    extracted = right if right is not None else next(iter(found), None)
    return {"reward": float(right is not None), "extracted": _shown(extracted), "ran_out": False}


@lru_cache(maxsize=4096)
def _gold(expected: str) -> tuple[Any, ...]:
    return tuple(_parsed(f"\\boxed{{{expected}}}", _LATEX))


_LATEX: Final = (math_verify.LatexExtractionConfig(),)
_ANY: Final = (math_verify.ExprExtractionConfig(), *_LATEX)


def _parsed(text: str, targets: tuple[Any, ...]) -> list[Any]:
    found: list[Any] = math_verify.parse(text, targets, parsing_timeout=None)
    return found


def _shown(extracted: Any) -> str | None:
    try:
        return None if extracted is None else str(extracted)[:_LONGEST_SHOWN]
    except (OutOfTimeError, ValueError, RecursionError):  # what cannot be written down can still be compared
        return None
