"""Runs a program on the tests of a row as NeMo Gym does, in the sandbox: one process for all tests, up to a failure.

Each test is a step of a session and is judged here before the next one starts: the program cannot lift its limit, and
gets no input before its time.
"""

from __future__ import annotations

import asyncio
import json
import math
import time
from dataclasses import dataclass, replace
from decimal import InvalidOperation
from pathlib import Path
from typing import Any, Final

from gymnast.kit import JsonObject, Limits, PythonSession, Sandbox, precompile

from .nemo_gym_rules import (
    compare_values,
    decode_value,
    find_output_mismatch,
    make_start_failure,
    parse_arguments,
    parse_outputs,
    shorten,
)
from .testing import TrialOptions, encode_literal, output_cap
from .unit_tests import UnitTests

_SANDBOX_MAIN: Final = Path(__file__).with_name("nemo_gym_main.py")
_MARGIN_S: Final = 1.0
"""How much longer than a test's limit the sandbox lets it run: it is interrupted from within, unless it prevents that.
NeMo Gym grants as much."""
Result = list[bool | int]


@dataclass(frozen=True, slots=True)
class TrialResult:
    """The results up to the first failure, and its description."""

    result: Result
    metadata: JsonObject | None
    seconds: float

    @property
    def has_passed(self) -> bool:
        return all(result == 1 for result in self.result)


async def score_program(source: str, tests: UnitTests, sandbox: Sandbox, options: TrialOptions) -> TrialResult:
    """Run the program on its tests in order, until the first failure."""
    started = time.monotonic()
    async with sandbox.python_session() as session:
        result, metadata = await _score(source, tests, _Steps(session, tests, options))
    return TrialResult(result, metadata, seconds=time.monotonic() - started)


class _Steps:
    """The steps of a session: the program is loaded, then run on one test after the other."""

    def __init__(self, session: PythonSession, tests: UnitTests, options: TrialOptions) -> None:
        self._session = session
        self._cap = output_cap(tests, options.output_bytes)
        self._timeout_s = int(options.timeout_s)
        seconds = options.timeout_s + _MARGIN_S
        self._limits = replace(options.limits, wall_s=seconds, cpu_s=seconds, output_bytes=8 * self._cap + (1 << 16))

    async def load(self, source: str, function: str | None) -> JsonObject:
        job = {"source": source, "function": function, "timeout_s": self._timeout_s, "cap": self._cap}
        # NeMo Gym grants five seconds for a program as a whole.
        limits = replace(self._limits, wall_s=self._limits.wall_s + 5.0, cpu_s=self._limits.cpu_s + 5.0)
        report = await self._report(f"{precompile(_SANDBOX_MAIN)}\nstart({encode_literal(job)})", limits)
        if report["how"] not in ("loaded", "broken"):
            raise _NoResultError
        return report

    async def run(self, test_input: Any) -> JsonObject:
        return await self._report(f"run_test({encode_literal(test_input)})", self._limits)

    async def _report(self, code: str, limits: Limits) -> JsonObject:
        """What a step reports. Raises _NoResultError if it ended without a report."""
        execution = await self._session.execute(code, limits)
        report = read_report(execution.stdout) if execution.ending == "exited" else None
        if report is None:
            raise _NoResultError
        return report


class _NoResultError(Exception):
    """The process ended without a result, or forged one."""


async def _score(source: str, tests: UnitTests, steps: _Steps) -> tuple[Result, JsonObject | None]:
    try:
        report = await steps.load(source, tests.fn_name)
        if report["how"] == "broken":
            return make_start_failure(report["error"])
        return await _run_tests(tests, steps, await asyncio.to_thread(_parse_tests, tests))
    except (InvalidOperation, ValueError, RecursionError) as error:
        return make_start_failure(error)
    except (_NoResultError, KeyError, TypeError, IndexError, AttributeError):  # all but the first: a forged report
        return [-1] * len(tests.inputs), None


async def _run_tests(tests: UnitTests, steps: _Steps, expected: list[Any] | None) -> tuple[Result, JsonObject]:
    result: Result = []
    seconds = 0.0
    for index in range(min(len(tests.inputs), len(tests.outputs))):
        report = await steps.run(tests.input_for(index))
        verdict, metadata = await asyncio.to_thread(_judge_test, report, tests, index, expected)
        if metadata and report.get("lost"):
            raise _NoResultError
        result.append(verdict)
        if metadata:
            return result, metadata
        seconds += _read_seconds(report)
    return result, {"execution time": seconds}


def _parse_tests(tests: UnitTests) -> list[Any] | None:
    """The expected values of functions. Raises ValueError if these, or arguments, are not JSON."""
    if tests.fn_name is None:
        return None
    for index in range(min(len(tests.inputs), len(tests.outputs))):
        parse_arguments(tests.inputs[index])
    return parse_outputs(tests.outputs)


def read_report(stdout: str) -> JsonObject | None:
    """Parse the report in the first line; None if it is not one."""
    try:
        report = json.loads(stdout.partition("\n")[0])
    except (ValueError, RecursionError):
        return None
    return report if isinstance(report, dict) and "how" in report else None


def _read_seconds(report: JsonObject) -> float:
    seconds = report.get("seconds")
    return float(seconds) if isinstance(seconds, (int, float)) and math.isfinite(seconds) else 0.0


def _judge_test(
    report: JsonObject, tests: UnitTests, index: int, expected: list[Any] | None
) -> tuple[bool | int, JsonObject | None]:
    """The result of one test, and what is wrong with it; None if it passed."""
    given, right = tests.inputs[index], tests.outputs[index]
    if expected is not None:
        given, right = parse_arguments(given), expected[index]
    about = {"inputs": shorten(given), "expected": shorten(right)}
    match report["how"]:
        case "timeout":
            return -3, {"error": report["error"], "error_code": -3, "error_message": "Time Limit Exceeded", **about}
        case "failed":
            return -4, _describe_error(report["error"], report["traceback"], about)
        case "output":
            mismatch = find_output_mismatch(report["stdout"], tests.expected_output(index))
            output = shorten(report["stdout"])
            wrong = {"output": output, **about, "error_code": -2, "error_message": mismatch}
            return (-2, wrong) if mismatch else (True, None)
        case _:
            if expected is None:
                raise KeyError("a value for a program without a function")
            value = decode_value(report["value"])
            try:
                equal = compare_values(value, right)
            except ValueError as error:
                return -4, _describe_error(repr(error), f"{type(error).__name__}: {error}\n", about)
            wrong = {"output": report["shown"], **about, "error_code": -2, "error_message": "Wrong Answer"}
            return equal, None if equal else wrong


def _describe_error(error: str, traceback: str, about: JsonObject) -> JsonObject:
    return {"error": error, "error_code": -4, "error_message": "Runtime Error", **about, "traceback": traceback}
