"""Short answers to open questions: a judge decides whether an answer is equivalent to the expected one."""

from __future__ import annotations

import re
from enum import Enum
from typing import Any, Final, Self

from pydantic import FiniteFloat, model_validator

from gymnast.builtin.cpu_time import GRACE_S
from gymnast.builtin.judge_texts import last_part
from gymnast.kit import (
    Attempt,
    CallError,
    CpuTimeExceededError,
    Environment,
    FailureDetail,
    FailureKind,
    InvalidBody,
    JsonObject,
    Judge,
    JudgedSettings,
    JudgeEvaluation,
    Labels,
    ProcessPool,
    ScoringSettings,
    ServerContext,
    Stage,
    Task,
    Verdict,
    WorkerTimeoutError,
    load_template,
    message_text,
    truncate_start,
)

from .nemo_gym_rules import choose_pattern, find_expected, last_message, last_question

_LAST_MATCH: Final = f"{__package__}.extraction:last_match"
_PATTERN_CPU_S: Final = 2.0
_WORKERS: Final = 2
_FIELDS: Final = ("question", "expected_answer", "generated_answer", "equal_label", "not_equal_label")


class Agreement(Enum):
    """The judge's verdict on two answers."""

    EQUAL = 1
    EQUAL_IN_ONE_ORDER = 2
    DIFFERENT = 3


def _pattern_problem(pattern: Any) -> str | None:
    if not isinstance(pattern, str | None):
        return f"expected a regular expression, got {pattern!r}"
    try:
        re.compile(pattern or "")
    except (re.error, RecursionError, OverflowError) as error:
        return f"invalid regular expression {pattern!r}: {error}"
    return None


class EquivalenceSettings(ScoringSettings, JudgedSettings):
    judge_system_message: str | None = None
    judge_prompt_template_fpath: str = (
        "resources_servers/equivalence_llm_judge/prompt_templates/equivalence_llm_judge.txt"
    )
    """A text file with {question}, {expected_answer}, {generated_answer}; may use {equal_label}, {not_equal_label}."""
    judge_equal_label: str = "[[A=B]]"
    judge_not_equal_label: str = "[[A!=B]]"
    question_extract_regex: str | None = None
    """Finds the question in the last user message. If unset, the whole message; strict: the row's `question` first."""
    response_extract_regex: str | None = None
    """Finds the answer in the last assistant message. If unset, the whole message is the answer."""
    msg_extraction_failure: str = "[NO VALID ANSWER EXTRACTED]"
    """Shown to the judge if there is no text; strict: if a pattern finds nothing."""
    check_twice_swap: bool = False
    """Ask in both orders."""
    reward_if_swap_fails: FiniteFloat = 0.0
    """The reward if they are equivalent only in the first order."""
    use_per_record_regex: bool = True
    """Prefer a row's `template_metadata.output_regex` to response_extract_regex."""
    extraction_length_threshold: int | None = 120
    """A longer expected answer is compared with the whole message if the row has a pattern; strict: in any case."""
    check_full_generation_on_fail: bool = True
    """If the extracted answer is not equivalent, ask about the whole message."""
    reward_if_full_generation_succeeds: FiniteFloat = 0.5

    @model_validator(mode="after")
    def _check_patterns(self) -> Self:
        """NeMo Gym takes an invalid pattern for none."""
        for pattern in (self.question_extract_regex, self.response_extract_regex):
            if self.scoring == "strict" and (problem := _pattern_problem(pattern)):
                raise ValueError(problem)
        return self


class EquivalenceTask(Task):
    uuid: str | int | None = None
    question: Any = None
    """Read with strict scoring alone, if it is text."""
    expected_answer: str | None = None
    options: list[dict[str, str]] | None = None
    metadata: dict[str, Any] | None = None
    template_metadata: Any = None

    @property
    def pattern(self) -> Any:
        """The row's own pattern. One that is not text is refused when it is used: NeMo Gym may score such a row."""
        return self.template_metadata.get("output_regex") if isinstance(self.template_metadata, dict) else None

    @property
    def answer(self) -> str:
        """The expected answer of the row or its metadata."""
        return str(self.expected_answer or (self.metadata or {}).get("expected_answer") or "").strip()

    def unscorable_reason(self, params: JsonObject) -> str | None:
        return None if self.answer else "no expected_answer: the judge has nothing to compare with"


