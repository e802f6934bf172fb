"""Multiple choice: the letter a model chose, found by one of several grading rules, compared with the expected one."""

from __future__ import annotations

import re
from typing import Any, Literal

from pydantic import field_validator

from gymnast.hub.resources_servers.mcqa.grading import choice_of
from gymnast.kit import Attempt, Environment, EnvironmentSettings, Task, Verdict

RowMode = Literal["strict_single_letter_boxed", "lenient_boxed", "lenient_answer_colon"]
ServerMode = Literal["strict_single_letter_boxed", "lenient_boxed", "lenient_answer_colon", "lenient_answer_colon_md"]


class MCQASettings(EnvironmentSettings):
    grading_mode: ServerMode | None = None
    """Forces one rule for all rows."""


class MCQATask(Task):
    uuid: str | None = None
    options: list[dict[str, str | None]] | None = None
    expected_answer: str | None = None
    metadata: dict[str, Any] | None = None
    grading_mode: RowMode = "strict_single_letter_boxed"
    template_metadata: dict[str, Any] | None = None

    @field_validator("template_metadata")
    @classmethod
    def _patterns_compile(cls, value: dict[str, Any] | None) -> dict[str, Any] | None:
        for pattern in _patterns(value):
            try:
                re.compile(pattern)
            except re.error as error:
                raise ValueError(f"output_regex {pattern!r} is no regular expression: {error}") from error
        return value


class MCQAVerdict(Verdict):
    expected_answer: str
    extracted_answer: str | None


class MCQA(Environment[MCQATask, None]):
    """Scores one answer; there is no session and there are no tools."""

    settings: MCQASettings

    async def verify(self, attempt: Attempt[MCQATask, None]) -> MCQAVerdict:
        task = attempt.task
        options = {letter.upper(): text or "" for option in task.options or () for letter, text in option.items()}
        expected = (task.expected_answer or "").strip().upper()
        mode = self.settings.grading_mode or task.grading_mode
        patterns = _patterns(task.template_metadata) if task.template_metadata else ()
        chosen = choice_of(attempt.text, options, mode, patterns)
        reward = 1.0 if chosen is not None and chosen == expected else 0.0
        return MCQAVerdict(reward=reward, expected_answer=expected, extracted_answer=chosen)


def _patterns(template: dict[str, Any] | None) -> list[str]:
    given = (template or {}).get("output_regex") or []
    return [given] if isinstance(given, str) else [str(pattern) for pattern in given]
