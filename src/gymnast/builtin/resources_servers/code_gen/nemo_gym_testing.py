"""Runs a program on the tests of a row as NeMo Gym does, in the sandbox: one process for all tests, up to a failure.

The process does not know the expected outputs, so it cannot stop at a wrong answer. It pauses after a time slice; if
all is right so far it runs again from the start with a longer one, because its state must be that of one process.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from decimal import InvalidOperation
from pathlib import Path
from typing import Any, Final

from gymnast.builtin.resources_servers.code_gen.nemo_gym_rules import (
    broken,
    decode_value,
    find_output_mismatch,
    parse_arguments,
    parse_outputs,
    same_value,
    shorten,
)
from gymnast.builtin.resources_servers.code_gen.testing import TrialOptions, encode_job, output_cap
from gymnast.builtin.resources_servers.code_gen.unit_tests import UnitTests
from gymnast.kit import JsonObject, Sandbox, precompile

_SANDBOX_MAIN: Final = Path(__file__).with_name("nemo_gym_main.py")
_FIRST_SLICE_S: Final = 0.25
_GROWTH: Final = 8
Result = list[bool | int]


@dataclass(frozen=True, slots=True)
class Scored:
    """The results up to the first failure, and what is said about it."""

    result: Result
    metadata: JsonObject | None
    seconds: float

    @property
    def passed(self) -> bool:
        return all(result is True for result in self.result)


async def score_program(source: str, tests: UnitTests, sandbox: Sandbox, options: TrialOptions) -> Scored:
    """Run the program on its tests in order, until the first failure."""
    started, slice_s = time.monotonic(), _FIRST_SLICE_S
    while True:
        reports = await _run(source, tests, sandbox, options, slice_s)
        judged = await asyncio.to_thread(judge_reports, reports, tests)
        if judged is not None:
            return Scored(*judged, seconds=time.monotonic() - started)
        slice_s *= _GROWTH


async def _run(
    source: str, tests: UnitTests, sandbox: Sandbox, options: TrialOptions, slice_s: float
) -> list[JsonObject]:
    count = min(len(tests.inputs), len(tests.outputs))
    cap = output_cap(tests, range(count), options.output_bytes)
    job = {
        "source": source,
        "function": tests.fn_name,
        "tests": [tests.input_for(index) for index in range(count)],
        "timeout_s": int(options.timeout_s),
        "cap": cap,
        "slice_s": slice_s,
    }
    wall_s = (options.timeout_s + 1) * len(tests.inputs) + 5
    output_bytes = min(8 * cap * max(1, count), 1 << 30)
    limits = replace(options.limits, wall_s=wall_s, cpu_s=wall_s, output_bytes=output_bytes)
    execution = await sandbox.run_python(precompile(_SANDBOX_MAIN), stdin=encode_job(job), limits=limits)
    return read_reports(execution.stdout)


def read_reports(stdout: str) -> list[JsonObject]:
    """Parse the reports, up to the first line that is not one."""
    reports: list[JsonObject] = []
    for line in stdout.split("\n"):
        try:
            report = json.loads(line)
        except (ValueError, RecursionError):
            break
        if not isinstance(report, dict) or "how" not in report:
            break
        reports.append(report)
    return reports


def judge_reports(reports: Sequence[JsonObject], tests: UnitTests) -> tuple[Result, JsonObject | None] | None:
    """The results and the metadata; None if all is right so far and there are more tests."""
    try:
        expected = None
        result: Result = []
        for report in reports:
            how = report["how"]
            if how == "paused":
                return None
            if how == "broken":
                return broken(report["error"])
            if how == "end":
                return result, {"execution time": report["seconds"]}
            if how == "loaded":
                expected = parse_outputs(tests.outputs)
                continue
            metadata = _judge_test(report, tests, len(result), expected)
            result.append(metadata["error_code"] if metadata else True)
            if metadata and report.get("lost"):
                break
            if metadata:
                result[-1] = False if how == "value" else result[-1]
                return result, metadata
    except (InvalidOperation, ValueError, RecursionError) as error:
        return broken(error)
    except (KeyError, TypeError, IndexError, AttributeError):
        pass  # a report that the program forged
    return [-1] * len(tests.inputs), None  # the process ended without a result


def _judge_test(report: JsonObject, tests: UnitTests, index: int, expected: list[Any] | None) -> JsonObject | None:
    """What is wrong with one test; None if it passed."""
    given, right = tests.inputs[index], tests.outputs[index]
    if expected is not None:
        given, right = parse_arguments(given), expected[index]
    about = {"inputs": shorten(given), "expected": shorten(right)}
    match report["how"]:
        case "timeout":
            return {"error": report["error"], "error_code": -3, "error_message": "Time Limit Exceeded", **about}
        case "failed":
            error = {"error": report["error"], "error_code": -4, "error_message": "Runtime Error"}
            return {**error, **about, "traceback": report["traceback"]}
        case "output":
            mismatch = find_output_mismatch(report["stdout"], tests.expected(index))
            output = shorten(report["stdout"])
            return {"output": output, **about, "error_code": -2, "error_message": mismatch} if mismatch else None
        case _:
            if same_value(decode_value(report["value"]), right):
                return None
            return {"output": report["shown"], **about, "error_code": -2, "error_message": "Wrong Answer"}
