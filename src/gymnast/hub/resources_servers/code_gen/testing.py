"""Trying a program on the tests of a row: what goes into the sandbox, and what its reports mean.

The sandbox gets the program and inputs. Expected outputs stay here, and so does the comparison.
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

from gymnast.hub.resources_servers.code_gen.comparison import same_output, same_value
from gymnast.hub.resources_servers.code_gen.unit_tests import UnitTests
from gymnast.kit.sandbox.interface import Execution, Limits, Sandbox
from gymnast.kit.shipped import shipped
from gymnast.types.failure import bounded
from gymnast.types.json import JsonObject

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

_IN_JAIL: Final = Path(__file__).with_name("in_jail.py")
_KEPT: Final = 500
_FIRST_BATCH: Final = 8
_BATCH: Final = 32
_FIRST_SLICE_S: Final = 0.1
_SLICE_S: Final = 2.0
_BATCH_BYTES: Final = 4 << 20
_LONG: Final = 100_000


class BrokenTestError(ValueError):
    """A test of the row cannot be run: its arguments are no JSON. Nothing the model could have done."""


class Report(msgspec.Struct, frozen=True):
    """What the process in the sandbox tells of one test."""

    how: Literal["exited", "timeout", "signal", "output", "uncompiled"]
    code: int = 0
    stdout: str = ""
    stderr: str = ""
    value: str | None = None
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Trial:
    """How to try a program."""

    timeout_s: float
    limits: Limits = field(default_factory=Limits)
    """But for time and output, which follow from the tests."""
    output_bytes: int = 2 << 20
    stop_at_first_failure: bool = True


@dataclass(slots=True)
class Outcome:
    """How a program did, test by test, up to the last one that was run."""

    result: list[bool | int] = field(default_factory=list)
    first_failure: JsonObject | None = None
    tests: list[JsonObject] = field(default_factory=list)
    seconds: float = 0.0

    def passed(self, tests: UnitTests) -> bool:
        return len(self.result) == len(tests) and all(result is True for result in self.result)


async def try_program(source: str, tests: UnitTests, sandbox: Sandbox, trial: Trial) -> Outcome:
    """Run the program on its tests, in order, until it fails one, or on all of them."""
    outcome = Outcome()
    started = time.monotonic()
    while len(outcome.result) < len(tests):
        batch = next_batch(tests, len(outcome.result))
        for report in await _run_batch(source, tests, batch, sandbox, trial):
            index = len(outcome.result)
            verdict = await _verdict(report, tests, index)
            _note(outcome, tests, report, result=verdict)
            if report.how == "uncompiled" or (verdict is not True and trial.stop_at_first_failure):
                outcome.seconds = time.monotonic() - started
                return outcome
    outcome.seconds = time.monotonic() - started
    return outcome


def next_batch(tests: UnitTests, start: int) -> range:
    """The tests to run next, in one go: few at first, as most wrong programs fail at once."""
    room, stop = _BATCH_BYTES, start
    while stop < min(start + (_BATCH if start else _FIRST_BATCH), len(tests)):
        room -= _size(tests.inputs[stop])
        if room < 0 and stop > start:
            break
        stop += 1
    return range(start, stop)


async def _run_batch(source: str, tests: UnitTests, batch: range, sandbox: Sandbox, trial: Trial) -> list[Report]:
    cap = _output_cap(tests, batch, trial.output_bytes)
    job = {
        "source": source,
        "function": tests.fn_name,
        "tests": [tests.given(index) for index in batch],
        "timeout_s": trial.timeout_s,
        "cap": cap,
        "stop": trial.stop_at_first_failure,
        "slice_s": _SLICE_S if batch.start else _FIRST_SLICE_S,
    }
    seconds = len(batch) * trial.timeout_s + 2.0
    limits = replace(trial.limits, wall_s=seconds + 2.0, cpu_s=seconds, output_bytes=8 * cap + (1 << 20))
    done = await sandbox.run_python(shipped(_IN_JAIL), stdin=_encoded(job), limits=limits)
    reports = read_reports(done.stdout, len(batch))
    return reports or [_without_report(done)]


def read_reports(stdout: str, most: int) -> list[Report]:
    """The reports of a batch, up to the first line that is none."""
    reports: list[Report] = []
    for line in stdout.split("\n")[:most]:
        try:
            reports.append(msgspec.json.decode(line, type=Report))
        except (msgspec.DecodeError, UnicodeEncodeError):
            break
    return reports


def _without_report(done: Execution) -> Report:
    """The program took the process down that watches it, or the limits of the whole batch ended both."""
    said = f"the sandbox ended it ({done.ending})\n{done.stderr}"
    return Report("timeout" if done.ending == "timeout" else "signal", code=1, stderr=said, seconds=done.seconds)


async def _verdict(report: Report, tests: UnitTests, index: int) -> bool | int:
    if report.how == "uncompiled":
        return UNCOMPILED
    if report.how == "timeout":
        return TOO_SLOW
    if report.how != "exited" or report.code != 0:
        if tests.fn_name is not None:
            _check_arguments(tests.inputs[index], index)
        return FAILED
    produced = report.stdout if tests.fn_name is None else report.value
    if produced is None:
        return FAILED
    compare: Callable[[str, Any], bool] = same_output if tests.fn_name is None else same_value
    expected = tests.expected(index)
    long = len(produced) + _size(expected) > _LONG
    matches = await asyncio.to_thread(compare, produced, expected) if long else compare(produced, expected)
    return True if matches else WRONG


def _check_arguments(given: Any, index: int) -> None:
    try:
        for line in given.split("\n") if isinstance(given, str) else ():
            json.loads(line)
    except (ValueError, RecursionError) as error:
        raise BrokenTestError(f"unit_tests.inputs[{index}] must hold one JSON value a line: {error}") from error


def _note(outcome: Outcome, tests: UnitTests, report: Report, *, result: bool | int) -> None:
    index = len(outcome.result)
    outcome.result.append(result)
    outcome.tests.append({"seconds": report.seconds, "exit_code": report.code, "stderr": bounded(report.stderr, _KEPT)})
    if result is True or outcome.first_failure is not None:
        return
    produced = report.stdout if tests.fn_name is None else report.value or ""
    outcome.first_failure = {
        "index": index,
        "error_code": result,
        "error_message": MESSAGES[int(result)],
        "inputs": _shown(tests.inputs[index]),
        "output": bounded(produced, _KEPT),
        "expected": _shown(tests.outputs[index]),
        "stderr": _end_of(report.stderr),
        "seconds": report.seconds,
    }


def _output_cap(tests: UnitTests, batch: range, least: int) -> int:
    """What a test may write. Coarse steps: the sandbox is not to learn how long the right answer is."""
    longest = max(_size(tests.outputs[index]) for index in batch)
    cap = least
    while cap < 2 * longest:
        cap *= 2
    return cap


def _size(value: Any) -> int:
    return len(value) if isinstance(value, str) else len(json.dumps(value, default=str))


def _encoded(job: JsonObject) -> bytes:
    try:
        return orjson.dumps(job)
    except TypeError:  # integers beyond 64 bits, and half surrogates
        return json.dumps(job).encode()


def _shown(value: Any) -> str:
    return bounded(value if isinstance(value, str) else json.dumps(value, default=str)[: 4 * _KEPT], _KEPT)


def _end_of(text: str) -> str:
    return text if len(text) <= _KEPT else f"…{text[-_KEPT:]}"
