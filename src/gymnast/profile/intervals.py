"""Confidence intervals over tasks, not rollouts, because rollouts of one task are correlated. Pure.

Three methods with different assumptions: `t` (the mean of many tasks is nearly normal), `bootstrap` (the tasks are
representative), `exact` (each task is solved or not, Clopper and Pearson). Randomness is seeded.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, Literal

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from gymnast.profile.groups import Groups

    Floats = NDArray[np.float64]

LEVEL: Final = 0.95
RESAMPLES: Final = 2000
_MAX_DRAWS: Final = 10_000_000
"""The limit of draws over all resamples: with many tasks, fewer resamples are enough."""

Method = Literal["t", "bootstrap", "exact", "none"]


@dataclass(frozen=True, slots=True)
class Estimate:
    """A number and its 95% confidence interval."""

    value: float
    low: float
    high: float
    n: int
    """The number of tasks."""
    method: Method = "t"

    @property
    def std_err(self) -> float:
        """The standard error that the interval implies."""
        return (self.high - self.low) / (2 * t_quantile(0.5 + LEVEL / 2, max(1, self.n - 1)))


def share_of_tasks(values: Sequence[float]) -> Estimate:
    """The mean over tasks of values from 0 to 1: with an exact interval if all are 0 or 1, else one within bounds.

    A t interval around a share of 1 would have no width, whether for five tasks or five thousand.
    """
    estimate = exact_mean(values)
    if estimate is None and len(values) > 1 and len(set(values)) == 1:
        return exact(values[0] * len(values), len(values))  # no value from 0 to 1 varies more than one of 0 and 1
    return estimate if estimate is not None else _clip_to_shares(mean_of_tasks(values))


def mean_of_tasks(values: Sequence[float]) -> Estimate:
    """The mean over tasks, each counting once."""
    n = len(values)
    if n == 0:
        return Estimate(math.nan, math.nan, math.nan, 0, "none")
    mean = math.fsum(values) / n
    if n == 1:
        return Estimate(mean, -math.inf, math.inf, 1, "none")
    return _t_interval(mean, float(np.std(np.asarray(values, dtype=np.float64), ddof=1)) / math.sqrt(n), n)


def mean_reward(groups: Groups) -> Estimate:
    """The mean over rollouts, with standard errors clustered by task."""
    sizes = groups.sizes().astype(np.float64)
    rewards = groups.table.rewards
    if not len(rewards):
        return Estimate(math.nan, math.nan, math.nan, 0, "none")
    sums = np.add.reduceat(rewards, groups.starts[:-1])
    clustered = clustered_mean(sums, sizes)
    if rewards.min() < 0 or rewards.max() > 1:
        return clustered
    estimate = exact_mean((sums / sizes).tolist()) if len(set(sizes.tolist())) == 1 else None
    return estimate if estimate is not None else _clip_to_shares(clustered)


def clustered_mean(sums: Floats, sizes: Floats) -> Estimate:
    """The mean over all members of clusters, from each cluster's sum and size."""
    n, total = len(sums), float(sizes.sum())
    mean = math.fsum(sums.tolist()) / total
    if n == 1:
        return Estimate(mean, -math.inf, math.inf, 1, "none")
    residuals = sums - mean * sizes
    std_err = math.sqrt(n / (n - 1) * float(residuals @ residuals)) / total
    return _t_interval(mean, std_err, n)


def bootstrap(values: Sequence[float], *, seed: int = 0, resamples: int = RESAMPLES) -> Estimate:
    """The mean over tasks, by resampling tasks."""
    column = np.asarray(values, dtype=np.float64).reshape(-1, 1)
    return bootstrap_all(column, np.ones_like(column), seed=seed, resamples=resamples)[0]


