"""Scales from values to pixels, ticks, and short formats of numbers. Pure."""

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
    """Maps values from `low` to `high` to pixels from `start` to `end`."""

    low: float
    high: float
    start: float
    end: float
    is_log: bool = False

    def __call__(self, value: float) -> float:
        low, high, position = map(self._transform, (self.low, self.high, value))
        share = (position - low) / (high - low) if high > low else 0.5
        return self.start + min(1.0, max(0.0, share)) * (self.end - self.start)

    def _transform(self, value: float) -> float:
        return math.log(max(value, 1e-12)) if self.is_log else value

    def shares(self, values: Floats) -> Floats:
        """The positions of many values, as shares of the scale."""
        low, high = self._transform(self.low), self._transform(self.high)
        positions = np.log(np.maximum(values, 1e-12)) if self.is_log else values
        return np.clip((positions - low) / (high - low), 0.0, 1.0)

    def ticks(self, count: int) -> list[float]:
        """Round values along the scale, about `count` of them."""
        return log_ticks(self.low, self.high) if self.is_log else linear_ticks(self.low, self.high, count)


def linear_ticks(low: float, high: float, count: int) -> list[float]:
    """About `count` round values in a range, at a step of 1, 2, 2.5 or 5 times a power of ten."""
    if not high > low:
        return [low]
    rough = (high - low) / max(1, count)
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(size * power for size in _STEPS if size * power >= rough * (1 - 1e-9))
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [round(number * step, 12) + 0.0 for number in range(first, last + 1)]


def log_ticks(low: float, high: float) -> list[float]:
    """The powers of ten in a range; with their multiples by 2 and 5 if there are few."""
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    inside = [power for power in powers if low <= 10.0**power <= high]
    factors = (1, 2, 5) if len(inside) <= 2 else (1,)
    return [tick for power in powers for factor in factors if low <= (tick := factor * 10.0**power) <= high]


def reward_range(low: float, high: float) -> tuple[float, float]:
    """The range of a reward axis: 0 to 1, extended to the values."""
    return min(0.0, low), max(1.0, high)


def format_short(value: float) -> str:
    """A short number: 0.25, 12k, 3.4M."""
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:.3g}{unit}"
    return f"{value:.3g}"


def format_count(value: int) -> str:
    """A count: 320,000."""
    return f"{value:,}"


def format_percent(share: float) -> str:
    """A share as a percentage. Only all is 100%, and only nothing is 0%."""
    if 0 < share < 0.001:
        return "<0.1%"
    if 0.999 < share < 1:
        return ">99.9%"
    return f"{100 * share:.1f}".removesuffix(".0") + "%"
