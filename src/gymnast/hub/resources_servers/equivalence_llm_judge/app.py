"""Short answers to open questions: a judge says whether what a model answered is equivalent to the expected answer."""

from __future__ import annotations

import re
from enum import Enum
from typing import TYPE_CHECKING, Any, Final

from pydantic import FiniteFloat, PositiveInt, field_validator

from gymnast.errors import CallError
from gymnast.hub.cpu_time import GRACE_S
from gymnast.kit import Attempt, Environment, Task, Verdict
from gymnast.kit.judge import Judge, JudgedSettings
from gymnast.kit.judging import JudgeEvaluation, Labels, load_template, shortened
from gymnast.kit.work_pool import WorkOverrunError, WorkPool, WorkTimeoutError
from gymnast.types.failure import FailureDetail, Stage
from gymnast.types.responses import message_text
from gymnast.wire.validate import InvalidBody

if TYPE_CHECKING:
    from gymnast.wire.server import Surroundings

_LAST_MATCH: Final = f"{__package__}.extraction:last_match"
_PATTERN_CPU_S: Final = 2.0
_WORKERS: Final = 2
_FIELDS: Final = ("question", "expected_answer", "generated_answer", "equal_label", "not_equal_label")


class Agreement(Enum):
    """What a judge makes of two answers."""

    EQUAL = 1
    IN_ONE_ORDER = 2
    DIFFERENT = 3


def _compiles(pattern: str | None) -> str | None:
    try:
        re.compile(pattern or "")
    except re.error as error:
        raise ValueError(f"{pattern!r} is no regular expression: {error}") from error
    return pattern


class EquivalenceSettings(JudgedSettings):
    judge_system_message: str | None = None
    judge_prompt_template_fpath: str = (
        "resources_servers/equivalence_llm_judge/prompt_templates/equivalence_llm_judge.txt"
    )
    """A text with {question}, {expected_answer} and {generated_answer}; also {equal_label} and {not_equal_label}."""
    judge_equal_label: str = "[[A=B]]"
    judge_not_equal_label: str = "[[A!=B]]"
    question_extract_regex: str | None = None
    """Finds the question in the last user message; unset, the row's `question` is used, else all of that message."""
    response_extract_regex: str | None = None
    """Finds the answer in the last assistant message; unset, all of it is the answer."""
    msg_extraction_failure: str = "[NO VALID ANSWER EXTRACTED]"
    """Shown to the judge where that finds nothing."""
    check_twice_swap: bool = False
    """Ask in both orders."""
    reward_if_swap_fails: FiniteFloat = 0.0
    """Where only the first order says they are equivalent."""
    use_per_record_regex: bool = True
    """A row's `template_metadata.output_regex` goes before response_extract_regex."""
    extraction_length_threshold: PositiveInt | None = 120
    """An expected answer that is longer is compared with all of the message: no pattern finds such answers."""
    check_full_generation_on_fail: bool = True
    """Where the extracted answer is not equivalent, ask about all of the message."""
    reward_if_full_generation_succeeds: FiniteFloat = 0.5

    _patterns = field_validator("question_extract_regex", "response_extract_regex")(_compiles)


class EquivalenceTask(Task):
    uuid: str | int | None = None
    question: str | None = None
    expected_answer: str | None = None
    options: list[dict[str, str]] | None = None
    metadata: dict[str, Any] | None = None
    template_metadata: dict[str, Any] | None = None

    @field_validator("template_metadata")
    @classmethod
    def _pattern(cls, value: dict[str, Any] | None) -> dict[str, Any] | None:
        pattern = (value or {}).get("output_regex")
        if not isinstance(pattern, str | None):
            raise ValueError("output_regex is a regular expression")  # noqa: TRY004 - pydantic's way
        _compiles(pattern)
        return value

    @property
    def answer(self) -> str:
        """The expected answer: the row's, or that in its metadata."""
        return str(self.expected_answer or (self.metadata or {}).get("expected_answer") or "").strip()


class EquivalenceVerdict(Verdict):
    expected_answer: str
    judge_evaluations: list[JudgeEvaluation]


