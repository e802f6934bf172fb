"""Runs inside the sandbox: executes one query on SQLite databases built from a row's statements.

The reference and the answer run in separate processes that do not know of each other. Standard library only.
"""

from __future__ import annotations

import json
import sqlite3
import sys
from contextlib import closing
from typing import Any


def main() -> None:
    job = json.loads(sys.stdin.buffer.read())
    output: dict[str, Any] = {"results": [], "populated": False}
    stage = "context"
    try:
        for variant in job["variants"]:
            stage = "context"
            with closing(_database(job["context"])) as connection:
                output["populated"] = output["populated"] or _has_rows(connection)
                if "without" in variant:
                    _thin(connection, variant["without"])
                connection.execute(f"PRAGMA reverse_unordered_selects = {int(variant.get('reversed', False))}")
                stage = "query"
                output["results"].append(_result(connection, job["sql"], job["most_rows"]))
    except _TooLargeError as error:
        output |= {"failed_at": "size", "error": str(error)}
    except (sqlite3.Error, sqlite3.Warning, ValueError, OverflowError, MemoryError) as error:
        output |= {"failed_at": stage, "error": f"{type(error).__name__}: {error}"}
    text = json.dumps(output)
    if len(text) > job["most_characters"]:
        text = json.dumps({"failed_at": "size", "error": f"more than {job['most_characters']} characters"})
    sys.stdout.write(text)


class _TooLargeError(Exception):
    pass


def _database(context: str) -> sqlite3.Connection:
    connection = sqlite3.connect(":memory:", isolation_level=None)
    connection.text_factory = lambda raw: raw.decode("utf-8", "replace")
    connection.executescript(context)
    return connection


def _result(connection: sqlite3.Connection, sql: str, max_rows: int) -> dict[str, Any]:
    before = _version(connection)
    rows: list[list[Any]] | None = None
    for statement in _statements(sql):
        cursor = connection.execute(statement)
        if cursor.description is not None:
            rows = _fetch(cursor, max_rows)
    changed = _version(connection) != before
    return {"rows": rows, "tables": _all_tables(connection, max_rows) if changed else None}


def _version(connection: sqlite3.Connection) -> tuple[int, int]:
    return connection.total_changes, connection.execute("PRAGMA schema_version").fetchone()[0]


def _statements(sql: str) -> list[str]:
    """Split a script into statements. A semicolon inside a string or a trigger does not end one."""
    statements, pending = [], ""
    for piece in sql.split(";"):
        pending += piece + ";"
        if sqlite3.complete_statement(pending):
            statements.append(pending)
            pending = ""
    rest = pending.rstrip("; \n\t")
    return [*statements, rest] if rest else statements


def _fetch(cursor: sqlite3.Cursor, max_rows: int) -> list[list[Any]]:
    rows = cursor.fetchmany(max_rows + 1)
    if len(rows) > max_rows:
        raise _TooLargeError(f"more than {max_rows} rows")
    return [[_plain(value) for value in row] for row in rows]


def _plain(value: Any) -> Any:
    if isinstance(value, bytes):
        return {"blob": value.hex()}
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):  # noqa: PLR0124
        return {"float": str(value)}
    return value


def _table_names(connection: sqlite3.Connection) -> list[str]:
    listing = "SELECT name FROM sqlite_master WHERE type IN ('table', 'view') AND name NOT LIKE 'sqlite_%' ORDER BY 1"
    return [name for (name,) in connection.execute(listing)]


def _quote(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _all_tables(connection: sqlite3.Connection, max_rows: int) -> dict[str, list[list[Any]]]:
    tables = {}
    for name in _table_names(connection):
        cursor = connection.execute(f"SELECT * FROM {_quote(name)}")  # noqa: S608
        columns = ", ".join(column[0] for column in cursor.description)
        tables[f"{name} ({columns})".lower()] = _fetch(cursor, max_rows)
    return tables


def _has_rows(connection: sqlite3.Connection) -> bool:
    return any(
        connection.execute(f"SELECT 1 FROM {_quote(name)} LIMIT 1").fetchone()  # noqa: S608
        for name in _table_names(connection)
    )


def _thin(connection: sqlite3.Connection, without: int) -> None:
    for name in _table_names(connection):
        try:
            connection.execute(f"DELETE FROM {_quote(name)} WHERE rowid % 2 = ?", (without,))  # noqa: S608
        except sqlite3.Error:
            continue  # a view, or a table without row ids, stays unchanged


if __name__ == "__main__":
    main()
