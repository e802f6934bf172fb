"""Rollouts grouped by task: sorted once, described group by group."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from gymnast.kit.metrics import describe
from gymnast.types.task import ROLLOUT_INDEX, TASK_INDEX

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gymnast.profile.table import Ints, RolloutTable
    from gymnast.types.json import JsonObject


@dataclass(frozen=True, slots=True)
class Groups:
    """A table sorted by task and rollout, and where each task begins and ends."""

    table: RolloutTable
    tasks: Ints
    starts: Ints
    """One more than there are tasks: the last is the end."""

    def __len__(self) -> int:
        return len(self.tasks)

    def __iter__(self) -> Iterator[tuple[int, slice]]:
        """Each task with its rows."""
        bounds = self.starts.tolist()
        for number, task in enumerate(self.tasks.tolist()):
            yield task, slice(bounds[number], bounds[number + 1])

    def sizes(self) -> Ints:
        found: Ints = np.diff(self.starts)
        return found


def by_task(table: RolloutTable) -> Groups:
    """Group a table."""
    ordered = table.chosen(np.lexsort((table.rollouts, table.tasks)))
    tasks, starts = np.unique(ordered.tasks, return_index=True)
    return Groups(ordered, tasks, np.append(starts, len(ordered)).astype(np.int64))


def described(table: RolloutTable, rows: slice, *, integers: bool) -> dict[str, int | float]:
    """`stat/column` over some rows, as the contract has them."""
    size = rows.stop - rows.start
    values: dict[str, list[float]] = {}
    for name, column in table.columns.items():
        found = column.values[rows]
        gaps = np.isnan(found)
        values[name] = (found[~gaps] if gaps.any() else found).tolist()
    return describe(values, size, integers=integers)


def rollout_infos(table: RolloutTable, rows: slice) -> list[JsonObject]:
    """The numbers of each rollout: reward first, then its usage, then the rest."""
    order = sorted(table.columns, key=lambda name: (name != "reward", not table.columns[name].from_usage))
    numbers = {
        name: (table.columns[name].values[rows].tolist(), table.columns[name].is_integer[rows].tolist())
        for name in order
    }
    tasks, rollouts = table.tasks[rows].tolist(), table.rollouts[rows].tolist()
    infos: list[JsonObject] = []
    for place, (task, rollout) in enumerate(zip(tasks, rollouts, strict=True)):
        info: JsonObject = {"rollout_id": f"{task}:{rollout}", TASK_INDEX: task, ROLLOUT_INDEX: rollout}
        for name, (values, integers) in numbers.items():
            value = values[place]
            if value == value:  # noqa: PLR0124 - not NaN, ten times faster than math.isnan here
                info[name] = int(value) if integers[place] else value
        infos.append(info)
    return infos
