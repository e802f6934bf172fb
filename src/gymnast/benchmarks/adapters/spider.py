"""Spider: questions with the schema of their database, and the path of the database on this machine."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from gymnast.benchmarks.rows import read_rows as read_file

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from gymnast.types.json import JsonObject


def read_rows(files: Mapping[str, Path]) -> Iterator[JsonObject]:
    databases = {PurePosixPath(name).stem: path for name, path in files.items() if name.endswith(".sqlite")}
    schemas: dict[str, str] = {}
    for name, path in files.items():
        if name.endswith(".sqlite"):
            continue
        for row in read_file(path, name):
            database = row["db_id"]
            if database not in schemas:
                schemas[database] = read_schema(databases[database])
            yield {
                "question": row["question"],
                "schema": schemas[database],
                "sql": row["query"],
                "db_id": database,
                "database": str(databases[database].absolute()),
            }


def read_schema(path: Path) -> str:
    """The CREATE statements of a database."""
    with closing(sqlite3.connect(f"file:{path}?mode=ro&immutable=1", uri=True)) as connection:
        statement = "SELECT sql FROM sqlite_master WHERE sql IS NOT NULL AND type IN ('table', 'view') ORDER BY rowid"
        return "\n\n".join(f"{sql.strip()};" for (sql,) in connection.execute(statement))
