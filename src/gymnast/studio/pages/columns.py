"""The columns of the tables of rollouts and tasks: titles, types, and the values to choose from."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from gymnast.studio.pages.rollouts import BUILT_IN
from gymnast.studio.pages.tasks import task_table
from gymnast.studio.run_table import NUMBER_COLUMNS, TEXT_COLUMNS, Texts, number_or_none
from gymnast.studio.task_table import TASK_COLUMNS

if TYPE_CHECKING:
    from gymnast.studio.library import Entry
    from gymnast.studio.query import Column
    from gymnast.studio.run_table import RunTable
    from gymnast.types.json import JsonObject

_MAX_MENU: Final = 40
_TITLES: Final = {
    "task": "Task",
    "rollout": "Rollout",
    "tool_calls": "Tool calls",
    "input_tokens": "Tokens in",
    "output_tokens": "Tokens out",
    "mean": "Mean reward",
    "low": "Interval from",
    "high": "Interval to",
    "best": "Best reward",
    "attempts": "Failed attempts",
}
_NOT_SHOWN: Final = frozenset({"calls", "bytes", "attempts", "low", "high", "excluded", "input_tokens", "finish"})


def columns_page(entry: Entry) -> JsonObject:
    """The columns of both tables."""
    table = entry.table()
    names = [*dict.fromkeys([*_order_columns(table), *table.own_columns])]
    tasks = task_table(entry)
    return {
        "rollouts": [_describe_column(name, table.column(name)) for name in names],
        "tasks": [
            *(_describe_column(name, tasks.column(name)) for name in TASK_COLUMNS),
            {"name": "prompt", "title": "Prompt", "type": "text", "shown": True, "values": None, "sortable": False},
        ],
    }


def _order_columns(table: RunTable) -> list[str]:
    first = ["task", "rollout", "state", "agent", "reward", "truncated", "finish", "failure"]
    rest = [*NUMBER_COLUMNS, *TEXT_COLUMNS]
    names = [name for name in dict.fromkeys([*first, *rest]) if table.column(name) is not None]
    return [name for name in names if name != "label"] + ["label"]


def _describe_column(name: str, values: Column | None) -> JsonObject:
    column: JsonObject = {
        "name": name,
        "title": _TITLES.get(name, name.replace("_", " ").capitalize() if name in BUILT_IN else name),
        "type": "text" if isinstance(values, Texts) else "number",
        "shown": name not in _NOT_SHOWN,
        "sortable": True,
        "values": None,
    }
    if isinstance(values, Texts):
        used = np.unique(values.codes[values.codes >= 0]).tolist()
        if len(used) <= _MAX_MENU:
            column["values"] = sorted(values.names[code] for code in used)
    elif values is not None:
        known = values[np.isfinite(values)]
        column["min"], column["max"] = (
            (number_or_none(known.min()), number_or_none(known.max())) if len(known) else (None, None)
        )
    return column
