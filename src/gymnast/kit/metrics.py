"""Statistics over verify rows, as returned by `/aggregate_metrics`. Pure functions."""

from __future__ import annotations

import math
from array import array
from collections import defaultdict
from typing import TYPE_CHECKING, Any, Final

from gymnast.types.task import ROLLOUT_INDEX, TASK_INDEX

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from gymnast.types.json import JsonObject

_NOT_METRICS: Final = frozenset({TASK_INDEX, ROLLOUT_INDEX})


def numeric_fields(row: JsonObject) -> dict[str, int | float]:
    """The numbers in a verify row: top-level numbers and booleans, and the scalars of `response.usage`."""
    fields = {name: _number(value) for name, value in row.items() if name not in _NOT_METRICS and _is_number(value)}
    response = row.get("response")
    usage = response.get("usage") if isinstance(response, dict) else None
    if isinstance(usage, dict):
        fields.update({name: _number(value) for name, value in usage.items() if _is_number(value)})
    return fields


class Aggregation:
    """Aggregates verify rows one at a time. Keeps numbers, not rows: 100,000 rollouts are a few megabytes."""

    def __init__(self) -> None:
        self._tasks: array[int] = array("q")
        self._columns: dict[str, array[float]] = {}
        self._integers = True

    def add(self, row: JsonObject) -> None:
        """Add a verify row."""
        count = len(self._tasks)
        task = row.get(TASK_INDEX, 0)
        self._tasks.append(task if isinstance(task, int) else 0)
        for name, value in numeric_fields(row).items():
            column = self._columns.get(name)
            if column is None:
                column = self._columns[name] = array("d", [math.nan] * count)
                self._integers = self._integers and count == 0
            column.append(value)
            self._integers = self._integers and isinstance(value, int)
        for column in self._columns.values():
            if len(column) == count:
                column.append(math.nan)
                self._integers = False

    def result(self) -> JsonObject:
        """Group-level, agent-level and key metrics of all rows added."""
        if not self._tasks:
            return {"group_level_metrics": [], "agent_metrics": {}, "key_metrics": {}}
        members: dict[int, list[int]] = defaultdict(list)
        for number, task in enumerate(self._tasks):
            members[task].append(number)
        agent_metrics = self._describe(range(len(self._tasks)))
        return {
            "group_level_metrics": [
                {TASK_INDEX: task, **self._describe(members[task]), "sample": {"agent_ref": {"name": "agent"}}}
                for task in sorted(members)
            ],
            "agent_metrics": agent_metrics,
            "key_metrics": {name: value for name, value in agent_metrics.items() if name.startswith("mean/")},
        }

    def _describe(self, numbers: Sequence[int]) -> dict[str, int | float]:
        values = {
            name: [value for number in numbers if not math.isnan(value := column[number])]
            for name, column in self._columns.items()
        }
        return describe(values, len(numbers), integers=self._integers)


def describe(values: Mapping[str, Sequence[float]], size: int, *, integers: bool) -> dict[str, int | float]:
    """`stat/column` of a group of `size` rows, from the values present. Undefined statistics are omitted.

    If every standard deviation is undefined (one row), complete columns have one of 0. `integers`: all numbers of the
    whole file are integers, so that minima and maxima are, too.
    """
    columns = {name: sorted(column) for name, column in values.items() if column}
    means = {name: math.fsum(column) / len(column) for name, column in columns.items()}
    deviations = {name: _std(column, means[name]) for name, column in columns.items() if len(column) > 1}
    if not deviations:
        deviations = {name: 0.0 for name, column in columns.items() if len(column) == size}
    number_type = int if integers else float
    result: dict[str, int | float] = {f"mean/{name}": mean for name, mean in means.items()}
    result |= {f"max/{name}": number_type(column[-1]) for name, column in columns.items()}
    result |= {f"min/{name}": number_type(column[0]) for name, column in columns.items()}
    result |= {f"median/{name}": _median(column) for name, column in columns.items()}
    result |= {f"std/{name}": deviation for name, deviation in deviations.items()}
    return result


def aggregate(verify_rows: Iterable[JsonObject]) -> JsonObject:
    """Group-level, agent-level and key metrics of verify rows."""
    aggregation = Aggregation()
    for row in verify_rows:
        aggregation.add(row)
    return aggregation.result()


def _is_number(value: Any) -> bool:
    return isinstance(value, (bool, int, float))


def _number(value: Any) -> int | float:
    return int(value) if isinstance(value, bool) else value


def _median(ordered: Sequence[float]) -> float:
    half = len(ordered) // 2
    return float(ordered[half]) if len(ordered) % 2 else (ordered[half - 1] + ordered[half]) / 2


def _std(values: Sequence[float], mean: float) -> float:
    return math.sqrt(math.fsum([(value - mean) ** 2 for value in values]) / (len(values) - 1))
