"""Statistics over verify rows: what `/aggregate_metrics` answers. Pure functions."""

from __future__ import annotations

import math
from collections import defaultdict
from statistics import fmean, median
from typing import TYPE_CHECKING, Any, Final

from gymnast.types.task import ROLLOUT_INDEX, TASK_INDEX

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from gymnast.types.json import JsonObject

STATISTICS: Final = ("mean", "max", "min", "median", "std")
_NOT_METRICS: Final = frozenset({TASK_INDEX, ROLLOUT_INDEX})


def numeric_fields(row: JsonObject) -> dict[str, int | float]:
    """The numbers of a verify row: top-level numbers and booleans, and the scalars of `response.usage`."""
    found = {name: _number(value) for name, value in row.items() if name not in _NOT_METRICS and _is_number(value)}
    usage = (row.get("response") or {}).get("usage") or {}
    found.update({name: _number(value) for name, value in usage.items() if _is_number(value)})
    return found


def describe(
    rows: Sequence[dict[str, int | float]], columns: Iterable[str], *, integers: bool
) -> dict[str, int | float]:
    """`stat/column` for every statistic and column. Missing values are skipped, undefined statistics left out."""
    values = {name: [row[name] for row in rows if name in row] for name in columns}
    spreads = {name: _std(found) for name, found in values.items()}
    if all(spread is None for spread in spreads.values()):
        spreads = {name: 0.0 if len(values[name]) == len(rows) else None for name in values}
    kept = {name: found for name, found in values.items() if found}
    number = int if integers else float
    result: dict[str, int | float] = {f"mean/{name}": fmean(found) for name, found in kept.items()}
    result |= {f"max/{name}": number(max(found)) for name, found in kept.items()}
    result |= {f"min/{name}": number(min(found)) for name, found in kept.items()}
    result |= {f"median/{name}": float(median(found)) for name, found in kept.items()}
    result |= {f"std/{name}": spread for name in kept if (spread := spreads[name]) is not None}
    return result


def aggregate(verify_rows: Sequence[JsonObject]) -> JsonObject:
    """Group-level, agent-level and key metrics of verify rows."""
    if not verify_rows:
        return {"group_level_metrics": [], "agent_metrics": {}, "key_metrics": {}}
    numbers = [numeric_fields(row) for row in verify_rows]
    columns = list(dict.fromkeys(name for row in numbers for name in row))
    integers = all(isinstance(row.get(name), int) for row in numbers for name in columns)
    groups: dict[Any, list[dict[str, int | float]]] = defaultdict(list)
    for row, found in zip(verify_rows, numbers, strict=True):
        groups[row.get(TASK_INDEX, 0)].append(found)
    agent_metrics = describe(numbers, columns, integers=integers)
    return {
        "group_level_metrics": [
            {
                TASK_INDEX: task,
                **describe(groups[task], columns, integers=integers),
                "sample": {"agent_ref": {"name": "agent"}},
            }
            for task in sorted(groups)
        ],
        "agent_metrics": agent_metrics,
        "key_metrics": {name: value for name, value in agent_metrics.items() if name.startswith("mean/")},
    }


def _is_number(value: Any) -> bool:
    return isinstance(value, (bool, int, float))


def _number(value: Any) -> int | float:
    return int(value) if isinstance(value, bool) else value


def _std(values: Sequence[int | float]) -> float | None:
    if len(values) < 2:
        return None
    mean = fmean(values)
    return math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (len(values) - 1))
