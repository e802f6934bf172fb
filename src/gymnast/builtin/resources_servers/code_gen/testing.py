"""Runs a program on the tests of a row in the sandbox and judges the results.

The sandbox gets the program and the inputs. Expected outputs and the comparison stay outside.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, Literal

import msgspec
import orjson

from gymnast.builtin.resources_servers.code_gen.comparison import same_output, same_value
from gymnast.builtin.resources_servers.code_gen.unit_tests import UnitTests
from gymnast.kit import Execution, JsonObject, Limits, Sandbox, bounded, precompile

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
_FIRST_BATCH: Final = 8
_BATCH: Final = 32
_FIRST_SLICE_S: Final = 0.1
_SLICE_S: Final = 2.0
_BATCH_BYTES: Final = 4 << 20
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

    def passed(self, tests: UnitTests) -> bool:
        return len(self.result) == len(tests) and all(result is True for result in self.result)


async def try_program(source: str, tests: UnitTests, sandbox: Sandbox, options: TrialOptions) -> Outcome:
    """Run the program on its tests in order, until the first failure or on all of them."""
    outcome = Outcome()
    started = time.monotonic()
    while len(outcome.result) < len(tests):
        batch = next_batch(tests, len(outcome.result))
        for run in await _run_batch(source, tests, batch, sandbox, options):
            index = len(outcome.result)
            verdict = await _verdict(run, tests, index)
            _add_result(outcome, tests, run, result=verdict)
            if run.how == "uncompiled" or (verdict is not True and options.stop_at_first_failure):
                outcome.seconds = time.monotonic() - started
                return outcome
    outcome.seconds = time.monotonic() - started
    return outcome


def next_batch(tests: UnitTests, start: int) -> range:
    """The next tests to run together: few at first, because most wrong programs fail immediately."""
    room, stop = _BATCH_BYTES, start
    while stop < min(start + (_BATCH if start else _FIRST_BATCH), len(tests)):
        room -= _size(tests.inputs[stop])
        if room < 0 and stop > start:
            break
        stop += 1
    return range(start, stop)


async def _run_batch(
    source: str, tests: UnitTests, batch: range, sandbox: Sandbox, options: TrialOptions
) -> list[RunResult]:
    cap = output_cap(tests, batch, options.output_bytes)
    job = {
        "source": source,
        "function": tests.fn_name,
        "tests": [tests.input_for(index) for index in batch],
        "timeout_s": options.timeout_s,
        "cap": cap,
        "stop": options.stop_at_first_failure,
        "slice_s": _SLICE_S if batch.start else _FIRST_SLICE_S,
    }
    seconds = len(batch) * options.timeout_s + 2.0
    limits = replace(options.limits, wall_s=seconds + 2.0, cpu_s=seconds, output_bytes=8 * cap + (1 << 20))
    execution = await sandbox.run_python(precompile(_SANDBOX_MAIN), stdin=encode_job(job), limits=limits)
    results = read_results(execution.stdout, len(batch))
    return results or [_result_without_report(execution)]


def read_results(stdout: str, max_results: int) -> list[RunResult]:
    """Parse the reports of a batch, up to the first line that is not one."""
    results: list[RunResult] = []
    for line in stdout.split("\n")[:max_results]:
        try:
            results.append(msgspec.json.decode(line, type=RunResult))
        except (msgspec.DecodeError, UnicodeEncodeError):
            break
    return results


def _result_without_report(execution: Execution) -> RunResult:
    """The result if the program took down the process that runs it, or the limits of the batch ended both."""
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
    expected = tests.expected(index)
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


def output_cap(tests: UnitTests, batch: range, min_bytes: int) -> int:
    """The output limit of a test. In coarse steps, so that the sandbox does not learn how long the right answer is."""
    longest = max((_size(tests.outputs[index]) for index in batch), default=0)
    cap = min_bytes
    while cap < 2 * longest:
        cap *= 2
    return cap


def _size(value: Any) -> int:
    return len(value) if isinstance(value, str) else len(json.dumps(value, default=str))


def encode_job(job: JsonObject) -> bytes:
    try:
        return orjson.dumps(job)
    except TypeError:  # integers beyond 64 bits, and lone surrogates
        return json.dumps(job).encode()


def _truncate(value: Any) -> str:
    return bounded(value if isinstance(value, str) else json.dumps(value, default=str)[: 4 * _MAX_SHOWN], _MAX_SHOWN)


def _tail(text: str) -> str:
    return text if len(text) <= _MAX_SHOWN else f"…{text[-_MAX_SHOWN:]}"
