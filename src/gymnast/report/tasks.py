"""A run's tasks in columns, one row per task: rollouts, rewards with intervals, tokens and durations."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Final

import numpy as np

from gymnast.profile.intervals import LEVEL, exact, t_quantile

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

    from gymnast.profile.groups import Groups
    from gymnast.profile.run_profile import LoadedRun
    from gymnast.profile.table import Column, Floats, Ints, RolloutTable

TOKEN_FIELDS: Final = ("output_tokens", "completion_tokens", "total_tokens")


@dataclass(frozen=True, slots=True)
class Tasks:
    """Every task that was requested or has a result, ascending. NaN where a value is unknown."""

    ids: Ints
    expected: Ints
    """Requested rollouts."""
    scored: Ints
    failed: Ints
    """Rollouts without a score that failed at least once."""
    mean: Floats
    low: Floats
    high: Floats
    """The bounds of the mean's 95% interval."""
    spread: Floats
    """Standard deviation of a task's rewards."""
    tokens: Floats
    seconds: Floats

    def __len__(self) -> int:
        return len(self.ids)

    def most_uncertain(self, limit: int) -> list[int]:
        """Rows of the tasks with the largest spread, largest first."""
        return _largest(self.spread, limit, above=0.0)

    def slowest(self, limit: int) -> list[int]:
        """Rows of the slowest tasks, by seconds if records have them, else by tokens."""
        return _largest(self.seconds if self.has_seconds else self.tokens, limit)

    def most_failed(self, limit: int) -> list[int]:
        """Rows of the tasks with the most failed rollouts."""
        return _largest(self.failed.astype(np.float64), limit, above=0.0)

    @property
    def has_seconds(self) -> bool:
        return bool(np.isfinite(self.seconds).any())


def summarise_tasks(run: LoadedRun, seconds: Floats) -> Tasks:
    """Summarise the tasks of a run. `seconds`: the duration of each scored rollout, NaN where unknown."""
    groups, table = run.groups, run.groups.table
    requested, expected = np.unique(run.plan.packed >> 32, return_counts=True)
    ids = np.union1d(requested, groups.tasks).astype(np.int64)
    rows, sizes = np.searchsorted(ids, groups.tasks), groups.sizes()
    scored = _scatter_counts(ids, groups.tasks, sizes)
    spread = _spread(groups)
    mean = _sum_groups(groups, table.rewards) / sizes
    low, high = _intervals(table.rewards, mean, spread, sizes)
    tokens = first_column(table, TOKEN_FIELDS)

    def scatter(values: Floats) -> Floats:
        column = np.full(len(ids), math.nan)
        column[rows] = values
        return column

    return Tasks(
        ids=ids,
        expected=_scatter_counts(ids, requested, expected) if len(requested) else scored,
        scored=scored,
        failed=_count_failed(ids, run.failures.last_kind),
        mean=scatter(mean),
        low=scatter(low),
        high=scatter(high),
        spread=scatter(spread),
        tokens=scatter(_group_means(groups, tokens.values if tokens is not None else None)),
        seconds=scatter(_group_means(groups, seconds)),
    )


def first_column(table: RolloutTable, names: Iterable[str]) -> Column | None:
    """The first of these columns that the table has."""
    return next((table.columns[name] for name in names if name in table.columns), None)


def is_binary(rewards: Floats) -> bool:
    """Whether every reward is 0 or 1."""
    return bool(np.isin(rewards, (0.0, 1.0)).all())


def _sum_groups(groups: Groups, values: Floats) -> Floats:
    if not len(groups):
        return np.empty(0)
    sums: Floats = np.add.reduceat(values, groups.starts[:-1])
    return sums


def _spread(groups: Groups) -> Floats:
    sizes, rewards = groups.sizes(), groups.table.rewards
    if not len(groups):
        return np.empty(0)
    centred = rewards - np.repeat(_sum_groups(groups, rewards) / sizes, sizes)
    squares = _sum_groups(groups, centred * centred)
    spread: Floats = np.sqrt(np.divide(squares, sizes - 1, out=np.full(len(sizes), math.nan), where=sizes > 1))
    return spread


def _intervals(rewards: Floats, mean: Floats, spread: Floats, sizes: Ints) -> tuple[Floats, Floats]:
    """An interval for each task: exact for binary rewards, else Student's t (none for a single reward)."""
    if is_binary(rewards):
        pairs = [_exact(round(share * n), n) for share, n in zip(mean.tolist(), sizes.tolist(), strict=True)]
        bounds = np.asarray(pairs, dtype=np.float64).reshape(-1, 2)
        return bounds[:, 0], bounds[:, 1]
    margin = np.asarray([_t(n) for n in sizes.tolist()]) * spread / np.sqrt(sizes)
    return mean - margin, mean + margin


@lru_cache(maxsize=4096)
def _exact(solved: int, n: int) -> tuple[float, float]:
    estimate = exact(solved, n)
    return estimate.low, estimate.high


@lru_cache(maxsize=1024)
def _t(n: int) -> float:
    return t_quantile(0.5 + LEVEL / 2, n - 1) if n > 1 else math.nan


def _group_means(groups: Groups, values: Floats | None) -> Floats:
    """The mean of each task's known values."""
    if values is None or not len(groups):
        return np.full(len(groups), math.nan)
    is_known = np.isfinite(values)
    sums = _sum_groups(groups, np.where(is_known, values, 0.0))
    counts = _sum_groups(groups, is_known.astype(np.float64))
    means: Floats = np.divide(sums, counts, out=np.full(len(sums), math.nan), where=counts > 0)
    return means


def _scatter_counts(ids: Ints, tasks: Ints, counts: Ints) -> Ints:
    column = np.zeros(len(ids), np.int64)
    column[np.searchsorted(ids, tasks)] = counts
    return column


def _count_failed(ids: Ints, kinds: dict[int, str]) -> Ints:
    tasks, counts = np.unique(np.fromiter(kinds, np.int64, len(kinds)) >> 32, return_counts=True)
    known = np.isin(tasks, ids)
    return _scatter_counts(ids, tasks[known], counts[known])


def _largest(values: Floats, limit: int, above: float = -math.inf) -> list[int]:
    rows: NDArray[np.int64] = np.flatnonzero(np.isfinite(values) & (values > above))
    order = np.lexsort((rows, -values[rows]))[:limit]
    return [int(row) for row in rows[order]]
