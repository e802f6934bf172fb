"""Mathematics with a Python interpreter: the model computes with `execute_python`, then answers."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from dataclasses import replace

from pydantic import BaseModel, PositiveInt

from gymnast.kit import (
    Attempt,
    Execution,
    Limits,
    PythonSession,
    Sandbox,
    SandboxedEnvironment,
    SandboxedSettings,
    SandboxSettings,
    ScoringSettings,
    Task,
    Verdict,
    tool,
)

from . import nemo_gym_rules, strict_rules


class Workspace:
    """The interpreter of a rollout. A rollout that never uses it costs nothing."""

    def __init__(self, sandbox: Sandbox) -> None:
        self._sandbox = sandbox
        self._resources = AsyncExitStack()
        self._python: PythonSession | None = None

    async def execute(self, code: str, limits: Limits) -> Execution:
        """Run code in the interpreter of the rollout's earlier calls."""
        python = self._python
        if python is None or not python.alive:
            await self.close()
            self._python = python = await self._resources.enter_async_context(self._sandbox.python_session())
        return await python.execute(code, limits)

    @property
    def is_lost(self) -> bool:
        """Whether there was an interpreter and its variables are gone."""
        return self._python is not None and not self._python.alive

    async def close(self) -> None:
        self._python = None
        resources, self._resources = self._resources, AsyncExitStack()
        await resources.aclose()


_LONG = 20_000


class MathWithCodeSettings(ScoringSettings, SandboxedSettings):
    sandbox: SandboxSettings = SandboxSettings(packages=("numpy",))
    max_execution_time: PositiveInt = 10
    """Seconds per tool call."""
    max_output_chars: PositiveInt = 20_000
    """Maximum length of the output, and of the errors, shown to the model; the middle is left out beyond it."""
    require_expected_code: bool = False
    """Reward only rollouts in which the code of some call contains `expected_code_contains`."""


class MathWithCodeTask(Task):
    expected_result: str
    expected_code_contains: str = ""


class PythonOutput(BaseModel):
    success: bool
    stdout: str
    stderr: str
    error_message: str | None = None
    result: str | None = None


class MathWithCodeVerdict(Verdict):
    expected_result: str
    expected_code_contains: str
    extracted_answer: str | None = None
    accuracy: bool = False
    code_contains_expected: bool = True
    """Whether the code of some call contains `expected_code_contains`."""


class MathWithCode(SandboxedEnvironment[MathWithCodeTask, Workspace]):
    """One stateful tool; scored by the answer."""

    settings: MathWithCodeSettings
    scores_without_session = True

    async def open(self, task: MathWithCodeTask) -> Workspace:
        return Workspace(self.sandbox)

    async def close(self, session: Workspace) -> None:
        await session.close()

    @tool
    async def execute_python(self, session: Workspace, code: str) -> PythonOutput:
        """Run Python code. Variables, functions and imports stay for the next call.

        Args:
            code: The code to run. The value of a last line that is an expression is returned.
        """
        seconds = float(self.settings.max_execution_time)
        limits = replace(self.limits, wall_s=seconds, cpu_s=seconds)
        execution = await session.execute(code, limits)
        return make_reply(execution, seconds, self.settings.max_output_chars, lost=session.is_lost)

    async def verify(self, attempt: Attempt[MathWithCodeTask, Workspace]) -> MathWithCodeVerdict:
        task = attempt.task
        long = sum(map(len, map(str, attempt.output))) > _LONG
        answer, accurate = await asyncio.to_thread(self._judge, attempt) if long else self._judge(attempt)
        used = _code_contains(attempt, task.expected_code_contains)
        return MathWithCodeVerdict(
            reward=float(accurate and (used or not self.settings.require_expected_code)),
            expected_result=task.expected_result,
            expected_code_contains=task.expected_code_contains,
            extracted_answer=answer,
            accuracy=accurate,
            code_contains_expected=used,
        )

    def _judge(self, attempt: Attempt[MathWithCodeTask, Workspace]) -> tuple[str | None, bool]:
        """The answer, and whether it is the expected one."""
        expected = attempt.task.expected_result
        if self.settings.scoring == "strict":
            answer = strict_rules.extract_answer(attempt.last_text)
            return answer, answer is not None and strict_rules.same_answer(answer, expected)
        answer = nemo_gym_rules.find_answer(attempt.output)
        return answer, answer is not None and nemo_gym_rules.same_answer(answer, expected)


def make_reply(execution: Execution, seconds: float, max_chars: int, *, lost: bool) -> PythonOutput:
    """The model's view of an execution."""
    return PythonOutput(
        success=execution.ok,
        stdout=truncate_middle(execution.stdout, max_chars),
        stderr=truncate_middle(execution.stderr, max_chars),
        error_message=None if execution.ok else _error_message(execution, seconds, lost=lost),
        result=None if execution.result is None else truncate_middle(str(execution.result), max_chars),
    )


def truncate_middle(text: str, max_chars: int) -> str:
    """Keep the start and the end of a text that is too long."""
    if len(text) <= max_chars:
        return text
    half = max_chars // 2
    return f"{text[:half]}\n… ({len(text) - 2 * half} characters left out) …\n{text[-half:]}"


def _error_message(execution: Execution, seconds: float, *, lost: bool) -> str:
    messages = {
        "timeout": f"The code ran for more than {seconds:g} s and was stopped.",
        "memory": "The code used more memory than allowed.",
        "output": "The code wrote more output than allowed.",
        "killed": "The interpreter was killed.",
    }
    lines = execution.stderr.strip().splitlines()
    text = messages.get(execution.ending) or (
        lines[-1] if lines else f"The code ended the interpreter ({execution.exit_code})."
    )
    return f"{text} A new interpreter starts with the next call; variables are lost." if lost else text


def _code_contains(attempt: Attempt[MathWithCodeTask, Workspace], snippet: str) -> bool:
    codes = [
        call.arguments.get("code") for call in attempt.tool_calls if call.name == "execute_python" and call.arguments
    ]
    return not snippet or any(isinstance(code, str) and snippet in code for code in codes)
