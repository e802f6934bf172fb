"""Functions with a test script, as in HumanEval+ and MBPP+: the script must run to its end after the program."""

from __future__ import annotations

import asyncio
import re
import secrets
from dataclasses import replace
from typing import Final

from pydantic import PositiveFloat

from gymnast.kit import Attempt, SandboxedEnvironment, SandboxedSettings, SandboxSettings, Task, Verdict, bounded

_BLOCK: Final = re.compile(r"```[ \t]*+(\w*+)[ \t]*+\n(.*?)(?:\n[ \t]*+```|\Z)", re.DOTALL)
_DEFINES_CHECK: Final = re.compile(r"^def check\(", re.MULTILINE)
_WALL_TIMES: Final = 3.0
"""Wall time per CPU time: some tests compute for half a minute, and a busy machine is not the program's fault."""
_MAX_SHOWN: Final = 2000


class EvalPlusSettings(SandboxedSettings):
    sandbox: SandboxSettings = SandboxSettings(packages=("numpy",))
    program_timeout_s: PositiveFloat = 10.0
    """CPU time for the program itself, which only defines functions."""
    test_timeout_s: PositiveFloat = 60.0
    """CPU time for all tests of a task together."""


class EvalPlusTask(Task):
    entry_point: str
    """The function that the tests call."""
    test: str
    """A script that raises an exception if the function is wrong. If it defines `check`, that is called."""
    prefix: str = ""
    """Code that an answer may leave out, such as imports."""


class EvalPlusVerdict(Verdict):
    extracted_program: str | None
    error: str | None
    """The end of the error output, or how the program ended."""


class EvalPlus(SandboxedEnvironment[EvalPlusTask, None]):
    """Scores one program; no session, no tools."""

    settings: EvalPlusSettings

    async def verify(self, attempt: Attempt[EvalPlusTask, None]) -> EvalPlusVerdict:
        task = attempt.task
        # In a thread: a long text takes longer than the event loop can wait.
        program = await asyncio.to_thread(extract_program, attempt.text, task.entry_point)
        if program is None:
            return EvalPlusVerdict(reward=0.0, extracted_program=None, error="no program in the answer")
        error = await self._run(f"{task.prefix}\n{program}" if task.prefix else program, task)
        return EvalPlusVerdict(reward=float(error is None), extracted_program=program, error=error)

    async def _run(self, program: str, task: EvalPlusTask) -> str | None:
        """What went wrong, or None. The test's last value is a secret that the program does not know."""
        secret = secrets.token_hex(16)
        test = f"{_in_own_namespace(task)}\n{secret!r}"
        settings = self.settings
        async with self.sandbox.python_session() as session:
            for code, seconds in ((program, settings.program_timeout_s), (test, settings.test_timeout_s)):
                limits = replace(self.limits, wall_s=_WALL_TIMES * seconds, cpu_s=seconds)
                execution = await session.execute(code, limits)
                if not execution.ok:
                    text = execution.stderr[-_MAX_SHOWN:] if execution.ending == "exited" else execution.ending
                    return text or f"exit code {execution.exit_code}"
        return None if execution.result == repr(secret) else bounded("the tests did not run to their end", _MAX_SHOWN)


def _in_own_namespace(task: EvalPlusTask) -> str:
    """Code that runs the test script. Of the program's names it sees the function alone, and the program none of its:
    a program may define `check` or `results`, or import `exp`, and one that defines `zip` does not skip the tests."""
    script = f"{task.test}\ncheck({task.entry_point})\n" if _DEFINES_CHECK.search(task.test) else task.test
    names = f"{{'__name__': 'tests', {task.entry_point!r}: {task.entry_point}}}"
    return f"import builtins as __builtins\n__builtins.exec({script!r}, {names})"


def extract_program(text: str, entry_point: str) -> str | None:
    """The last fenced block that defines the function, else the last one, else a text that is a program itself."""
    definition = re.compile(rf"\bdef\s++{re.escape(entry_point)}\b")
    last = defining = None
    for block in _BLOCK.finditer(text):
        if block[1].lower() in {"", "py", "python", "python3"}:
            last = block[2]
            defining = last if definition.search(last) else defining
    if last is not None:
        return defining or last
    return text if re.search(rf"^[ \t]*+def[ \t]++{re.escape(entry_point)}\b", text, re.MULTILINE) else None
