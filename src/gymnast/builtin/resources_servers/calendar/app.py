"""Calendar: the model schedules events by the user's wishes and shows the calendar as a JSON list."""

from __future__ import annotations

from typing import Any, Final

from pydantic import PositiveInt

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

from . import nemo_gym_rules, strict_rules

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
            ProcessPool(
                f"{__package__}.{settings.scoring}_rules:grade", size=settings.verify_processes, cpu_s=_MAX_CPU_S
            )
        )

    def parse_task(self, row: dict[str, Any]) -> CalendarTask:
        task = super().parse_task(row)
        if self.settings.scoring == "strict":
            try:
                strict_rules.parse_slots(task.exp_cal_state)
            except ValueError as error:
                raise InvalidBody.of_field(str(error), "exp_cal_state") from error
        return task

    async def verify(self, attempt: Attempt[CalendarTask, None]) -> CalendarVerdict:
        scoring, expected = self.settings.scoring, attempt.task.exp_cal_state
        text = attempt.last_text if scoring == "strict" else nemo_gym_rules.find_answer(attempt.output)
        rules = strict_rules if scoring == "strict" else nemo_gym_rules
        is_short = len(text) <= _MAX_INLINE_CHARS
        reason = rules.grade(text, expected) if is_short else await self._grade_elsewhere(text, expected)
        return CalendarVerdict(reward=float(reason == "pass"), grade_reason=reason)

    async def _grade_elsewhere(self, text: str, expected: dict[str, Any]) -> str:
        try:
            return str(await self._pool.call(text, expected))
        except (CpuTimeExceededError, WorkerTimeoutError) as error:
            problem = f"{self.name}: grading a reply of {len(text)} characters took too long: {error}"
            raise CallError(
                FailureDetail(FailureKind.VERIFIER_TIMEOUT, Stage.VERIFY, problem, instance=self.name)
            ) from error
