"""Runs a program on the tests of a row in the sandbox and judges the results.

The sandbox gets the program, and the input of one test at a time. Expected outputs and the comparison stay outside, and
so does the limit of each test: it is a step of a session.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, Literal

import msgspec
import orjson

from gymnast.kit import Execution, JsonObject, Limits, PythonSession, Sandbox, bounded, precompile

from .comparison import same_output, same_value
from .unit_tests import UnitTests

UNCOMPILED: Final = -1
WRONG: Final = -2
TOO_SLOW: Final = -3
FAILED: Final = -4
MESSAGES: Final = {
    UNCOMPILED: "the program does not compile",
    WRONG: "wrong answer",
    TOO_SLOW: "time limit exceeded",
    FAILED: "the program failed",
}

_SANDBOX_MAIN: Final = Path(__file__).with_name("sandbox_main.py")
_MAX_SHOWN: Final = 500
_MARGIN_S: Final = 2.0
"""How much longer than a test's limit the sandbox lets it run: it is stopped from within, unless it prevents that."""
_LONG: Final = 100_000


class BrokenTestError(ValueError):
    """A test of the row cannot run because its arguments are not JSON. Not the model's fault."""


class RunResult(msgspec.Struct, frozen=True):
    """The sandbox's report on one test."""

    how: Literal["exited", "timeout", "signal", "output", "uncompiled"]
    code: int = 0
    stdout: str = ""
    stderr: str = ""
    value: str | None = None
    seconds: float = 0.0
    is_clean: bool = False
    """Whether the test left no process and no file behind."""


@dataclass(frozen=True, slots=True)
class TrialOptions:
    """How to run a program on its tests."""

    timeout_s: float
    limits: Limits = field(default_factory=Limits)
    """Except time and output, which depend on the tests."""
    output_bytes: int = 2 << 20
    stop_at_first_failure: bool = True


@dataclass(slots=True)
class Outcome:
    """The results of a program, up to the last test that ran."""

    result: list[bool | int] = field(default_factory=list)
    first_failure: JsonObject | None = None
    tests: list[JsonObject] = field(default_factory=list)
    seconds: float = 0.0

    def has_passed(self, tests: UnitTests) -> bool:
        return len(self.result) == len(tests) and all(result is True for result in self.result)


async def try_program(source: str, tests: UnitTests, sandbox: Sandbox, options: TrialOptions) -> Outcome:
    """Run the program on its tests in order, until the first failure or on all of them."""
    outcome = Outcome()
    started = time.monotonic()
    async with AsyncExitStack() as resources:
        runner = _TestRunner(source, tests, sandbox, options, resources)
        for index in range(len(tests)):
            run = await runner.run(index)
            verdict = await _verdict(run, tests, index)
            _add_result(outcome, tests, run, result=verdict)
            if run.how == "uncompiled" or (verdict is not True and options.stop_at_first_failure):
                break
    outcome.seconds = time.monotonic() - started
    return outcome


class _TestRunner:
    """Runs tests in a session of the sandbox, and in a new one after a test that broke it or left something behind."""

    def __init__(
        self, source: str, tests: UnitTests, sandbox: Sandbox, options: TrialOptions, resources: AsyncExitStack
    ) -> None:
        self._tests, self._sandbox, self._resources = tests, sandbox, resources
        self._session: PythonSession | None = None
        cap = output_cap(tests, options.output_bytes)
        job = {"source": source, "function": tests.fn_name, "timeout_s": options.timeout_s, "cap": cap}
        self._start = f"{precompile(_SANDBOX_MAIN)}\nready = start({encode_literal(job)})\n"
        seconds = options.timeout_s + _MARGIN_S
        self._limits = replace(options.limits, wall_s=seconds, cpu_s=seconds, output_bytes=8 * cap + (1 << 20))

    async def run(self, index: int) -> RunResult:
        """Run one test."""
        code = f"if ready: run_test({encode_literal(self._tests.input_for(index))})"
        if self._session is None:
            self._session = await self._resources.enter_async_context(self._sandbox.python_session())
            code = self._start + code
        execution = await self._session.execute(code, self._limits)
        result = (read_result(execution.stdout) if execution.ok else None) or _result_without_report(execution)
        if not result.is_clean:
            self._session = None
            await self._resources.aclose()
        return result


