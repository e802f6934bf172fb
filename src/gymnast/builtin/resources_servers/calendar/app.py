"""Calendar: the model schedules events by the user's wishes and shows the calendar as a JSON list."""

from __future__ import annotations

from typing import Any, Final

from pydantic import PositiveInt

from gymnast.builtin.resources_servers.calendar import nemo_gym_rules, strict_rules
from gymnast.builtin.resources_servers.calendar.grading import grade
from gymnast.kit import (
    Attempt,
    CallError,
    CpuTimeExceededError,
    Environment,
    EnvironmentSettings,
    FailureDetail,
    FailureKind,
    InvalidBody,
    ProcessPool,
    ScoringSettings,
    ServerContext,
    Stage,
    Task,
    Verdict,
    WorkerTimeoutError,
)

_MAX_INLINE_CHARS: Final = 20_000
"""Longer replies are graded in another process: grading takes at most about 1 ms per 1,000 characters."""

_MAX_CPU_S: Final = 60.0


class CalendarSettings(ScoringSettings, EnvironmentSettings):
    verify_processes: PositiveInt = 2
    """Processes for very long replies, started when needed."""


class CalendarTask(Task):
    exp_cal_state: dict[str, Any]
    """By event id: `duration`, `constraint`, `min_time` and `max_time` of each event."""


class CalendarVerdict(Verdict):
    grade_reason: str


class Calendar(Environment[CalendarTask, None]):
    """Scores the calendar in the last message; no session, no tools."""

    settings: CalendarSettings

    def __init__(self, name: str, settings: CalendarSettings, context: ServerContext) -> None:
        super().__init__(name, settings, context)
        self._pool = self.own_pool(
            ProcessPool(f"{__package__}.grading:grade", size=settings.verify_processes, cpu_s=_MAX_CPU_S)
        )

    def parse_task(self, row: dict[str, Any]) -> CalendarTask:
        task = super().parse_task(row)
        if self.settings.scoring == "strict":
            try:
                strict_rules.parse_slots(task.exp_cal_state)
            except ValueError as error:
                where = ["body", "exp_cal_state"]
                raise InvalidBody([{"type": "value_error", "loc": where, "msg": str(error), "input": None}]) from error
        return task

    async def verify(self, attempt: Attempt[CalendarTask, None]) -> CalendarVerdict:
        scoring, expected = self.settings.scoring, attempt.task.exp_cal_state
        text = attempt.last_text if scoring == "strict" else nemo_gym_rules.find_answer(attempt.output)
        is_short = len(text) <= _MAX_INLINE_CHARS
        reason = grade(text, expected, scoring) if is_short else await self._grade_elsewhere(text, expected)
        return CalendarVerdict(reward=float(reason == "pass"), grade_reason=reason)

    async def _grade_elsewhere(self, text: str, expected: dict[str, Any]) -> str:
        try:
            return str(await self._pool.call(text, expected, self.settings.scoring))
        except (CpuTimeExceededError, WorkerTimeoutError) as error:
            problem = f"{self.name}: grading a reply of {len(text)} characters took too long: {error}"
            raise CallError(
                FailureDetail(FailureKind.VERIFIER_TIMEOUT, Stage.VERIFY, problem, instance=self.name)
            ) from error
