"""The tasks of a run in columns, made from the table of its rollouts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from gymnast.studio.run_table import STATES, Texts, number_or_none

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from gymnast.studio.library import Entry
    from gymnast.studio.query import Column

TASK_COLUMNS: Final = (
    *("task", "agent", "expected", "scored", "failed", "excluded", "truncated", "mean", "low", "high", "spread"),
    *("best", "output_tokens", "seconds", "label"),
)
_EXCLUDED: Final = STATES.index("excluded")
_MAX_REWARDS: Final = 64


class TaskTable:
    """The tasks of a run in columns."""

    def __init__(self, entry: Entry) -> None:
        self.table = entry.table()
        self.tasks = entry.load(self.table).tasks
        self._annotations = entry.annotations()
        self._columns: dict[str, Column | None] = {}
        keys = self.table.keys
        self._starts = np.searchsorted(keys, self.tasks.ids << 32)
        self._ends = np.searchsorted(keys, (self.tasks.ids + 1) << 32)

    def __len__(self) -> int:
        return len(self.tasks)

    def column(self, name: str) -> Column | None:
        """A column by name; None if there is none."""
        if name not in self._columns:
            self._columns[name] = self._make_column(name)
        return self._columns[name]

    def _make_column(self, name: str) -> Column | None:
        tasks, table = self.tasks, self.table
        make: dict[str, Callable[[], Column]] = {
            "task": lambda: tasks.ids.astype(np.float64),
            "expected": lambda: tasks.expected.astype(np.float64),
            "scored": lambda: tasks.scored.astype(np.float64),
            "failed": lambda: tasks.failed.astype(np.float64),
            "mean": lambda: tasks.mean,
            "low": lambda: tasks.low,
            "high": lambda: tasks.high,
            "spread": lambda: tasks.spread,
            "seconds": lambda: tasks.seconds,
            "output_tokens": lambda: tasks.tokens,
            "excluded": lambda: self._count(table.states == _EXCLUDED),
            "truncated": self._count_truncated,
            "best": self._best,
            "agent": self._agents,
            "label": self._labels,
        }
        return make[name]() if name in make else None

    def _count_truncated(self) -> NDArray[np.float64]:
        truncated = self.table.column("truncated")
        if not isinstance(truncated, Texts):
            return np.zeros(len(self))
        return self._count(truncated.codes >= 0)

    def _count(self, mask: NDArray[np.bool_]) -> NDArray[np.float64]:
        sums = np.concatenate([[0], np.cumsum(mask)])
        counts: NDArray[np.float64] = (sums[self._ends] - sums[self._starts]).astype(np.float64)
        return counts

    def _best(self) -> NDArray[np.float64]:
        rewards = self.table.column("reward")
        assert rewards is not None
        assert not isinstance(rewards, Texts)
        values = np.where(np.isfinite(rewards) & (self.table.states == 0), rewards, -np.inf)
        best = np.full(len(self), np.nan)
        has_rows = self._ends > self._starts
        if has_rows.any():
            # Between the starts of tasks that have rows there are only rows of these tasks.
            best[has_rows] = np.maximum.reduceat(values, self._starts[has_rows])
        return np.where(np.isfinite(best), best, np.nan)

    def _agents(self) -> Texts:
        agents = self.table.column("agent")
        codes = np.full(len(self), -1, np.int32)
        if not isinstance(agents, Texts):
            return Texts(codes, [])
        has_rows = self._ends > self._starts
        codes[has_rows] = agents.codes[self._starts[has_rows]]
        return Texts(codes, agents.names)

    def _labels(self) -> Texts:
        labels = {
            task: own.label for (task, rollout), own in self._annotations.items() if rollout is None and own.label
        }
        names = list(dict.fromkeys(labels.values()))
        codes = np.full(len(self), -1, np.int32)
        for task, label in labels.items():
            row = int(np.searchsorted(self.tasks.ids, task))
            if row < len(self) and self.tasks.ids[row] == task:
                codes[row] = names.index(label)
        return Texts(codes, names)

    def rewards(self, row: int) -> list[float | int | None]:
        """The rewards of a task's rollouts."""
        first, last = int(self._starts[row]), int(self._ends[row])
        rewards = self.table.select(range(first, min(last, first + _MAX_REWARDS))).column("reward")
        assert isinstance(rewards, np.ndarray)
        return [number_or_none(reward) for reward in rewards.tolist()]

    def first_row(self, row: int) -> int | None:
        """The first rollout of a task in the table of rollouts, or None."""
        return int(self._starts[row]) if self._ends[row] > self._starts[row] else None
