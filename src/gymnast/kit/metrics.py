"""Statistics over verify rows, as returned by `/aggregate_metrics`. Pure functions."""

from __future__ import annotations

import math
from array import array
from typing import TYPE_CHECKING, Any, Final

from gymnast.kit.custom_metrics import CustomMetrics, Index, group_rollouts, sort_indices
from gymnast.types.task import ROLLOUT_INDEX, TASK_INDEX

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from gymnast.types.json import JsonObject

_NOT_METRICS: Final = frozenset({TASK_INDEX, ROLLOUT_INDEX})


def own_numbers(row: JsonObject) -> dict[str, int | float]:
    """The top-level numbers and booleans of a verify row."""
    return {name: _number(value) for name, value in row.items() if name not in _NOT_METRICS and _is_number(value)}


def usage_numbers(row: JsonObject) -> dict[str, int | float]:
    """The scalars of `response.usage`."""
    response = row.get("response")
    usage = response.get("usage") if isinstance(response, dict) else None
    if not isinstance(usage, dict):
        return {}
    return {name: _number(value) for name, value in usage.items() if _is_number(value)}


class Aggregation:
    """Aggregates verify rows one at a time. Keeps numbers, not rows: 100,000 rollouts are a few megabytes."""

    def __init__(self, custom: CustomMetrics | None = None) -> None:
        self._custom = custom or CustomMetrics()
        self._collector = self._custom.collect()
        self._tasks: list[Index] = []
        self._rollouts: list[Index] = []
        self._columns: dict[str, array[float]] = {}
        self._integers: dict[str, bool] = {}
        self._complete = True
        self._overridden: dict[int, JsonObject] = {}
        """By row, what its columns do not say: fields that its usage has too, a reward that is not a number, NaN."""

    def add(self, row: JsonObject) -> None:
        """Add a verify row."""
        count = len(self._tasks)
        task, rollout = (_index(row.get(name, 0)) for name in (TASK_INDEX, ROLLOUT_INDEX))
        self._tasks.append(task)
        self._rollouts.append(rollout)
        own, usage = own_numbers(row), usage_numbers(row)
        overridden: JsonObject = {name: own[name] for name in own.keys() & usage.keys() if name != "reward"}
        overridden |= {name: None for name, value in (usage | own).items() if math.isnan(value)}
        is_number = _is_number(row.get("reward")) and not isinstance(row["reward"], bool)
        if "reward" in row and "reward" not in usage and not is_number:
            overridden["reward"] = row["reward"]
        if overridden:
            self._overridden[count] = overridden
        for name, value in (own | usage).items():
            column = self._columns.get(name)
            if column is None:
                column = self._columns[name] = array("d", [math.nan] * count)
                self._integers[name] = True
                self._complete = self._complete and count == 0
            column.append(value)
            self._integers[name] = self._integers[name] and isinstance(value, int)
        for column in self._columns.values():
            if len(column) == count:
                column.append(math.nan)
                self._complete = False
        self._collector.add(task, rollout, row)

    def result(self) -> JsonObject:
        """Group-level, agent-level and key metrics of all rows added."""
        return {"group_level_metrics": list(self.groups()), **self.summary()}

    def summary(self) -> JsonObject:
        """Agent-level and key metrics."""
        if not self._tasks:
            return {"agent_metrics": {}, "key_metrics": {}}
        agent_metrics = {**self._describe(range(len(self._tasks))), **self._collector.result()}
        return {"agent_metrics": agent_metrics, "key_metrics": self._custom.key_metrics(agent_metrics)}

    def groups(self) -> Iterator[JsonObject]:
        """The statistics of each task, and the numbers of its rollouts."""
        members = group_rollouts(self._tasks, self._rollouts)
        for task in sort_indices(members):
            if task is None:
                continue
            numbers = members[task]
            yield {
                TASK_INDEX: task,
                **self._describe(numbers),
                "sample": {"agent_ref": {"name": "agent"}},
                "num_rollouts": len(numbers),
                "expected_num_rollouts": len(numbers),
                "missing_num_rollouts": 0,
                "reward_profile_completion_pct": 100.0,
                "rollout_infos": [self._rollout_info(task, number) for number in numbers],
            }

    def _rollout_info(self, task: Index, number: int) -> JsonObject:
        rollout = self._rollouts[number]
        values = {
            name: int(value) if self._integers[name] else value
            for name, column in self._columns.items()
            if not math.isnan(value := column[number])
        }
        return {
            "rollout_id": f"{task}:{rollout}",
            TASK_INDEX: task,
            ROLLOUT_INDEX: rollout,
            **values,
            **self._overridden.get(number, {}),
        }

    def _describe(self, numbers: Sequence[int]) -> dict[str, int | float]:
        values = {
            name: [value for number in numbers if not math.isnan(value := column[number])]
            for name, column in self._columns.items()
        }
        return describe(values, len(numbers), integers=self._complete and all(self._integers.values()))


def describe(values: Mapping[str, Sequence[float]], size: int, *, integers: bool) -> dict[str, int | float]:
    """`stat/column` of a group of `size` rows, from the values present. Undefined statistics are omitted.

    If every standard deviation is undefined (one row), complete columns have one of 0. `integers`: all numbers of the
    whole file are integers, so that minima and maxima are, too.
    """
    columns = {name: sorted(column) for name, column in values.items() if column}
    means = {name: _sum(column) / len(column) for name, column in columns.items()}
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


def aggregate(verify_rows: Iterable[JsonObject], custom: CustomMetrics | None = None) -> JsonObject:
    """Group-level, agent-level and key metrics of verify rows."""
    aggregation = Aggregation(custom)
    for row in verify_rows:
        aggregation.add(row)
    return aggregation.result()


def _index(value: Any) -> Index:
    return value if isinstance(value, int | float | str | None) else 0


def _is_number(value: Any) -> bool:
    return isinstance(value, (bool, int, float))


def _number(value: Any) -> int | float:
    return int(value) if isinstance(value, bool) else value


def _median(ordered: Sequence[float]) -> float:
    half = len(ordered) // 2
    return float(ordered[half]) if len(ordered) % 2 else (ordered[half - 1] + ordered[half]) / 2


def _std(values: Sequence[float], mean: float) -> float:
    return math.sqrt(_sum([(value - mean) * (value - mean) for value in values]) / (len(values) - 1))


def _sum(values: Sequence[float]) -> float:
    """Exact; of infinities and beyond the largest number what the additions give."""
    try:
        return math.fsum(values)
    except (OverflowError, ValueError):
        return sum(values)