class EquivalenceJudge(Environment[EquivalenceTask, None]):
    """Scores one answer; there is no session and there are no tools."""

    settings: EquivalenceSettings

    def __init__(self, name: str, settings: EquivalenceSettings, surroundings: Surroundings) -> None:
        super().__init__(name, settings, surroundings)
        labels = Labels(settings.judge_equal_label, settings.judge_not_equal_label)
        self._template = load_template(settings.judge_prompt_template_fpath, _FIELDS)
        self._judge = Judge(self.calls, settings, labels, system=settings.judge_system_message)
        self._workers = WorkPool(_LAST_MATCH, size=_WORKERS, cpu_s=_PATTERN_CPU_S + GRACE_S)

    async def stop(self) -> None:
        await self._workers.close()
        await super().stop()

    def task_of(self, row: dict[str, Any]) -> EquivalenceTask:
        task = super().task_of(row)
        if not task.answer:
            text = "expected_answer is missing: there is nothing to compare with"
            raise InvalidBody([{"type": "missing", "loc": ["body", "expected_answer"], "msg": text, "input": None}])
        return task

    async def verify(self, attempt: Attempt[EquivalenceTask, None]) -> EquivalenceVerdict:
        asked: list[JudgeEvaluation] = []
        text = attempt.last_text
        reward = await self._reward(attempt, text, asked) if text.strip() else 0.0  # who says nothing is not judged
        return EquivalenceVerdict(reward=reward, expected_answer=attempt.task.answer, judge_evaluations=asked)

    async def _reward(self, attempt: Attempt[EquivalenceTask, None], text: str, asked: list[JudgeEvaluation]) -> float:
        settings, pattern = self.settings, self._pattern_for(attempt.task)
        question = await self._question(attempt)
        answer = text if pattern is None else await self._found(pattern, text) or settings.msg_extraction_failure
        agreement = await self._agreement(attempt, question, answer, asked)
        if agreement is Agreement.EQUAL:
            return 1.0
        reward = settings.reward_if_swap_fails if agreement is Agreement.IN_ONE_ORDER else 0.0
        if pattern is not None and settings.check_full_generation_on_fail:
            agreement = await self._agreement(attempt, question, text, asked)
            if agreement is Agreement.EQUAL:
                reward = max(reward, settings.reward_if_full_generation_succeeds)
        return reward

    def _pattern_for(self, task: EquivalenceTask) -> str | None:
        """The pattern that finds the answer, or None where all of the message is the answer."""
        threshold, own = self.settings.extraction_length_threshold, (task.template_metadata or {}).get("output_regex")
        if threshold is not None and len(task.answer) > threshold:
            return None
        return own if own and self.settings.use_per_record_regex else self.settings.response_extract_regex

    async def _question(self, attempt: Attempt[EquivalenceTask, None]) -> str:
        pattern, given = self.settings.question_extract_regex, attempt.params["input"]
        if pattern is None and attempt.task.question:
            return attempt.task.question
        items = [{"role": "user", "content": given}] if isinstance(given, str) else given
        asked = next((message_text(item) for item in reversed(items) if item.get("role") == "user"), "")
        return asked if pattern is None else await self._found(pattern, asked) or asked

    async def _found(self, pattern: str, text: str) -> str | None:
        try:
            found: str | None = await self._workers.call(pattern, text, _PATTERN_CPU_S)
        except WorkOverrunError:
            return None
        except WorkTimeoutError as error:
            said = f"{self.name}: a worker got too little of a core: {error}"
            raise CallError(FailureDetail("verifier_timeout", Stage.VERIFY, said, instance=self.name)) from error
        return found

    async def _agreement(
        self, attempt: Attempt[EquivalenceTask, None], question: str, answer: str, asked: list[JudgeEvaluation]
    ) -> Agreement:
        judge, expected, shown = self._judge, attempt.task.answer, self._judge.labels.defused(shortened(answer))

        def prompt(first: str, second: str) -> str:
            both = {"equal_label": judge.labels.equal, "not_equal_label": judge.labels.not_equal}
            return self._template.filled(question=question, expected_answer=first, generated_answer=second, **both)

        if self.settings.check_twice_swap:
            opinions = await judge.ask_both_orders(prompt, expected, shown, attempt.scope)
        else:
            opinions = [await judge.ask(prompt(expected, shown), attempt.scope)]
        asked += [evaluation for opinion in opinions for evaluation in opinion.evaluations]
        if all(opinion.label == judge.labels.equal for opinion in opinions):
            return Agreement.EQUAL
        return Agreement.DIFFERENT if len(opinions) == 1 else Agreement.IN_ONE_ORDER
