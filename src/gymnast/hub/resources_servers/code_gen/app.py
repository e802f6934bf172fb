"""Competitive programming: a program in the answer, run in the sandbox on the tests of its row. All must pass."""

from __future__ import annotations

import asyncio
from typing import Any

from pydantic import BaseModel, ConfigDict, NonNegativeFloat, PositiveInt

from gymnast.hub.resources_servers.code_gen.extraction import leaked_reasoning_rate, program_of
from gymnast.hub.resources_servers.code_gen.testing import BrokenTestError, Outcome, Trial, try_program
from gymnast.hub.resources_servers.code_gen.unit_tests import UnitTests
from gymnast.kit import Attempt, Task, Verdict
from gymnast.kit.sandboxed import SandboxedEnvironment, SandboxedSettings
from gymnast.types.responses import message_text
from gymnast.wire.server import HttpError, Surroundings

_LONG = 20_000


class CodeGenSettings(SandboxedSettings):
    num_processes: PositiveInt = 8
    """Programs tried at the same time; the sandbox may allow fewer."""
    unit_test_timeout_secs: PositiveInt = 10
    """For each test. What else a program may use, memory for one, is said in `sandbox.limits`."""
    run_all_tests: bool = False
    """Go on after a failed test, so that `result` has an entry for every test."""
    debug: bool = False
    """Keep time, exit code and error output of every test in `metadata.tests`."""
    reasoning_format_penalty: NonNegativeFloat = 0.0
    """Taken off the reward, times the share of messages in which thinking tags leaked into the answer."""


class VerifierMetadata(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True)
    unit_tests: UnitTests
    difficulty: str | None = None


class CodeGenTask(Task):
    verifier_metadata: VerifierMetadata
    difficulty: str | None = None


class CodeGenVerdict(Verdict):
    extracted_model_output: str | None = None
    extracted_model_code: str | None = None
    result: list[bool | int] | None = None
    """By test: true, or -1 (does not compile), -2 (wrong), -3 (too slow), -4 (failed). Ends at the first failure."""
    metadata: dict[str, Any] | None = None
    """The first failing test."""
    unit_tests_time_taken: float | None = None
    reasoning_format_violation_rate: float = 0.0
    difficulty: str | None = None


class CodeGen(SandboxedEnvironment[CodeGenTask, None]):
    """Scores one program; there is no session and there are no tools."""

    settings: CodeGenSettings

    def __init__(self, name: str, settings: CodeGenSettings, surroundings: Surroundings) -> None:
        super().__init__(name, settings, surroundings)
        self._slots = asyncio.Semaphore(settings.num_processes)
        self._trial = Trial(
            timeout_s=float(settings.unit_test_timeout_secs),
            limits=self.limits,
            stop_at_first_failure=not settings.run_all_tests,
        )

    async def verify(self, attempt: Attempt[CodeGenTask, None]) -> CodeGenVerdict:
        task, text = attempt.task, attempt.text
        tests = task.verifier_metadata.unit_tests
        leaked = leaked_reasoning_rate(
            [message_text(item) for item in attempt.output if item.get("role") == "assistant"]
        )
        program = await asyncio.to_thread(program_of, text) if len(text) > _LONG else program_of(text)
        outcome = await self._tried(program, tests) if program and program.strip() else None
        passed = outcome is not None and outcome.passed(tests)
        return CodeGenVerdict(
            reward=float(passed) - self.settings.reasoning_format_penalty * leaked,
            extracted_model_output=text,
            extracted_model_code=program,
            result=outcome.result if outcome else None,
            metadata=self._metadata(outcome) if outcome else None,
            unit_tests_time_taken=outcome.seconds if outcome else None,
            reasoning_format_violation_rate=leaked,
            difficulty=task.difficulty or task.verifier_metadata.difficulty,
        )

    async def _tried(self, program: str, tests: UnitTests) -> Outcome:
        try:
            async with self._slots:
                return await try_program(program, tests, self.sandbox, self._trial)
        except BrokenTestError as error:
            raise HttpError(422, str(error)) from error

    def _metadata(self, outcome: Outcome) -> dict[str, Any]:
        found = dict(outcome.first_failure or {})
        return {**found, "tests": outcome.tests} if self.settings.debug else found
