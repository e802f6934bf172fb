"""Axes as numbers: from values to pixels, where ticks stand, and how numbers are said shortly. Pure."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from gymnast.profile.table import Floats

_STEPS: Final = (1.0, 2.0, 2.5, 5.0, 10.0)


@dataclass(frozen=True, slots=True)
class Scale:
    """Values from `low` to `high` on pixels from `start` to `end`."""

    low: float
    high: float
    start: float
    end: float
    is_log: bool = False

    def __call__(self, value: float) -> float:
        low, high, at = (self._even(one) for one in (self.low, self.high, value))
        share = (at - low) / (high - low) if high > low else 0.5
        return self.start + min(1.0, max(0.0, share)) * (self.end - self.start)

    def _even(self, value: float) -> float:
        return math.log(max(value, 1e-12)) if self.is_log else value

    def along(self, values: Floats) -> Floats:
        """Where many values lie, as shares of the scale."""
        low, high = self._even(self.low), self._even(self.high)
        even = np.log(np.maximum(values, 1e-12)) if self.is_log else values
        return np.clip((even - low) / (high - low), 0.0, 1.0)

    def ticks(self, about: int) -> list[float]:
        """Round values along the scale."""
        return log_ticks(self.low, self.high) if self.is_log else even_ticks(self.low, self.high, about)


def even_ticks(low: float, high: float, about: int) -> list[float]:
    """Round values between two, at a step of 1, 2, 2.5 or 5 times a power of ten."""
    if not high > low:
        return [low]
    rough = (high - low) / max(1, about)
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(one * power for one in _STEPS if one * power >= rough * (1 - 1e-9))
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [round(number * step, 12) + 0.0 for number in range(first, last + 1)]


def log_ticks(low: float, high: float) -> list[float]:
    """Powers of ten between two values, with their doubles and fivefolds where there are few."""
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    inside = [power for power in powers if low <= 10.0**power <= high]
    factors = (1, 2, 5) if len(inside) <= 2 else (1,)
    return [ticks for power in powers for factor in factors if low <= (ticks := factor * 10.0**power) <= high]


def span(low: float, high: float) -> tuple[float, float]:
    """The range of an axis of rewards: from 0 to 1, and further where values go further."""
    return min(0.0, low), max(1.0, high)


def short(value: float) -> str:
    """A number in few characters: 0.25, 12k, 3.4M."""
    for size, sign in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:.3g}{sign}"
    return f"{value:.3g}"


def count(value: int) -> str:
    """A count: 320,000."""
    return f"{value:,}"


def some(number: int, what: str) -> str:
    """1 task, 2 tasks."""
    return f"{count(number)} {what}" + ("" if number == 1 else "s")


def percent(share: float) -> str:
    """A share as a percentage. What is not all is never said to be 100%, and what is there is never 0%."""
    if 0 < share < 0.001:
        return "<0.1%"
    if 0.999 < share < 1:
        return ">99.9%"
    return f"{100 * share:.1f}".removesuffix(".0") + "%"
