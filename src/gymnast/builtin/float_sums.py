"""Sums of numbers as Python 3.12 and later add them, on every Python: rewards must not depend on its version."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable


def sum_floats(numbers: Iterable[float]) -> float:
    """The sum, with the rounding errors of the additions added at the end (Neumaier's method)."""
    total = errors = 0.0
    for number in numbers:
        new = total + number
        larger, smaller = (total, number) if abs(total) >= abs(number) else (number, total)
        errors += (larger - new) + smaller
        total = new
    return total + errors if math.isfinite(errors) else total


def sum_numbers(numbers: Iterable[Any], start: Any = 0) -> Any:
    """`sum` as it is in Python 3.12 and later."""
    values = [start, *numbers]
    if float in map(type, values) and all(type(value) in (int, float) for value in values):
        return sum_floats(values)
    return sum(values[1:], start)
