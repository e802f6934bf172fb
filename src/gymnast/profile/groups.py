"""Rollouts grouped by task."""

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
    """A table sorted by task and rollout, and the rows of each task."""

    table: RolloutTable
    tasks: Ints
    starts: Ints
    """The first row of each task, and the end of the last."""

    def __len__(self) -> int:
        return len(self.tasks)

    def __iter__(self) -> Iterator[tuple[int, slice]]:
        """Each task with its rows."""
        bounds = self.starts.tolist()
        for number, task in enumerate(self.tasks.tolist()):
            yield task, slice(bounds[number], bounds[number + 1])

    def sizes(self) -> Ints:
        sizes: Ints = np.diff(self.starts)
        return sizes


def by_task(table: RolloutTable) -> Groups:
    ordered = table.select(np.lexsort((table.rollouts, table.tasks)))
    tasks, starts = np.unique(ordered.tasks, return_index=True)
    return Groups(ordered, tasks, np.append(starts, len(ordered)).astype(np.int64))


def describe_rows(table: RolloutTable, rows: slice, *, integers: bool) -> dict[str, int | float]:
    """`stat/column` over some rows, as the contract defines them."""
    columns = {name: column.values[rows] for name, column in table.columns.items()}
    values = {name: column[~np.isnan(column)].tolist() for name, column in columns.items()}
    return describe(values, rows.stop - rows.start, integers=integers)


def rollout_infos(table: RolloutTable, rows: slice) -> list[JsonObject]:
    """The numbers of each rollout: reward first, then usage, then the rest. A record's own field wins over usage."""
    order = sorted(table.columns, key=lambda name: (name != "reward", not table.columns[name].from_usage))
    columns = table.columns | {name: own.over(table.columns[name]) for name, own in table.overridden.items()}
    numbers = {name: (columns[name].values[rows].tolist(), columns[name].is_integer[rows].tolist()) for name in order}
    tasks, rollouts = table.tasks[rows].tolist(), table.rollouts[rows].tolist()
    infos: list[JsonObject] = []
    for index, (task, rollout) in enumerate(zip(tasks, rollouts, strict=True)):
        info: JsonObject = {"rollout_id": f"{task}:{rollout}", TASK_INDEX: task, ROLLOUT_INDEX: rollout}
        for name, (values, integers) in numbers.items():
            value = values[index]
            if value == value:  # noqa: PLR0124 - not NaN; ten times faster than math.isnan here
                info[name] = int(value) if integers[index] else value
        infos.append(info)
    return infos