class EquivalenceVerdict(Verdict):
    expected_answer: str
    judge_evaluations: list[JudgeEvaluation]


class EquivalenceJudge(Environment[EquivalenceTask, None]):
    """Scores one answer; no session, no tools."""

    settings: EquivalenceSettings

    def __init__(self, name: str, settings: EquivalenceSettings, context: ServerContext) -> None:
        super().__init__(name, settings, context)
        labels = Labels(settings.judge_equal_label, settings.judge_not_equal_label)
        self._template = load_template(settings.judge_prompt_template_fpath, _FIELDS)
        self._judge = Judge(
            self.calls,
            settings,
            labels,
            system=settings.judge_system_message,
            find_label=None if settings.scoring == "strict" else lambda reply: labels.find_first(last_part(reply)),
        )
        self._workers = self.own_pool(ProcessPool(_LAST_MATCH, size=_WORKERS, cpu_s=_PATTERN_CPU_S + GRACE_S))

    def parse_task(self, row: dict[str, Any]) -> EquivalenceTask:
        task = super().parse_task(row)
        if self.settings.scoring == "strict":
            _check_strictly(task)
        return task

    async def verify(self, attempt: Attempt[EquivalenceTask, None]) -> EquivalenceVerdict:
        evaluations: list[JudgeEvaluation] = []
        if self.settings.scoring == "strict":
            expected, text = attempt.task.answer, attempt.last_text
            # an empty answer is not judged
            reward = await self._reward(attempt, text, evaluations) if text.strip() else 0.0
        else:
            expected = find_expected(attempt.task.expected_answer, attempt.task.metadata)
            reward = await self._reward_as_nemo_gym(attempt, expected, evaluations)
        return EquivalenceVerdict(reward=reward, expected_answer=expected, judge_evaluations=evaluations)

    async def _reward_as_nemo_gym(
        self, attempt: Attempt[EquivalenceTask, None], expected: str, evaluations: list[JudgeEvaluation]
    ) -> float:
        settings = self.settings
        own, limit, use_own = attempt.task.pattern, settings.extraction_length_threshold, settings.use_per_record_regex
        how = choose_pattern(own, settings.response_extract_regex, expected, limit, use_own=use_own)
        whole = last_message(attempt.output)
        question = await self._find_in_question(attempt)
        answer = await self._find_answer(how.pattern, whole) if whole else settings.msg_extraction_failure
        if await self._is_equal(attempt, question, expected, answer, evaluations):
            if not settings.check_twice_swap or how.is_long:
                return 1.0
            agrees = await self._is_equal(attempt, question, answer, expected, evaluations)
            return 1.0 if agrees else settings.reward_if_swap_fails
        if how.is_long or not (settings.check_full_generation_on_fail and how.has_own_pattern):
            return 0.0
        shown = whole or settings.msg_extraction_failure
        agrees = await self._is_equal(attempt, question, expected, shown, evaluations)
        return settings.reward_if_full_generation_succeeds if agrees else 0.0

    async def _find_in_question(self, attempt: Attempt[EquivalenceTask, None]) -> str:
        question = last_question(attempt.params["input"])
        return await self._find_answer(self.settings.question_extract_regex, question)

    async def _find_answer(self, pattern: Any, text: str) -> str:
        """What the pattern finds; the whole text if it finds nothing, or is invalid."""
        if not pattern or not text:
            return text
        if (problem := _pattern_problem(pattern)) is not None:
            if not isinstance(pattern, str):
                raise InvalidBody.of_field(problem, "template_metadata", "output_regex")
            return text
        match = await self._extract(pattern, text)
        return text if match is None else match

    async def _is_equal(
        self,
        attempt: Attempt[EquivalenceTask, None],
        question: str,
        first: str,
        second: str,
        evaluations: list[JudgeEvaluation],
    ) -> bool:
        labels = self._judge.labels
        prompt = self._prompt(question, labels.defuse(first), labels.defuse(second))
        opinion = await self._judge.ask(prompt, attempt.scope)
        evaluations += opinion.evaluations
        return opinion.label == labels.equal

    def _prompt(self, question: str, first: str, second: str) -> str:
        texts = {"question": question, "expected_answer": first, "generated_answer": second}
        labels = self._judge.labels
        both = {"equal_label": labels.equal, "not_equal_label": labels.not_equal}
        if self.settings.scoring == "strict":
            return self._template.fill_quoting(self._judge.quoter, texts, **both)
        return self._template.fill(**texts, **both)

    async def _reward(
        self, attempt: Attempt[EquivalenceTask, None], text: str, evaluations: list[JudgeEvaluation]
    ) -> float:
        settings, pattern = self.settings, self._pattern_for(attempt.task)
        question = await self._find_question(attempt)
        answer = text if pattern is None else await self._extract(pattern, text) or settings.msg_extraction_failure
        agreement = await self._agreement(attempt, question, answer, evaluations)
        if agreement is Agreement.EQUAL:
            return 1.0
        reward = settings.reward_if_swap_fails if agreement is Agreement.EQUAL_IN_ONE_ORDER else 0.0
        if pattern is not None and settings.check_full_generation_on_fail:
            agreement = await self._agreement(attempt, question, text, evaluations)
            if agreement is Agreement.EQUAL:
                reward = max(reward, settings.reward_if_full_generation_succeeds)
        return reward

    def _pattern_for(self, task: EquivalenceTask) -> str | None:
        """The pattern that finds the answer, or None if the whole message is the answer."""
        threshold, own = self.settings.extraction_length_threshold, task.pattern
        if threshold is not None and len(task.answer) > threshold:
            return None
        return own if own and self.settings.use_per_record_regex else self.settings.response_extract_regex

    async def _find_question(self, attempt: Attempt[EquivalenceTask, None]) -> str:
        pattern, value = self.settings.question_extract_regex, attempt.params["input"]
        question = attempt.task.question
        if pattern is None and isinstance(question, str) and question:
            return question
        items = [{"role": "user", "content": value}] if isinstance(value, str) else value
        message = next((message_text(item) for item in reversed(items) if item.get("role") == "user"), "")
        return message if pattern is None else await self._extract(pattern, message) or message

    async def _extract(self, pattern: str, text: str) -> str | None:
        try:
            match: str | None = await self._workers.call(pattern, text, _PATTERN_CPU_S)
        except CpuTimeExceededError:
            return None
        except WorkerTimeoutError as error:
            text = f"{self.name}: a worker got too little CPU time: {error}"
            raise CallError(
                FailureDetail(FailureKind.VERIFIER_TIMEOUT, Stage.VERIFY, text, instance=self.name)
            ) from error
        return match

    async def _agreement(
        self, attempt: Attempt[EquivalenceTask, None], question: str, answer: str, evaluations: list[JudgeEvaluation]
    ) -> Agreement:
        judge, expected, shown = self._judge, attempt.task.answer, truncate_start(answer)

        def prompt(first: str, second: str) -> str:
            return self._prompt(question, first, second)

        if self.settings.check_twice_swap:
            opinions = await judge.ask_both_orders(prompt, expected, shown, attempt.scope)
        else:
            opinions = [await judge.ask(prompt(expected, shown), attempt.scope)]
        evaluations += [evaluation for opinion in opinions for evaluation in opinion.evaluations]
        if all(opinion.label == judge.labels.equal for opinion in opinions):
            return Agreement.EQUAL
        return Agreement.DIFFERENT if len(opinions) == 1 else Agreement.EQUAL_IN_ONE_ORDER


def _check_strictly(task: EquivalenceTask) -> None:
    """Refuse rows that say nothing of an answer. NeMo Gym judges them, and takes an invalid pattern for none."""
    template = task.template_metadata
    problem = _pattern_problem(task.pattern) if isinstance(template, dict | None) else "expected an object"
    if not task.answer:
        where, kind, problem = ["body", "expected_answer"], "missing", "expected_answer is missing"
    else:
        where, kind = ["body", "template_metadata", "output_regex"], "value_error"
    if problem is not None:
        raise InvalidBody([{"type": kind, "loc": where, "msg": problem, "input": None}])