def bootstrap_all(values: Floats, weights: Floats, *, seed: int = 0, resamples: int = RESAMPLES) -> list[Estimate]:
    """The weighted means over tasks (rows) of several quantities (columns), with the same resamples for all.

    A weight of 0 leaves a task out of a quantity. An interval needs at least two tasks.
    """
    n = len(values)
    sizes = (weights > 0).sum(axis=0)
    products = np.where(weights > 0, values, 0.0) * weights
    with np.errstate(invalid="ignore"):
        centres = products.sum(axis=0) / weights.sum(axis=0)
    if n < 2:
        return [Estimate(float(centre), -math.inf, math.inf, n, "none") for centre in centres]
    resamples = min(resamples, max(500, _MAX_DRAWS // n))
    generator = np.random.default_rng(seed)
    means = np.empty((resamples, values.shape[1]))
    for trial in range(resamples):
        counts = np.bincount(generator.integers(0, n, n), minlength=n).astype(np.float64)
        with np.errstate(invalid="ignore"):
            means[trial] = (counts @ products) / (counts @ weights)
    low, high = np.nanquantile(means, [(1 - LEVEL) / 2, (1 + LEVEL) / 2], axis=0)
    return [
        Estimate(float(centres[column]), float(low[column]), float(high[column]), int(sizes[column]), "bootstrap")
        for column in range(values.shape[1])
    ]


def exact(solved: float, n: int) -> Estimate:
    """A share of n tasks, each solved or not (Clopper and Pearson)."""
    if n == 0:
        return Estimate(math.nan, math.nan, math.nan, 0, "none")
    tail = (1 - LEVEL) / 2
    low = 0.0 if solved == 0 else beta_quantile(tail, solved, n - solved + 1)
    high = 1.0 if solved == n else beta_quantile(1 - tail, solved + 1, n - solved)
    return Estimate(solved / n, low, high, n, "exact")


def exact_mean(values: Sequence[float]) -> Estimate | None:
    """The mean with an exact interval if every task's value is 0 or 1, else None."""
    if not all(value in {0, 1} for value in values):
        return None
    return exact(int(sum(values)), len(values))


def _clip_to_shares(estimate: Estimate) -> Estimate:
    return replace(estimate, low=max(estimate.low, 0.0), high=min(estimate.high, 1.0))


def _t_interval(mean: float, std_err: float, n: int) -> Estimate:
    margin = t_quantile(0.5 + LEVEL / 2, n - 1) * std_err
    return Estimate(mean, mean - margin, mean + margin, n)


# --- distributions ---------------------------------------------------------------------------------------------------


def t_quantile(p: float, df: int) -> float:
    """The quantile of Student's t distribution, for p above 0.5."""
    share = _solve(lambda x: 1 - 0.5 * beta_cdf(1 - x, df / 2, 0.5), p)  # x = t² / (df + t²)
    return math.sqrt(df * share / max(1 - share, 1e-300))


def t_tail(t: float, df: int) -> float:
    """The two-sided p-value of a t statistic."""
    return beta_cdf(df / (df + t * t), df / 2, 0.5)


def beta_quantile(p: float, a: float, b: float) -> float:
    """The p-quantile of Beta(a, b)."""
    return _solve(lambda x: beta_cdf(x, a, b), p)


def _solve(increasing: Callable[[float], float], target: float) -> float:
    """Where an increasing function on [0, 1] reaches a value, by bisection."""
    low, high = 0.0, 1.0
    for _ in range(200):
        middle = (low + high) / 2
        if middle in (low, high):
            break
        low, high = (middle, high) if increasing(middle) < target else (low, middle)
    return (low + high) / 2


def beta_cdf(x: float, a: float, b: float) -> float:
    """The regularised incomplete beta function, by its continued fraction (Lentz)."""
    if x <= 0.0 or x >= 1.0:
        return float(x >= 1.0)
    if x > (a + 1) / (a + b + 2):
        return 1.0 - beta_cdf(1.0 - x, b, a)
    front = math.exp(math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x))
    tiny = 1e-300
    value, c, d = 1.0, 1.0, 0.0
    for step in range(2000):
        half = step // 2
        if step == 0:
            part = 1.0
        elif step % 2 == 0:
            part = half * (b - half) * x / ((a + 2 * half - 1) * (a + 2 * half))
        else:
            part = -(a + half) * (a + b + half) * x / ((a + 2 * half) * (a + 2 * half + 1))
        d = 1.0 / (1.0 + part * d or tiny)
        c = 1.0 + part / c or tiny
        value *= c * d
        if abs(1.0 - c * d) < 1e-14 and step > 1:
            break
    return front * (value - 1.0) / a
