"""The table of tasks, paged, with the start of each prompt."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import numpy as np

from gymnast.errors import NotFoundError
from gymnast.report.payload import snippet
from gymnast.report.transcript_items import decode_record
from gymnast.studio.pages.rollouts import describe_page
from gymnast.studio.query import select_rows
from gymnast.studio.rollout_page import read_line
from gymnast.studio.run_table import Texts, number_or_none
from gymnast.studio.search import search_tasks
from gymnast.studio.task_table import TASK_COLUMNS, TaskTable
from gymnast.types.task import PARAMS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gymnast.studio.library import Entry
    from gymnast.studio.query import Query
    from gymnast.types.json import JsonObject


def task_table(entry: Entry) -> TaskTable:
    """The table of tasks, made once for what is indexed."""
    table = entry.table()
    tasks = entry.load(table).tasks
    if not isinstance(entry.tasks, TaskTable) or entry.tasks.table is not table or entry.tasks.tasks is not tasks:
        entry.tasks = TaskTable(entry)
    return entry.tasks


def tasks_page(entry: Entry, query: Query) -> JsonObject:
    """A page of tasks."""
    started, tasks = time.perf_counter(), task_table(entry)
    rows = select_rows(query, len(tasks), tasks.column, TASK_COLUMNS)
    total, total_is_exact = len(rows), True
    if query.words:
        assert entry.index is not None
        ids = tasks.tasks.ids[rows]
        matches = search_tasks(entry.index, tasks.table, ids, query.words, (query.page + 1) * query.size)
        rows, total, total_is_exact = rows[np.array(matches.rows, np.int64)], matches.total, matches.is_exact
    shown = rows[query.page * query.size : (query.page + 1) * query.size].tolist()
    return {
        "rows": describe_tasks(entry, tasks, shown),
        **describe_page(entry, query, total, is_exact=total_is_exact, started=started),
    }


def describe_tasks(entry: Entry, tasks: TaskTable, rows: Sequence[int]) -> list[JsonObject]:
    """Rows of the table of tasks."""
    columns = {name: tasks.column(name) for name in TASK_COLUMNS}
    prompts = task_prompts(entry, tasks, rows)
    described = []
    for row, prompt in zip(rows, prompts, strict=True):
        values: JsonObject = {}
        for name, column in columns.items():
            if isinstance(column, Texts):
                code = int(column.codes[row])
                values[name] = column.names[code] if code >= 0 else None
            elif column is not None:
                values[name] = number_or_none(column[row])
        described.append({**values, "prompt": prompt, "rewards": tasks.rewards(row)})
    return described


def task_prompts(entry: Entry, tasks: TaskTable, rows: Sequence[int]) -> list[str]:
    """The start of the prompt of each task: from its materialized input, or else a record."""
    plan = entry.plan()
    prompts = []
    if plan is None:
        for row in rows:
            first = tasks.first_row(row)
            line = read_line(tasks.table, int(tasks.table.lines[first])) if first is not None else b"{}"
            prompts.append(_prompt_of(line))
        return prompts
    try:
        with plan.paths[0].open("rb") as stream:
            for row in rows:
                position = plan.positions.get(int(tasks.tasks.ids[row]))
                stream.seek(position[1] if position is not None else 0)
                prompts.append(_prompt_of(stream.readline()) if position is not None else "")
    except OSError as error:
        raise NotFoundError("the run's inputs are gone", where=str(plan.paths[0])) from error
    return prompts


def _prompt_of(line: bytes) -> str:
    params = (decode_record(line) or {}).get(PARAMS)
    return snippet(params.get("input") if isinstance(params, dict) else None)