def read_result(stdout: str) -> RunResult | None:
    """The report of a test, or None if the first line is not one."""
    try:
        return msgspec.json.decode(stdout.partition("\n")[0], type=RunResult)
    except (msgspec.DecodeError, UnicodeEncodeError):
        return None


def _result_without_report(execution: Execution) -> RunResult:
    """The result if the program took down the process that runs it, or the sandbox ended both."""
    how: Literal["timeout", "signal"] = "timeout" if execution.ending == "timeout" else "signal"
    stderr = f"the sandbox ended it ({execution.ending})\n{execution.stderr}"
    return RunResult(how, code=1, stderr=stderr, seconds=execution.seconds)


async def _verdict(run: RunResult, tests: UnitTests, index: int) -> bool | int:
    if run.how == "uncompiled":
        return UNCOMPILED
    if run.how == "timeout":
        return TOO_SLOW
    if run.how != "exited" or run.code != 0:
        if tests.fn_name is not None:
            _check_arguments(tests.inputs[index], index)
        return FAILED
    output = run.stdout if tests.fn_name is None else run.value
    if output is None:
        return FAILED
    compare: Callable[[str, Any], bool] = same_output if tests.fn_name is None else same_value
    expected = tests.expected_output(index)
    long = len(output) + _size(expected) > _LONG
    matches = await asyncio.to_thread(compare, output, expected) if long else compare(output, expected)
    return True if matches else WRONG


def _check_arguments(arguments: Any, index: int) -> None:
    try:
        for line in arguments.split("\n") if isinstance(arguments, str) else ():
            json.loads(line)
    except (ValueError, RecursionError) as error:
        raise BrokenTestError(f"unit_tests.inputs[{index}] must have one JSON value per line: {error}") from error


def _add_result(outcome: Outcome, tests: UnitTests, run: RunResult, *, result: bool | int) -> None:
    index = len(outcome.result)
    outcome.result.append(result)
    outcome.tests.append({"seconds": run.seconds, "exit_code": run.code, "stderr": bounded(run.stderr, _MAX_SHOWN)})
    if result is True or outcome.first_failure is not None:
        return
    output = run.stdout if tests.fn_name is None else run.value or ""
    outcome.first_failure = {
        "index": index,
        "error_code": result,
        "error_message": MESSAGES[int(result)],
        "inputs": _truncate(tests.inputs[index]),
        "output": bounded(output, _MAX_SHOWN),
        "expected": _truncate(tests.outputs[index]),
        "stderr": _tail(run.stderr),
        "seconds": run.seconds,
    }


def output_cap(tests: UnitTests, min_bytes: int) -> int:
    """The output limit of a test. In coarse steps, so that the sandbox does not learn how long the right answer is."""
    longest = max(map(_size, tests.outputs), default=0)
    cap = min_bytes
    while cap < 2 * longest:
        cap *= 2
    return cap


def _size(value: Any) -> int:
    return len(value) if isinstance(value, str) else len(json.dumps(value, default=str))


def encode_literal(value: Any) -> str:
    """Python source of a text that holds the value as JSON."""
    try:
        return repr(orjson.dumps(value).decode())
    except TypeError:  # integers beyond 64 bits, and lone surrogates
        return repr(json.dumps(value))


def _truncate(value: Any) -> str:
    return bounded(value if isinstance(value, str) else json.dumps(value, default=str)[: 4 * _MAX_SHOWN], _MAX_SHOWN)


def _tail(text: str) -> str:
    return text if len(text) <= _MAX_SHOWN else f"…{text[-_MAX_SHOWN:]}"
