"""Rollouts as CSV, one row per rollout, and mean rewards over ranges of a column."""

from __future__ import annotations

import csv
import io
from dataclasses import dataclass
from statistics import fmean
from typing import TYPE_CHECKING

import numpy as np

from gymnast.store.atomic import atomic_output
from gymnast.types.task import ROLLOUT_INDEX, TASK_INDEX

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from gymnast.profile.table import Floats, Ints, RolloutTable

LENGTH = "output_bytes"


@dataclass(frozen=True, slots=True)
class Range:
    """The rollouts with a value in a range."""

    low: float
    high: float
    rollouts: int
    mean_reward: float


def reward_by(table: RolloutTable, column: str, ranges: int = 8) -> list[Range]:
    """Mean reward over ranges of a column, each with about the same number of rollouts."""
    values = column_values(table, column)
    if values is None or not np.isfinite(values).any():
        return []
    return [
        Range(float(values[rows].min()), float(values[rows].max()), len(rows), fmean(table.rewards[rows].tolist()))
        for rows in quantile_groups(values, ranges)
    ]


def quantile_groups(values: Floats, count: int) -> list[Ints]:
    """The rows of known values, in up to `count` groups of similar values and about the same size."""
    known = np.flatnonzero(np.isfinite(values))
    edges = np.unique(np.quantile(values[known], np.linspace(0, 1, count + 1)))
    bins = np.clip(np.searchsorted(edges, values[known], side="right") - 1, 0, max(0, len(edges) - 2))
    return [known[bins == index] for index in np.unique(bins).tolist()]


def column_values(table: RolloutTable, column: str) -> Floats | None:
    """A column by name, or the length of trajectories."""
    if column == LENGTH:
        return table.output_bytes.astype(np.float64)
    numbers = table.columns.get(column)
    return numbers.values if numbers is not None else None


def write_rollout_table(path: Path, table: RolloutTable) -> None:
    columns = list(table.columns)
    with atomic_output(path) as out:
        text = io.TextIOWrapper(out, encoding="utf-8", newline="")
        writer = csv.writer(text)
        writer.writerow([TASK_INDEX, ROLLOUT_INDEX, "agent", *columns, LENGTH])
        for row in range(len(table)):
            writer.writerow(_cells(table, row, columns))
        text.flush()
        text.detach()


def _cells(table: RolloutTable, row: int, columns: Sequence[str]) -> list[object]:
    key = table.key(row)
    numbers = [table.columns[name].at(row) for name in columns]
    return [key.task, key.rollout, table.agent_names[table.agents[row]], *numbers, int(table.output_bytes[row])]
