"""One row a rollout, keyed by both indexes: reward, tokens, length. As CSV, and summed up over ranges of a column."""

from __future__ import annotations

import csv
import io
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from gymnast.store.replacing import replaced
from gymnast.types.task import ROLLOUT_INDEX, TASK_INDEX

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from gymnast.profile.table import Floats, RolloutTable

LENGTH = "output_bytes"


@dataclass(frozen=True, slots=True)
class Range:
    """The rollouts whose value lies in a range."""

    low: float
    high: float
    rollouts: int
    mean_reward: float


def reward_by(table: RolloutTable, column: str, ranges: int = 8) -> list[Range]:
    """Mean reward over ranges of a column that hold about as many rollouts each."""
    values = values_of(table, column)
    if values is None:
        return []
    there = ~np.isnan(values)
    values, rewards = values[there], table.rewards[there]
    if not len(values):
        return []
    edges = np.unique(np.quantile(values, np.linspace(0, 1, ranges + 1)))
    places = np.clip(np.searchsorted(edges, values, side="right") - 1, 0, max(0, len(edges) - 2))
    found = []
    for place in range(max(1, len(edges) - 1)):
        mine = places == place
        if mine.any():
            low, high = float(values[mine].min()), float(values[mine].max())
            found.append(Range(low, high, int(mine.sum()), math.fsum(rewards[mine].tolist()) / int(mine.sum())))
    return found


def values_of(table: RolloutTable, column: str) -> Floats | None:
    """A column by name, the trajectory's length included."""
    if column == LENGTH:
        return table.output_bytes.astype(np.float64)
    found = table.columns.get(column)
    return found.values if found is not None else None


def write_rollout_table(path: Path, table: RolloutTable) -> None:
    """Every rollout with its numbers."""
    columns = list(table.columns)
    with replaced(path) as out:
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
