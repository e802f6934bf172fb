"""Competitive programming: runs the program in the answer in a sandbox on the tests of its row. All must pass."""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Final

from pydantic import BaseModel, ConfigDict, FiniteFloat, PositiveInt, model_validator

from gymnast.builtin.response_texts import stated_text
from gymnast.kit import (
    Attempt,
    CustomMetrics,
    HttpError,
    InvalidBody,
    JsonObject,
    PassMajority,
    SandboxedEnvironment,
    SandboxedSettings,
    SandboxSettings,
    ScoringSettings,
    ServerContext,
    Task,
    Verdict,
    highest_k,
    message_text,
)

from .nemo_gym_rules import leaks_reasoning
from .nemo_gym_testing import score_program
from .testing import BrokenTestError, Outcome, TrialOptions, try_program
from .unit_tests import UnitTests


def _scores(row: JsonObject) -> dict[str, float]:
    return {"accuracy": float(row["reward"] > 0)}


def _select(metrics: Mapping[str, Any]) -> dict[str, Any]:
    subsets = {name.split("/pass@")[0] for name in metrics if "/pass@" in name and name[0].islower()}
    patterns = ["pass@1[avg-of-{k}]", "pass@{k}", "majority@{k}"]
    patterns += [f"{subset}/pass@1[avg-of-{{k}}]" for subset in sorted(subsets)]
    selected = {name: metrics[name] for name in ("mean/input_tokens", "mean/output_tokens") if name in metrics}
    for pattern in patterns:
        selected |= highest_k(metrics, pattern, ["accuracy"])
    return selected


METRICS: Final = PassMajority(
    scores=_scores,
    answer_field="extracted_model_code",
    subset_field="difficulty",
    sample_spread=True,
    select=_select,
)


FENCE: Final = "```"
_THINKING: Final = re.compile(r"</?think(?:ing)?>", re.IGNORECASE)
_LONG = 20_000


class CodeGenSettings(ScoringSettings, SandboxedSettings):
    num_processes: PositiveInt = 8
    """Programs that run at the same time; the sandbox may allow fewer."""
    sandbox: SandboxSettings = SandboxSettings(packages=("numpy",))
    unit_test_timeout_secs: PositiveInt = 10
    """Per test. Other limits of a program, such as memory, are in `sandbox.limits`."""
    run_all_tests: bool = False
    """Strict scoring: continue after a failed test, so that `result` has an entry for every test."""
    debug: bool = False
    """Strict scoring: put the time, exit code and error output of every test into `metadata.tests`."""
    reasoning_format_penalty: FiniteFloat = 0.0
    """The reward of an answer with thinking tags. Strict scoring subtracts it from the reward, times the share of such
    messages."""

    @model_validator(mode="after")
    def _check_penalty(self) -> CodeGenSettings:
        if self.scoring == "strict" and self.reasoning_format_penalty < 0:
            raise ValueError("reasoning_format_penalty is subtracted under strict scoring: it must not be negative")
        return self


class VerifierMetadata(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True)
    unit_tests: UnitTests
    difficulty: str | None = None


class CodeGenTask(Task):
    verifier_metadata: VerifierMetadata
    difficulty: Any = None
    """Read with strict scoring alone, if it is text."""

    @property
    def level(self) -> str | None:
        own = self.difficulty if isinstance(self.difficulty, str) else None
        return own or self.verifier_metadata.difficulty


class CodeGenVerdict(Verdict):
    extracted_model_output: str | None = None
    extracted_model_code: str | None = None
    result: list[bool | int] | None = None
    """Per test: true, or -1 (no result), -2 or false (wrong), -3 (too slow), -4 (failed). Ends at the first failure."""
    metadata: dict[str, Any] | None = None
    """About the first failing test."""
    unit_tests_time_taken: float | None = None
    reasoning_format_violation_rate: float = 0.0
    difficulty: str | None = None


