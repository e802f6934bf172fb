"""Estimates how hard a task is from a few rollouts, and how much signal it gives a trainer. Pure.

With c of n rollouts passed, a task's pass rate is Beta(c + 1/2, n - c + 1/2) (Jeffreys). A task is saturated or
hopeless only with enough probability under that distribution, so four lucky rollouts do not drop it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final, Literal

from gymnast.profile.intervals import beta_cdf, beta_quantile

Bucket = Literal["hopeless", "hard", "medium", "easy", "saturated"]
BUCKETS: Final[tuple[Bucket, ...]] = ("hopeless", "hard", "medium", "easy", "saturated")


@dataclass(frozen=True, slots=True)
class Thresholds:
    """The boundaries of buckets."""

    hopeless_below: float = 0.05
    hard_below: float = 0.35
    easy_from: float = 0.75
    saturated_above: float = 0.95
    confidence: float = 0.5
    """The probability from which a task counts as hopeless or saturated."""


@dataclass(frozen=True, slots=True)
class Difficulty:
    """A task's pass rate, its bucket and its signal."""

    passed: int
    rollouts: int
    bucket: Bucket
    low: float
    high: float
    """80% interval of the pass rate."""
    usable_signal: float
    """The probability that a group of rollouts has both passes and failures."""

    @property
    def pass_rate(self) -> float:
        return self.passed / self.rollouts


def difficulty(passed: int, rollouts: int, group_size: int, thresholds: Thresholds) -> Difficulty:
    """Rate a task."""
    a, b = passed + 0.5, rollouts - passed + 0.5
    return Difficulty(
        passed,
        rollouts,
        _bucket(passed / rollouts, a, b, thresholds),
        0.0 if passed == 0 else beta_quantile(0.1, a, b),
        1.0 if passed == rollouts else beta_quantile(0.9, a, b),
        usable_signal(passed, rollouts, group_size),
    )


def usable_signal(passed: int, rollouts: int, group_size: int) -> float:
    """The probability that a group has both passes and failures.

    Exact over all groups that can be drawn from the rollouts if there are enough, else the expectation.
    """
    if rollouts >= group_size:
        uniform = math.comb(passed, group_size) + math.comb(rollouts - passed, group_size)
        return 1.0 - uniform / math.comb(rollouts, group_size)
    a, b = passed + 0.5, rollouts - passed + 0.5
    return 1.0 - _moment(a, b, group_size) - _moment(b, a, group_size)


def _moment(a: float, b: float, power: int) -> float:
    """The mean of p to a power under Beta(a, b)."""
    return math.exp(math.lgamma(a + power) + math.lgamma(a + b) - math.lgamma(a) - math.lgamma(a + b + power))


def _bucket(rate: float, a: float, b: float, thresholds: Thresholds) -> Bucket:
    if beta_cdf(thresholds.hopeless_below, a, b) >= thresholds.confidence:
        return "hopeless"
    if 1.0 - beta_cdf(thresholds.saturated_above, a, b) >= thresholds.confidence:
        return "saturated"
    if rate < thresholds.hard_below:
        return "hard"
    return "easy" if rate >= thresholds.easy_from else "medium"
