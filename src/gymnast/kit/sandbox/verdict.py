"""From what a jail reports to how a program ended. Pure; nothing here believes what a program says about itself."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Sequence
from typing import Any

from gymnast.kit.sandbox.inside.frames import HEAD
from gymnast.kit.sandbox.interface import CallResult, Ending, Execution
from gymnast.kit.sandbox.jail import Report

STOPPED: dict[str, Ending] = {
    "wall": "timeout",
    "cpu": "timeout",
    "memory": "memory",
    "output": "output",
    "processes": "killed",
}


def execution_of(report: Report, seconds: float) -> Execution:
    """How a program ended."""
    ending, code = ending_of(report)
    return Execution(
        ending=ending,
        exit_code=code,
        stdout=report.stdout.decode(errors="replace"),
        stderr=report.stderr.decode(errors="replace"),
        seconds=report.header.get("seconds", seconds),
        cpu_seconds=report.header.get("cpu", 0.0),
    )


def ending_of(report: Report) -> tuple[Ending, int | None]:
    reason = report.header["reason"]
    if reason != "ended":
        return STOPPED[reason], None
    status = int(report.header["status"])
    if os.WIFEXITED(status):
        code = os.WEXITSTATUS(status)
        # Python turns a refused allocation into an exception, whose name is the last line it writes.
        refused = code != 0 and report.stderr.rstrip().rpartition(b"\n")[2].startswith(b"MemoryError")
        return ("memory", None) if refused else ("exited", code)
    number = os.WTERMSIG(status)
    if number == signal.SIGXCPU:
        return "timeout", None
    return ("memory" if number == signal.SIGKILL and report.memory_kills else "killed"), None


def step_of(report: Report, seconds: float) -> Execution:
    """How a step of a session went; the code and the value's text are the interpreter's own words."""
    if "reason" in report.header:
        return execution_of(report, seconds)
    header, shown = next(iter(frames_of(report.said)), ({}, b""))
    return Execution(
        ending="exited",
        exit_code=code if isinstance(code := header.get("code"), int) else 1,
        stdout=report.stdout.decode(errors="replace"),
        stderr=report.stderr.decode(errors="replace"),
        seconds=seconds,
        result=shown.decode(errors="replace") if header.get("shown") else None,
    )


def calls_of(report: Report, count: int) -> tuple[CallResult, ...]:
    """One result for each call. Calls that were never answered ended as the program did."""
    ending, code = ending_of(report)
    found: list[CallResult] = []
    for header, _ in frames_of(report.said):
        if "value" in header:
            found.append(CallResult("returned", value=header["value"]))
        elif "error" in header:
            found.append(CallResult("raised", error=str(header["error"])))
    found = found[:count]
    if len(found) < count:
        why = f"it exited with code {code}" if ending == "exited" else ""
        found.append(CallResult("exited" if ending == "exited" else ending, error=why))
    return (*found, *[CallResult("not_reached")] * (count - len(found)))


def frames_of(data: bytes) -> Sequence[tuple[dict[str, Any], bytes]]:
    """The complete frames; what is no JSON object ends the list."""
    found: list[tuple[dict[str, Any], bytes]] = []
    at = 0
    while len(data) - at >= HEAD.size:
        text, blob = HEAD.unpack_from(data, at)
        at += HEAD.size
        if at + text + blob > len(data):
            break
        try:
            header = json.loads(data[at : at + text])
        except (ValueError, RecursionError):
            break
        if not isinstance(header, dict):
            break
        found.append((header, data[at + text : at + text + blob]))
        at += text + blob
    return found
