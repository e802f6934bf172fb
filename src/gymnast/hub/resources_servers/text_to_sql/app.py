"""Questions to a database as SQL: graded by a judge, by running both queries on SQLite, or by running, then judging."""

from __future__ import annotations

import asyncio
from enum import StrEnum
from typing import Any, Literal

from pydantic import PositiveFloat

from gymnast.hub.resources_servers.text_to_sql.execution import Executor, Finding
from gymnast.hub.resources_servers.text_to_sql.judging import QUESTION, SYSTEM_MESSAGE
from gymnast.hub.resources_servers.text_to_sql.queries import query_in
from gymnast.kit import Attempt, Task, Verdict
from gymnast.kit.judge import Judge, JudgedSettings
from gymnast.kit.judging import LONGEST_SHOWN, JudgeEvaluation, Labels
from gymnast.kit.sandboxed import SandboxedEnvironment, SandboxedSettings
from gymnast.wire.server import HttpError, Surroundings

Grading = Literal["judge", "execution", "execution_then_judge"]


class FailureCode(StrEnum):
    """Why an answer has no reward."""

    NO_SQL = "no_sql_extracted"
    TOO_LONG = "query_too_long"
    EXECUTION_ERROR = "execution_error"
    EXECUTION_TIMEOUT = "execution_timeout"
    RESULT_MISMATCH = "result_mismatch"
    NOT_EQUAL = "judge_not_equal"
    SWAP_DISAGREES = "judge_swap_disagrees"


_LONG = 20_000
_CODES = {
    "error": FailureCode.EXECUTION_ERROR,
    "timeout": FailureCode.EXECUTION_TIMEOUT,
    "mismatch": FailureCode.RESULT_MISMATCH,
}


class TextToSqlSettings(JudgedSettings, SandboxedSettings):
    name: str = "text_to_sql"
    grading: Grading = "judge"
    """execution_then_judge: a judge decides only where running the queries says nothing."""
    execution_dialects: tuple[str, ...] = ("sqlite", "sqlite3")
    """Values of `sql_dialect` whose rows are run on SQLite."""
    execution_timeout_s: PositiveFloat = 10.0
    """For one query."""
    vary_database: bool = True
    """Compare on parts of the row's database, too: an answer that recites the result fails there."""
    judge_system_message: str = SYSTEM_MESSAGE
    judge_equal_label: str = "[[A=B]]"
    judge_not_equal_label: str = "[[A!=B]]"
    check_twice_swap: bool = True
    """Ask the judge in both orders; both must agree."""
    reward_if_swap_fails: float = 0.0


class TextToSqlTask(Task):
    uuid: str | int | None = None
    sql: str
    sql_dialect: str
    sql_context: str = ""
    sql_prompt: str
    metadata: dict[str, Any] | None = None


class TextToSqlVerdict(Verdict):
    uuid: str | int | None = None
    sql: str
    model_output: str
    extracted_sql: str | None = None
    sql_dialect: str
    sql_context: str
    sql_prompt: str
    execution_match: bool | None = None
    """None where the queries were not run, or running them says nothing."""
    execution_detail: str | None = None
    judge_passed: bool = False
    failure_reason: FailureCode | None = None
    judge_evaluations: list[JudgeEvaluation] = []
    metadata: dict[str, Any] | None = None


class TextToSql(SandboxedEnvironment[TextToSqlTask, None]):
    """Scores one query; there is no session and there are no tools."""

    settings: TextToSqlSettings

    def __init__(self, name: str, settings: TextToSqlSettings, surroundings: Surroundings) -> None:
        super().__init__(name, settings, surroundings)
        labels = Labels(settings.judge_equal_label, settings.judge_not_equal_label)
        self._judge = Judge(self.calls, settings, labels, system=settings.judge_system_message)
        self._executor: Executor | None = None

    @property
    def needs_sandbox(self) -> bool:
        return self.settings.grading != "judge"

    async def start(self) -> None:
        await super().start()
        if self.needs_sandbox:
            settings = self.settings
            self._executor = Executor(
                self.sandbox, self.limits, settings.execution_timeout_s, vary=settings.vary_database
            )

    async def verify(self, attempt: Attempt[TextToSqlTask, None]) -> TextToSqlVerdict:
        task = attempt.task
        text = attempt.text
        query = await asyncio.to_thread(query_in, text) if len(text) > _LONG else query_in(text)
        verdict = TextToSqlVerdict(
            reward=0.0,
            **{name: getattr(task, name) for name in TextToSqlTask.model_fields},
            model_output=text,
            extracted_sql=query,
        )
        if query is None:
            verdict.failure_reason = FailureCode.NO_SQL
            return verdict
        found = await self._executed(task, query)
        verdict.execution_detail = found.detail
        if found.status == "inconclusive":
            await self._ask_judge(attempt, query, verdict)
        else:
            verdict.execution_match = found.status == "match"
            verdict.reward = float(verdict.execution_match)
            verdict.failure_reason = _CODES.get(found.status)
        return verdict

    async def _executed(self, task: TextToSqlTask, query: str) -> Finding:
        if self._executor is None:
            return Finding("inconclusive")
        found = Finding("inconclusive", f"queries in {task.sql_dialect or 'no dialect'} are not run on SQLite")
        if task.sql_dialect.strip().lower() in self.settings.execution_dialects:
            found = await self._executor.compare(task.sql_context, task.sql, query)
        if found.status == "inconclusive" and self.settings.grading == "execution":
            next_step = "grade such rows with grading: execution_then_judge"
            raise HttpError(422, f"this row cannot be graded by execution: {found.detail}; {next_step}")
        return found

    async def _ask_judge(self, attempt: Attempt[TextToSqlTask, None], query: str, verdict: TextToSqlVerdict) -> None:
        task, settings = attempt.task, self.settings
        if len(query) > LONGEST_SHOWN:  # a part of it is another query, and all of it too much for a judge
            verdict.failure_reason = FailureCode.TOO_LONG
            return

        def question(first: str, second: str) -> str:
            asked = {"dialect": task.sql_dialect, "context": task.sql_context, "question": task.sql_prompt}
            shown = {**asked, "first": first, "second": second}
            return QUESTION.filled(**{name: self._judge.labels.defused(text) for name, text in shown.items()})

        if settings.check_twice_swap:
            opinions = await self._judge.ask_both_orders(question, task.sql, query, attempt.scope)
        else:
            opinions = [await self._judge.ask(question(task.sql, query), attempt.scope)]
        verdict.judge_evaluations = [evaluation for opinion in opinions for evaluation in opinion.evaluations]
        equal = [opinion.label == self._judge.labels.equal for opinion in opinions]
        verdict.judge_passed = all(equal)
        if verdict.judge_passed:
            verdict.reward = 1.0
        elif equal[0]:
            verdict.reward, verdict.failure_reason = settings.reward_if_swap_fails, FailureCode.SWAP_DISAGREES
        else:
            verdict.failure_reason = FailureCode.NOT_EQUAL
