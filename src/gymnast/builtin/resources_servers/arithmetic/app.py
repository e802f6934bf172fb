"""Arithmetic: scores the number after the last `Answer:`."""

from __future__ import annotations

from gymnast.builtin.graded_tasks import last_number
from gymnast.kit import Attempt, Environment, Task, Verdict


class ArithmeticTask(Task):
    expected_answer: int
    level: int = 1


class ArithmeticVerdict(Verdict):
    expected_answer: int
    extracted_answer: int | None
    level: int


class Arithmetic(Environment[ArithmeticTask, None]):
    """Scores one answer; no session, no tools."""

    async def verify(self, attempt: Attempt[ArithmeticTask, None]) -> ArithmeticVerdict:
        task, answer = attempt.task, last_number(attempt.last_text)
        return ArithmeticVerdict(
            reward=float(answer == task.expected_answer),
            expected_answer=task.expected_answer,
            extracted_answer=answer,
            level=task.level,
        )
