"""Rewards and tokens counted in bins: the values behind histograms and densities. Pure."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from gymnast.profile.groups import by_task
from gymnast.profile.intervals import Estimate, mean_reward
from gymnast.report.scales import short, span

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gymnast.profile.table import Floats, Ints, RolloutTable

_DISTINCT_AT_MOST: Final = 12
_EVEN_BINS: Final = 20


@dataclass(frozen=True, slots=True)
class Bins:
    """Where rewards are counted: single values where there are few of them, else even intervals."""

    edges: tuple[float, ...]
    """Of the values themselves where `are_values`, else one more than there are bins."""
    are_values: bool

    def __len__(self) -> int:
        return len(self.edges) if self.are_values else len(self.edges) - 1

    def labels(self) -> list[str]:
        """Each bin in words."""
        if self.are_values:
            return [short(value) for value in self.edges]
        pairs = zip(self.edges[:-1], self.edges[1:], strict=True)
        return [f"{short(low)} to {short(high)}" for low, high in pairs]

    def places(self, rewards: Floats) -> Ints:
        """The bin of each reward."""
        if self.are_values:
            return np.searchsorted(np.asarray(self.edges), rewards).astype(np.int64)
        found = np.searchsorted(np.asarray(self.edges), rewards, side="right") - 1
        return np.clip(found, 0, len(self) - 1).astype(np.int64)

    def counts(self, rewards: Floats) -> list[int]:
        """How many rewards are in each bin."""
        return [int(count) for count in np.bincount(self.places(rewards), minlength=len(self))]


def reward_bins(rewards: Sequence[Floats]) -> Bins:
    """Bins that fit the rewards of all runs at once."""
    everything = np.concatenate(rewards) if rewards else np.empty(0)
    distinct = np.unique(everything)
    if 0 < len(distinct) <= _DISTINCT_AT_MOST:
        both = np.unique(np.append(distinct, [0.0, 1.0])) if np.isin(distinct, (0.0, 1.0)).all() else distinct
        return Bins(tuple(both.tolist()), are_values=True)
    low, high = span(float(distinct.min(initial=0.0)), float(distinct.max(initial=1.0)))
    return Bins(tuple(np.linspace(low, high, _EVEN_BINS + 1).tolist()), are_values=False)


@dataclass(frozen=True, slots=True)
class TokenBin:
    """Rollouts of similar length."""

    low: float
    high: float
    middle: float
    """The median number of tokens."""
    rollouts: int
    reward: Estimate


def reward_by_tokens(table: RolloutTable, tokens: Floats, at_most: int = 10) -> list[TokenBin]:
    """The mean reward over rollouts of similar length, each bin with about the same number of rollouts."""
    known = np.flatnonzero(np.isfinite(tokens))
    if not len(known):
        return []
    count = max(1, min(at_most, len(known) // 8))
    edges = np.unique(np.quantile(tokens[known], np.linspace(0, 1, count + 1)))
    places = np.clip(np.searchsorted(edges, tokens[known], side="right") - 1, 0, max(0, len(edges) - 2))
    found = []
    for place in np.unique(places).tolist():
        rows = known[places == place]
        mine = tokens[rows]
        reward = mean_reward(by_task(table.chosen(rows)))
        found.append(TokenBin(float(mine.min()), float(mine.max()), float(np.median(mine)), len(rows), reward))
    return found


def is_wide(tokens: Floats) -> bool:
    """Whether lengths differ so much that an even axis would hide the short ones."""
    known = tokens[np.isfinite(tokens)]
    return bool(len(known)) and float(known.min()) > 0 and float(known.max()) / float(known.min()) > 30


def density(across: Ints, along: Ints, shape: tuple[int, int]) -> list[tuple[int, int, int]]:
    """Counts of a grid's cells: column, row, count, empty ones left out."""
    flat = np.bincount(across * shape[1] + along, minlength=shape[0] * shape[1])
    filled = np.flatnonzero(flat).tolist()
    return [(cell // shape[1], cell % shape[1], int(flat[cell])) for cell in filled]


def stretches(length: int, at_most: int) -> tuple[Ints, Ints]:
    """First and last (exclusive) places of at most so many equal stretches of a long series."""
    edges = np.round(np.linspace(0, length, min(length, at_most) + 1)).astype(np.int64)
    return edges[:-1], edges[1:]


def clipped(low: float, high: float, bounds: tuple[float, float]) -> tuple[float, float]:
    """An interval as far as an axis goes; one that is not known has no length."""
    if math.isnan(low) or math.isnan(high):
        return bounds[0], bounds[0]
    return max(low, bounds[0]), min(high, bounds[1])
