"""Multiple choice: finds the letter that a model chose by one of several grading rules."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, ClassVar, Final, Literal

from pydantic import PositiveFloat, PositiveInt

from gymnast.builtin.response_texts import stated_text
from gymnast.kit import (
    Attempt,
    CpuTimeExceededError,
    CustomMetrics,
    Environment,
    EnvironmentSettings,
    InvalidBody,
    JsonObject,
    PassMajority,
    ProcessPool,
    ScoringSettings,
    ServerContext,
    Task,
    Verdict,
    highest_k,
)

from .grading import Options, grade


def _select(metrics: Mapping[str, Any]) -> dict[str, Any]:
    return {
        **{name: metrics[name] for name in ("mean/reward",) if name in metrics},
        **highest_k(metrics, "pass@1[avg-of-{k}]", ["accuracy", "no_answer"]),
        **highest_k(metrics, "pass@{k}", ["no_answer"]),
        **highest_k(metrics, "majority@{k}", ["accuracy"]),
        **{name: metrics[name] for name in ("pass@1/accuracy",) if name in metrics},
    }


METRICS: Final = PassMajority(answer_field="extracted_answer", select=_select)


RowMode = Literal["strict_single_letter_boxed", "lenient_boxed", "lenient_answer_colon"]
_MAX_PATTERN: Final = 10_000
"""Longer patterns are refused under strict scoring."""
_MAX_INLINE_CHARS: Final = 100_000
"""Longer texts are graded in another process: the rules take at most about 0.2 ms per 1,000 characters."""
ServerMode = Literal["strict_single_letter_boxed", "lenient_boxed", "lenient_answer_colon", "lenient_answer_colon_md"]


class MCQASettings(ScoringSettings, EnvironmentSettings):
    grading_mode: ServerMode | None = None
    """Overrides the grading rule of all rows."""
    regex_timeout_s: PositiveFloat = 5.0
    """CPU time after which a row's pattern counts as not matching."""
    verify_processes: PositiveInt = 2
    """Processes for patterns and for very long answers, started when needed."""


class MCQATask(Task):
    uuid: str | None = None
    options: list[dict[str, str | None]] | None = None
    expected_answer: str | None = None
    metadata: dict[str, Any] | None = None
    grading_mode: RowMode = "strict_single_letter_boxed"
    template_metadata: dict[str, Any] | None = None

    def unscorable_reason(self, params: JsonObject) -> str | None:
        letters = [letter for letter, _ in _options(self)]
        expected = (self.expected_answer or "").strip().upper()
        if not expected:
            return "no expected_answer: every answer gets 0"
        if letters and expected not in letters and not self.template_metadata:
            return f"expected_answer is not one of the options ({', '.join(letters)}): every answer gets 0"
        return None


class MCQAVerdict(Verdict):
    expected_answer: str
    extracted_answer: str | None


class MCQA(Environment[MCQATask, None]):
    """Scores one answer; no session, no tools."""

    settings: MCQASettings
    custom_metrics: ClassVar[CustomMetrics] = METRICS

    def __init__(self, name: str, settings: MCQASettings, context: ServerContext) -> None:
        super().__init__(name, settings, context)
        self._pool = self.own_pool(
            ProcessPool(
                "gymnast.builtin.resources_servers.mcqa.grading:grade",
                size=settings.verify_processes,
                cpu_s=settings.regex_timeout_s,
            )
        )

    def parse_task(self, row: dict[str, Any]) -> MCQATask:
        task = super().parse_task(row)
        if self.settings.scoring == "strict":
            _check_strictly(task.template_metadata)
        return task

    async def verify(self, attempt: Attempt[MCQATask, None]) -> MCQAVerdict:
        task, stated = attempt.task, stated_text(attempt.response)
        text = (attempt.text if stated is None or self.settings.scoring == "strict" else stated).strip()
        expected = (task.expected_answer or "").strip().upper()
        chosen = await self._choice(text, _options(task), task) if text else None
        reward = 1.0 if chosen is not None and chosen == expected else 0.0
        return MCQAVerdict(reward=reward, expected_answer=expected, extracted_answer=chosen)

    async def _choice(self, text: str, options: Options, task: MCQATask) -> str | None:
        scoring = self.settings.scoring
        for pattern in _patterns(task.template_metadata):
            if not isinstance(pattern, str):
                raise _invalid_pattern(_wrong_type(pattern))
            if not self._compiles(pattern):
                continue
            try:
                letter: str | None = await self._pool.call(text, options, scoring, "pattern", pattern)
            except CpuTimeExceededError:
                self.warn_once(f"output_regex {pattern[:200]!r} timed out after {self.settings.regex_timeout_s:g} s")
                continue
            if letter is not None:
                return letter
        mode = self.settings.grading_mode or task.grading_mode
        if len(text) <= _MAX_INLINE_CHARS:
            return grade(text, options, scoring, "mode", mode)
        chosen: str | None = await self._pool.call(text, options, scoring, "mode", mode)
        return chosen

    def _compiles(self, pattern: str) -> bool:
        """NeMo Gym takes an invalid pattern for one that does not match; under strict scoring the row is refused."""
        try:
            re.compile(pattern)
        except (re.error, RecursionError, OverflowError) as error:
            problem = f"output_regex: invalid regular expression {pattern[:200]!r}: {error}"
            if self.settings.scoring == "strict":
                raise _invalid_pattern(problem) from error
            self.warn_once(problem)
            return False
        return True


def _options(task: MCQATask) -> Options:
    entries = [(letter, text) for option in task.options or () for letter, text in option.items()]
    return [
        (letter.upper(), text) for letter, text in entries if len(letter) == 1 and letter.isalpha() and text is not None
    ]


def _patterns(template: dict[str, Any] | None) -> list[Any]:
    """The row's patterns. What is not text is refused when it is used, as NeMo Gym scores what comes before it."""
    value = (template or {}).get("output_regex")
    if isinstance(value, str) or not isinstance(value, list | dict):
        return [] if value is None else [value]
    return list(value)


def _check_strictly(template: dict[str, Any] | None) -> None:
    value = (template or {}).get("output_regex")
    for pattern in [value] if isinstance(value, dict) else _patterns(template):
        if not isinstance(pattern, str):
            raise _invalid_pattern(_wrong_type(pattern))
        if len(pattern) > _MAX_PATTERN:
            problem = f"output_regex has {len(pattern)} characters, more than the {_MAX_PATTERN} allowed"
            raise _invalid_pattern(problem)


def _wrong_type(pattern: object) -> str:
    return f"output_regex: expected a regular expression, got {str(pattern)[:200]}"


def _invalid_pattern(problem: str) -> InvalidBody:
    return InvalidBody.of_field(problem, "template_metadata", "output_regex")
