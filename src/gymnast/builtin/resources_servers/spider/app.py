"""Text to SQL on databases in files, as in Spider: the query must have the same result as the reference."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Final

from pydantic import PositiveFloat, PositiveInt

from gymnast.kit import (
    Attempt,
    CpuTimeExceededError,
    Environment,
    EnvironmentSettings,
    HttpError,
    ProcessPool,
    ServerContext,
    Task,
    Verdict,
    WorkerCrashedError,
    WorkerTimeoutError,
)

_EXAMPLES: Final = Path(__file__).parent / "data" / "database"
_BLOCK: Final = re.compile(r"```[ \t]*+\w*+[ \t]*+\n(.*?)(?:\n[ \t]*+```|\Z)", re.DOTALL)
_QUERY: Final = re.compile(r"\b(?:select|with)\b.*", re.IGNORECASE | re.DOTALL)


class SpiderSettings(EnvironmentSettings):
    database_dir: str | None = None
    """A folder with DB/DB.sqlite for each database, instead of the paths that rows name."""
    keep_distinct: bool = False
    """Whether DISTINCT matters. As published, it is removed from both queries."""
    query_timeout_s: PositiveFloat = 60.0
    """CPU time for both queries."""
    verify_processes: PositiveInt = 2


class SpiderTask(Task):
    sql: str
    db_id: str
    database: str | None = None
    """The path of the SQLite file."""


class SpiderVerdict(Verdict):
    extracted_answer: str | None
    detail: str | None


class Spider(Environment[SpiderTask, None]):
    """Scores one query; no session, no tools."""

    settings: SpiderSettings

    def __init__(self, name: str, settings: SpiderSettings, context: ServerContext) -> None:
        super().__init__(name, settings, context)
        self._pool = self.own_pool(
            ProcessPool(
                "gymnast.builtin.resources_servers.spider.execution:compare",
                size=settings.verify_processes,
                cpu_s=settings.query_timeout_s,
                memory_mb=2048,
            )
        )

    async def verify(self, attempt: Attempt[SpiderTask, None]) -> SpiderVerdict:
        task = attempt.task
        query = await asyncio.to_thread(extract_query, attempt.text)  # a long text would block the loop
        if query is None:
            return SpiderVerdict(reward=0.0, extracted_answer=None, detail="no query in the answer")
        try:
            result = await self._pool.call(self._database(task), task.sql, query, self.settings.keep_distinct)
        except (CpuTimeExceededError, WorkerTimeoutError):
            result = {"match": False, "detail": f"the queries took more than {self.settings.query_timeout_s:g} s"}
        except WorkerCrashedError as error:
            if error.code is None or error.code >= 0:
                raise  # not by a signal: the worker could not start, and the query is not to blame
            result = {"match": False, "detail": f"the query ended its process: {error}"}
        if result["match"] is None:
            raise HttpError(422, f"cannot grade this row: {result['detail']}")
        return SpiderVerdict(reward=float(result["match"]), extracted_answer=query, detail=result["detail"])

    def _database(self, task: SpiderTask) -> str:
        if task.database is not None and self.settings.database_dir is None:
            return task.database
        folder = Path(self.settings.database_dir or _EXAMPLES).expanduser()
        return str(folder / task.db_id / f"{task.db_id}.sqlite")


def extract_query(text: str) -> str | None:
    """The query in the last fenced block, or from the first SELECT or WITH of the text to its semicolon."""
    match = None
    for block in _BLOCK.finditer(text):
        match = _QUERY.search(block[1]) or match
    match = match or _QUERY.search(text)
    return match[0].partition(";")[0].strip() or None if match else None
