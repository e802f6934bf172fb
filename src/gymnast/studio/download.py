"""What a table shows as a file: CSV, JSONL or Parquet, with the columns of the table and the fields of the records."""

from __future__ import annotations

import csv
import io
from typing import TYPE_CHECKING, Any, Final

import orjson

from gymnast.errors import UserError
from gymnast.report.transcript_items import decode_record
from gymnast.studio.pages.rollouts import find_rows
from gymnast.studio.pages.tasks import describe_tasks, task_table
from gymnast.studio.query import select_rows
from gymnast.studio.rollout_page import own_values, read_line, row_values
from gymnast.studio.task_table import TASK_COLUMNS

if TYPE_CHECKING:
    from gymnast.studio.library import Entry
    from gymnast.studio.query import Query
    from gymnast.types.json import JsonObject

FORMATS: Final = {
    "csv": "text/csv; charset=utf-8",
    "jsonl": "application/jsonl; charset=utf-8",
    "parquet": "application/vnd.apache.parquet",
}
MAX_ROWS: Final = 500_000


def make_download(entry: Entry, query: Query, table: str, kind: str) -> bytes:
    """The rows of a query, all pages."""
    rows = _task_rows(entry, query) if table == "tasks" else _rollout_rows(entry, query)
    if kind == "jsonl":
        return b"".join(orjson.dumps(row) + b"\n" for row in rows)
    names = list(dict.fromkeys(name for row in rows for name in row))
    if kind == "parquet":
        return _parquet(rows, names)
    text = io.StringIO()
    writer = csv.DictWriter(text, names)
    writer.writeheader()
    writer.writerows({name: _cell(value) for name, value in row.items()} for row in rows)
    return text.getvalue().encode(errors="replace")


def _cell(value: Any) -> Any:
    """A cell of a CSV file. Spreadsheets run texts that start like a formula."""
    return f"'{value}" if isinstance(value, str) and value[:1] in ("=", "+", "-", "@", "\t", "\r") else value


def _rollout_rows(entry: Entry, query: Query) -> list[JsonObject]:
    table = entry.table()
    rows, _, _ = find_rows(entry, table, query, len(table))
    rows = rows[:MAX_ROWS]
    described = row_values(table, rows)
    if names := table.own_columns:
        for row, values in zip(rows, described, strict=True):
            record = decode_record(read_line(table, int(table.lines[row]))) or {}
            values.update(own_values(record, names))
    return described


def _task_rows(entry: Entry, query: Query) -> list[JsonObject]:
    tasks = task_table(entry)
    rows = select_rows(query, len(tasks), tasks.column, TASK_COLUMNS).tolist()[:MAX_ROWS]
    return [
        {name: value for name, value in row.items() if name != "rewards"} for row in describe_tasks(entry, tasks, rows)
    ]


def _parquet(rows: list[JsonObject], names: list[str]) -> bytes:
    try:
        import pyarrow as pa  # noqa: PLC0415 - an extra
        import pyarrow.parquet as pq  # noqa: PLC0415
    except ImportError as error:
        raise UserError("Parquet files need pyarrow", next="pip install 'gymnast[parquet]', or choose CSV") from error
    columns = {}
    for name in names:
        values = [row.get(name) for row in rows]
        kinds = {type(value) for value in values if value is not None}
        if len(kinds) > 1 and not kinds <= {int, float}:
            values = [None if value is None else str(value) for value in values]
        elif kinds == {int, float}:
            values = [None if value is None else float(value) for value in values]
        columns[name] = pa.array(values)
    sink = io.BytesIO()
    pq.write_table(pa.table(columns), sink)
    return sink.getvalue()