class CodeGen(SandboxedEnvironment[CodeGenTask, None]):
    """Scores one program; no session, no tools."""

    settings: CodeGenSettings
    custom_metrics: ClassVar[CustomMetrics] = METRICS

    def __init__(self, name: str, settings: CodeGenSettings, context: ServerContext) -> None:
        super().__init__(name, settings, context)
        # Sessions of a sandbox may be more than its programs at once, but then tests would take longer.
        pool_size = settings.sandbox.pool_size or len(os.sched_getaffinity(0))
        self._slots = asyncio.Semaphore(min(settings.num_processes, pool_size))
        self._trial = TrialOptions(
            timeout_s=float(settings.unit_test_timeout_secs),
            limits=self.limits,
            stop_at_first_failure=not settings.run_all_tests,
        )

    def parse_task(self, row: dict[str, Any]) -> CodeGenTask:
        task = super().parse_task(row)
        problem = task.verifier_metadata.unit_tests.problem
        if self.settings.scoring == "strict" and problem is not None:
            raise InvalidBody.of_field(problem, "verifier_metadata", "unit_tests")
        return task

    async def verify(self, attempt: Attempt[CodeGenTask, None]) -> CodeGenVerdict:
        stated, strict = stated_text(attempt.response), self.settings.scoring == "strict"
        text = attempt.text if strict or stated is None else stated
        program = await asyncio.to_thread(extract_program, text) if len(text) > _LONG else extract_program(text)
        score = self._score_strictly if strict else self._score_as_nemo_gym
        return await score(attempt, text, program)

    async def _score_as_nemo_gym(
        self, attempt: Attempt[CodeGenTask, None], text: str, program: str | None
    ) -> CodeGenVerdict:
        metadata = attempt.task.verifier_metadata
        verdict = CodeGenVerdict(reward=0.0, difficulty=metadata.difficulty)
        if not text.strip():
            return verdict
        verdict.extracted_model_output = text
        if not program:
            return verdict
        async with self._slots:
            scored = await score_program(program, metadata.unit_tests, self.sandbox, self._trial)
        reasoning = [part for item in attempt.output if item.get("type") == "reasoning" for part in _summary(item)]
        leaked = leaks_reasoning(text, "".join(reasoning))
        verdict.reward = self.settings.reasoning_format_penalty if leaked else float(scored.has_passed)
        verdict.extracted_model_code = program
        verdict.result, verdict.metadata = scored.result, scored.metadata
        verdict.unit_tests_time_taken = scored.seconds
        verdict.reasoning_format_violation_rate = float(leaked)
        return verdict

    async def _score_strictly(
        self, attempt: Attempt[CodeGenTask, None], text: str, program: str | None
    ) -> CodeGenVerdict:
        task = attempt.task
        tests = task.verifier_metadata.unit_tests.with_named_function()
        leaked = leaked_reasoning_rate(
            [message_text(item) for item in attempt.output if item.get("role") == "assistant"]
        )
        outcome = await self._try(program, tests) if program and program.strip() else None
        passed = outcome is not None and outcome.has_passed(tests)
        return CodeGenVerdict(
            reward=float(passed) - self.settings.reasoning_format_penalty * leaked,
            extracted_model_output=text,
            extracted_model_code=program,
            result=outcome.result if outcome else None,
            metadata=self._metadata(outcome) if outcome else None,
            unit_tests_time_taken=outcome.seconds if outcome else None,
            reasoning_format_violation_rate=leaked,
            difficulty=task.level,
        )

    async def _try(self, program: str, tests: UnitTests) -> Outcome:
        try:
            async with self._slots:
                return await try_program(program, tests, self.sandbox, self._trial)
        except BrokenTestError as error:
            raise HttpError(422, str(error)) from error

    def _metadata(self, outcome: Outcome) -> dict[str, Any]:
        metadata = dict(outcome.first_failure or {})
        return {**metadata, "tests": outcome.tests} if self.settings.debug else metadata


def extract_program(text: str) -> str | None:
    """The text between the last two lines with a triple backtick; None if there are fewer than two."""
    lines = text.split("\n")
    fences = [number for number, line in enumerate(lines) if FENCE in line]
    if len(fences) < 2:
        return None
    return "\n".join(lines[fences[-2] + 1 : fences[-1]])


def leaked_reasoning_rate(messages: Sequence[str]) -> float:
    """The share of messages with thinking tags: reasoning belongs in separate items."""
    if not messages:
        return 0.0
    return sum(bool(_THINKING.search(message)) for message in messages) / len(messages)


def _summary(item: dict[str, Any]) -> list[str]:
    return [part["text"] for part in item.get("summary") or () if isinstance(part.get("text"), str)]
