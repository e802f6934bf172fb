"""Letters of words: scores the text after the last `Answer:`."""

from __future__ import annotations

from gymnast.builtin.graded_tasks import last_answer
from gymnast.kit import Attempt, Environment, Task, Verdict


class WordTask(Task):
    expected_answer: str
    level: int = 1


class WordVerdict(Verdict):
    expected_answer: str
    extracted_answer: str | None
    level: int


class WordTasks(Environment[WordTask, None]):
    """Scores one answer, ignoring case; no session, no tools."""

    async def verify(self, attempt: Attempt[WordTask, None]) -> WordVerdict:
        task, answer = attempt.task, last_answer(attempt.last_text)
        return WordVerdict(
            reward=float(answer is not None and answer.casefold() == task.expected_answer.casefold()),
            expected_answer=task.expected_answer,
            extracted_answer=answer,
            level=task.level,
        )
