"""How sure a number is: intervals that count tasks, not rollouts, because rollouts of one task are alike. Pure.

Three ways, each with its own assumptions: `t` (the mean of many tasks is nearly normal), `bootstrap` (tasks are a
sample like this one), `exact` (each task is solved or not, Clopper and Pearson). Randomness is seeded.
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
_MOST_DRAWN: Final = 10_000_000
"""With so many tasks fewer resamples do: the interval's ends are hardly uncertain any more."""

Method = Literal["t", "bootstrap", "exact", "none"]


@dataclass(frozen=True, slots=True)
class Estimate:
    """A number and where it may lie with 95% confidence."""

    value: float
    low: float
    high: float
    n: int
    """Tasks that it is made of."""
    method: Method = "t"

    @property
    def std_err(self) -> float:
        """As far as the interval tells."""
        return (self.high - self.low) / (2 * t_quantile(0.5 + LEVEL / 2, max(1, self.n - 1)))


def share_of_tasks(values: Sequence[float]) -> Estimate:
    """The mean over tasks of values between 0 and 1: exact where each is one of the two, else never beyond them.

    A t interval around a share of 1 would have no width, as if five tasks were as good as five thousand.
    """
    found = exact_mean(values)
    return found if found is not None else _within(mean_of_tasks(values), 0.0, 1.0)


def mean_of_tasks(values: Sequence[float]) -> Estimate:
    """The mean over tasks, each counting once."""
    found = np.asarray(values, dtype=np.float64)
    n = len(found)
    if n == 0:
        return Estimate(math.nan, math.nan, math.nan, 0, "none")
    mean = math.fsum(values) / n
    if n == 1:
        return Estimate(mean, -math.inf, math.inf, 1, "none")
    return _t_interval(mean, float(found.std(ddof=1)) / math.sqrt(n), n)


def mean_reward(groups: Groups) -> Estimate:
    """The mean over rollouts, with an error that is clustered by task."""
    sizes = groups.sizes().astype(np.float64)
    rewards = groups.table.rewards
    if not len(rewards):
        return Estimate(math.nan, math.nan, math.nan, 0, "none")
    sums = np.add.reduceat(rewards, groups.starts[:-1])
    found = clustered_mean(sums, sizes)
    if rewards.min() < 0 or rewards.max() > 1:
        return found
    certain = exact_mean((sums / sizes).tolist()) if len(set(sizes.tolist())) == 1 else None
    return certain if certain is not None else _within(found, 0.0, 1.0)


def clustered_mean(sums: Floats, sizes: Floats) -> Estimate:
    """A mean of all members of clusters, from each cluster's sum and size."""
    n, total = len(sums), float(sizes.sum())
    mean = math.fsum(sums.tolist()) / total
    if n == 1:
        return Estimate(mean, -math.inf, math.inf, 1, "none")
    residuals = sums - mean * sizes
    std_err = math.sqrt(n / (n - 1) * float(residuals @ residuals)) / total
    return _t_interval(mean, std_err, n)


def bootstrap(
    values: Sequence[float], *, seed: int = 0, weights: Sequence[float] | None = None, resamples: int = RESAMPLES
) -> Estimate:
    """The mean over tasks (or, with weights, the weighted mean), resampling tasks."""
    column = np.asarray(values, dtype=np.float64).reshape(-1, 1)
    heavy = np.ones_like(column) if weights is None else np.asarray(weights, dtype=np.float64).reshape(-1, 1)
    return bootstrap_all(column, heavy, seed=seed, resamples=resamples)[0]


def bootstrap_all(values: Floats, weights: Floats, *, seed: int = 0, resamples: int = RESAMPLES) -> list[Estimate]:
    """The weighted mean over tasks (rows) of several quantities (columns), resampling tasks for all at once.

    A weight of 0 leaves a task out of a quantity. Without two tasks there is no interval.
    """
    n = len(values)
    sizes = (weights > 0).sum(axis=0)
    products = np.where(weights > 0, values, 0.0) * weights
    with np.errstate(invalid="ignore"):
        centres = products.sum(axis=0) / weights.sum(axis=0)
    if n < 2:
        return [Estimate(float(one), -math.inf, math.inf, n, "none") for one in centres]
    resamples = min(resamples, max(500, _MOST_DRAWN // n))
    generator = np.random.default_rng(seed)
    means = np.empty((resamples, values.shape[1]))
    for trial in range(resamples):
        counts = np.bincount(generator.integers(0, n, n), minlength=n).astype(np.float64)
        with np.errstate(invalid="ignore"):
            means[trial] = (counts @ products) / (counts @ weights)
    low, high = np.nanquantile(means, [(1 - LEVEL) / 2, (1 + LEVEL) / 2], axis=0)
    return [
        Estimate(float(centres[place]), float(low[place]), float(high[place]), int(sizes[place]), "bootstrap")
        for place in range(values.shape[1])
    ]


def exact(solved: int, n: int) -> Estimate:
    """A share of n tasks, each solved or not (Clopper and Pearson)."""
    if n == 0:
        return Estimate(math.nan, math.nan, math.nan, 0, "none")
    tail = (1 - LEVEL) / 2
    low = 0.0 if solved == 0 else beta_quantile(tail, solved, n - solved + 1)
    high = 1.0 if solved == n else beta_quantile(1 - tail, solved + 1, n - solved)
    return Estimate(solved / n, low, high, n, "exact")


def exact_mean(values: Sequence[float]) -> Estimate | None:
    """The exact interval where every task's value is 0 or 1; None elsewhere, where there is none."""
    if not all(value in {0, 1} for value in values):
        return None
    return exact(int(sum(values)), len(values))


def _within(estimate: Estimate, lowest: float, highest: float) -> Estimate:
    return replace(estimate, low=max(estimate.low, lowest), high=min(estimate.high, highest))


def _t_interval(mean: float, std_err: float, n: int) -> Estimate:
    reach = t_quantile(0.5 + LEVEL / 2, n - 1) * std_err
    return Estimate(mean, mean - reach, mean + reach, n)


# --- distributions ---------------------------------------------------------------------------------------------------


def t_quantile(p: float, df: int) -> float:
    """The quantile of Student's distribution, p above a half."""
    share = _solve(lambda x: 1 - 0.5 * beta_cdf(1 - x, df / 2, 0.5), p)  # x = t² / (df + t²)
    return math.sqrt(df * share / max(1 - share, 1e-300))


def t_tail(t: float, df: int) -> float:
    """The two-sided p-value of a t statistic."""
    return beta_cdf(df / (df + t * t), df / 2, 0.5)


def beta_quantile(p: float, a: float, b: float) -> float:
    """Where the distribution function of Beta(a, b) reaches p."""
    return _solve(lambda x: beta_cdf(x, a, b), p)


def _solve(rising: Callable[[float], float], target: float) -> float:
    """Where a rising function on [0, 1] reaches a value."""
    low, high = 0.0, 1.0
    for _ in range(200):
        middle = (low + high) / 2
        if middle in (low, high):
            break
        low, high = (middle, high) if rising(middle) < target else (low, middle)
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
