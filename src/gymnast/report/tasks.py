"""A run's tasks in columns: how many rollouts, which rewards, how sure, how long. One row a task, scored or not."""

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
DURATION_FIELDS: Final = (
    "seconds",
    "rollout_seconds",
    "duration_s",
    "duration_seconds",
    "duration",
    "elapsed_s",
    "elapsed_seconds",
    "elapsed",
    "wall_time_s",
    "latency_s",
)
"""Under which names records of environments and agents say how long a rollout took; the contract has no name for it."""


@dataclass(frozen=True, slots=True)
class Tasks:
    """Every task that was asked for or has a result, ascending. NaN where there is nothing to say."""

    ids: Ints
    expected: Ints
    """Rollouts that were asked for."""
    scored: Ints
    failed: Ints
    """Rollouts without a score that failed at least once."""
    mean: Floats
    low: Floats
    high: Floats
    """Where the mean may lie with 95% confidence."""
    spread: Floats
    """Standard deviation of a task's rewards."""
    least: Floats
    most: Floats
    tokens: Floats
    seconds: Floats

    def __len__(self) -> int:
        return len(self.ids)

    def uncertain(self, limit: int) -> list[int]:
        """Rows of the tasks whose rewards differ most, most first."""
        return _largest(self.spread, limit, above=0.0)

    def slowest(self, limit: int) -> list[int]:
        """Rows of the tasks that took longest: in seconds where records say so, else in tokens."""
        return _largest(self.seconds if self.has_seconds else self.tokens, limit)

    @property
    def has_seconds(self) -> bool:
        return bool(np.isfinite(self.seconds).any())


def summarise(run: LoadedRun) -> Tasks:
    """The columns of a run."""
    groups, table = run.groups, run.groups.table
    asked, expected = np.unique(run.plan.packed >> 32, return_counts=True)
    ids = np.union1d(asked, groups.tasks).astype(np.int64)
    at, sizes = np.searchsorted(ids, groups.tasks), groups.sizes()
    spread = _spread(groups)
    mean, least, most = (_reduced(groups, table.rewards, function) for function in (np.add, np.minimum, np.maximum))
    mean = mean / sizes if len(mean) else mean
    low, high = _intervals(table.rewards, mean, spread, sizes)

    def placed(values: Floats) -> Floats:
        found = np.full(len(ids), math.nan)
        found[at] = values
        return found

    return Tasks(
        ids=ids,
        expected=_counted(ids, asked, expected) if len(asked) else _counted(ids, groups.tasks, sizes),
        scored=_counted(ids, groups.tasks, sizes),
        failed=_failed(ids, run.failures.last_kind),
        mean=placed(mean),
        low=placed(low),
        high=placed(high),
        spread=placed(spread),
        least=placed(least),
        most=placed(most),
        tokens=placed(_mean_present(groups, first_column(table, TOKEN_FIELDS))),
        seconds=placed(_mean_present(groups, first_column(table, DURATION_FIELDS))),
    )


def first_column(table: RolloutTable, names: Iterable[str]) -> Column | None:
    """The first of these fields that records have."""
    return next((table.columns[name] for name in names if name in table.columns), None)


def is_binary(rewards: Floats) -> bool:
    """Whether every reward is 0 or 1."""
    return bool(np.isin(rewards, (0.0, 1.0)).all())


def _reduced(groups: Groups, values: Floats, function: np.ufunc) -> Floats:
    if not len(groups):
        return np.empty(0)
    found: Floats = function.reduceat(values, groups.starts[:-1])
    return found


def _spread(groups: Groups) -> Floats:
    sizes, rewards = groups.sizes(), groups.table.rewards
    if not len(groups):
        return np.empty(0)
    centred = rewards - np.repeat(_reduced(groups, rewards, np.add) / sizes, sizes)
    squares = _reduced(groups, centred * centred, np.add)
    found: Floats = np.sqrt(np.divide(squares, sizes - 1, out=np.full(len(sizes), math.nan), where=sizes > 1))
    return found


def _intervals(rewards: Floats, mean: Floats, spread: Floats, sizes: Ints) -> tuple[Floats, Floats]:
    """Each task by itself: exact for rewards of 0 and 1, Student's t for others, none for a single other reward."""
    if is_binary(rewards):
        bounds = [_exact(round(share * n), n) for share, n in zip(mean.tolist(), sizes.tolist(), strict=True)]
        both = np.asarray(bounds, dtype=np.float64).reshape(-1, 2)
        return both[:, 0], both[:, 1]
    reach = np.asarray([_t(n) for n in sizes.tolist()]) * spread / np.sqrt(sizes)
    return mean - reach, mean + reach


@lru_cache(maxsize=4096)
def _exact(solved: int, n: int) -> tuple[float, float]:
    found = exact(solved, n)
    return found.low, found.high


@lru_cache(maxsize=1024)
def _t(n: int) -> float:
    return t_quantile(0.5 + LEVEL / 2, n - 1) if n > 1 else math.nan


def _mean_present(groups: Groups, column: Column | None) -> Floats:
    """The mean of each task's numbers, gaps left out."""
    if column is None or not len(groups):
        return np.full(len(groups), math.nan)
    there = np.isfinite(column.values)
    sums = _reduced(groups, np.where(there, column.values, 0.0), np.add)
    counts = _reduced(groups, there.astype(np.float64), np.add)
    found: Floats = np.divide(sums, counts, out=np.full(len(sums), math.nan), where=counts > 0)
    return found


def _counted(ids: Ints, tasks: Ints, counts: Ints) -> Ints:
    found = np.zeros(len(ids), np.int64)
    found[np.searchsorted(ids, tasks)] = counts
    return found


def _failed(ids: Ints, kinds: dict[int, str]) -> Ints:
    tasks, counts = np.unique(np.fromiter(kinds, np.int64, len(kinds)) >> 32, return_counts=True)
    known = np.isin(tasks, ids)
    return _counted(ids, tasks[known], counts[known])


def _largest(values: Floats, limit: int, above: float = -math.inf) -> list[int]:
    found: NDArray[np.int64] = np.flatnonzero(np.isfinite(values) & (values > above))
    order = np.lexsort((found, -values[found]))[:limit]
    return [int(row) for row in found[order]]
