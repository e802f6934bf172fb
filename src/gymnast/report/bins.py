"""Bins of rewards and tokens: the values behind histograms and density plots. Pure."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from gymnast.profile.groups import by_task
from gymnast.profile.intervals import Estimate, mean_reward
from gymnast.profile.rollout_table import quantile_groups
from gymnast.report.scales import format_short, reward_range

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gymnast.profile.table import Floats, Ints, RolloutTable

_MAX_DISTINCT: Final = 12
_EVEN_BINS: Final = 20


@dataclass(frozen=True, slots=True)
class Bins:
    """Bins of rewards: one per value if there are few distinct values, else intervals of equal width."""

    edges: tuple[float, ...]
    """The values if `are_values`, else the edges of the intervals."""
    are_values: bool

    def __len__(self) -> int:
        return len(self.edges) if self.are_values else len(self.edges) - 1

    def labels(self) -> list[str]:
        """The label of each bin."""
        if self.are_values:
            return [format_short(value) for value in self.edges]
        pairs = zip(self.edges[:-1], self.edges[1:], strict=True)
        return [f"{format_short(low)} to {format_short(high)}" for low, high in pairs]

    def indices(self, rewards: Floats) -> Ints:
        """The bin of each reward."""
        if self.are_values:
            return np.searchsorted(np.asarray(self.edges), rewards).astype(np.int64)
        indices = np.searchsorted(np.asarray(self.edges), rewards, side="right") - 1
        return np.clip(indices, 0, len(self) - 1).astype(np.int64)

    def counts(self, rewards: Floats) -> list[int]:
        """The number of rewards in each bin."""
        return [int(count) for count in np.bincount(self.indices(rewards), minlength=len(self))]


def make_reward_bins(rewards: Sequence[Floats]) -> Bins:
    """Bins that fit the rewards of all runs."""
    distinct = np.unique(np.concatenate(rewards) if rewards else np.empty(0))
    if 0 < len(distinct) <= _MAX_DISTINCT:
        values = np.unique(np.append(distinct, [0.0, 1.0])) if np.isin(distinct, (0.0, 1.0)).all() else distinct
        return Bins(tuple(values.tolist()), are_values=True)
    low, high = reward_range(float(distinct.min(initial=0.0)), float(distinct.max(initial=1.0)))
    return Bins(tuple(np.linspace(low, high, _EVEN_BINS + 1).tolist()), are_values=False)


@dataclass(frozen=True, slots=True)
class TokenBin:
    """Rollouts of similar length."""

    low: float
    high: float
    median: float
    rollouts: int
    reward: Estimate


def reward_by_tokens(table: RolloutTable, tokens: Floats, max_bins: int = 10) -> list[TokenBin]:
    """The mean reward by length, in bins with about the same number of rollouts."""
    known = int(np.isfinite(tokens).sum())
    if not known:
        return []
    bins = []
    for rows in quantile_groups(tokens, max(1, min(max_bins, known // 8))):
        lengths = tokens[rows]
        reward = mean_reward(by_task(table.select(rows)))
        median = float(np.median(lengths))
        bins.append(TokenBin(float(lengths.min()), float(lengths.max()), median, len(rows), reward))
    return bins


def needs_log_scale(tokens: Floats) -> bool:
    """Whether lengths differ so much that a linear axis would hide the short ones."""
    known = tokens[np.isfinite(tokens)]
    return bool(len(known)) and float(known.min()) > 0 and float(known.max()) / float(known.min()) > 30


def count_cells(columns: Ints, rows: Ints, shape: tuple[int, int]) -> list[tuple[int, int, int]]:
    """The non-empty cells of a grid: column, row, count."""
    counts = np.bincount(columns * shape[1] + rows, minlength=shape[0] * shape[1])
    filled = np.flatnonzero(counts).tolist()
    return [(cell // shape[1], cell % shape[1], int(counts[cell])) for cell in filled]


def split_evenly(length: int, max_parts: int) -> tuple[Ints, Ints]:
    """The starts and (exclusive) ends of equal parts of a series."""
    edges = np.round(np.linspace(0, length, min(length, max_parts) + 1)).astype(np.int64)
    return edges[:-1], edges[1:]


def clip_interval(low: float, high: float, bounds: tuple[float, float]) -> tuple[float, float]:
    """Clip an interval to an axis; an unknown interval becomes empty."""
    if math.isnan(low) or math.isnan(high):
        return bounds[0], bounds[0]
    return max(low, bounds[0]), min(high, bounds[1])
