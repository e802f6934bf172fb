"""Grading of proofs: the model reads a problem and a proof, and its last word is one of four grades."""

from __future__ import annotations

from typing import Any, ClassVar

from gymnast.kit import (
    Attempt,
    CustomMetrics,
    Environment,
    EnvironmentSettings,
    InvalidBody,
    ScoringSettings,
    Task,
    Verdict,
)

from .grades import POINTS, distance, expected_grade, is_same_half, join_messages, last_word_grade, strict_grade
from .metrics import METRICS


class ImoGradingBenchSettings(ScoringSettings, EnvironmentSettings):
    pass


class ImoGradingBenchTask(Task):
    expected_answer: str | None = None
    grading_id: str | None = None
    problem_id: str | None = None


class ImoGradingBenchVerdict(Verdict):
    expected_answer: str | None
    extracted_grade: str | None
    binary_match: bool
    score_diff: float | None


class ImoGradingBench(Environment[ImoGradingBenchTask, None]):
    """Scores one grade; no session, no tools."""

    settings: ImoGradingBenchSettings
    custom_metrics: ClassVar[CustomMetrics] = METRICS

    def parse_task(self, row: dict[str, Any]) -> ImoGradingBenchTask:
        task = super().parse_task(row)
        if self.settings.scoring == "strict" and expected_grade(task.expected_answer) is None:
            problem = f"expected_answer must be one of {', '.join(POINTS)}, got {task.expected_answer!r}"
            raise InvalidBody.of_field(problem, "expected_answer")
        return task

    def repeat_fields(self, fields: dict[str, Any], task: ImoGradingBenchTask) -> dict[str, Any]:
        return {**fields, **task.model_dump()}

    async def verify(self, attempt: Attempt[ImoGradingBenchTask, None]) -> ImoGradingBenchVerdict:
        if self.settings.scoring == "strict":
            grade = strict_grade(attempt.last_text)
        else:
            grade = last_word_grade(join_messages(attempt.output))
        expected = expected_grade(attempt.task.expected_answer)
        is_comparable = grade is not None and expected is not None
        return ImoGradingBenchVerdict(
            reward=float(grade is not None and grade == expected),
            expected_answer=attempt.task.expected_answer,
            extracted_grade=grade,
            binary_match=is_comparable and is_same_half(str(grade), str(expected)),
            score_diff=distance(str(grade), str(expected)) if is_comparable else None,
        )
