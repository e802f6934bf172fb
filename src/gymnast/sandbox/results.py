"""How a program ended, from a jail's reply. Pure; claims that a program makes about itself are not trusted."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Sequence
from typing import Any

from gymnast.sandbox.inside.frames import HEAD
from gymnast.sandbox.interface import CallResult, Ending, Execution
from gymnast.sandbox.jail import JailReply

STOPPED: dict[str, Ending] = {
    "wall": "timeout",
    "cpu": "timeout",
    "memory": "memory",
    "output": "output",
    "processes": "killed",
    "killed": "killed",
}


def parse_execution(reply: JailReply, seconds: float) -> Execution:
    """How a program ended."""
    ending, code = parse_ending(reply)
    return Execution(
        ending=ending,
        exit_code=code,
        stdout=reply.stdout.decode(errors="replace"),
        stderr=reply.stderr.decode(errors="replace"),
        seconds=reply.header.get("seconds", seconds),
        cpu_seconds=reply.header.get("cpu", 0.0),
    )


def parse_ending(reply: JailReply) -> tuple[Ending, int | None]:
    reason = reply.header["reason"]
    if reason != "ended":
        return STOPPED[reason], None
    status = int(reply.header["status"])
    if os.WIFEXITED(status):
        code = os.WEXITSTATUS(status)
        # Python raises MemoryError for a refused allocation and prints it as its last line.
        is_memory_error = code != 0 and reply.stderr.rstrip().rpartition(b"\n")[2].startswith(b"MemoryError")
        return ("memory", None) if is_memory_error else ("exited", code)
    number = os.WTERMSIG(status)
    if number == signal.SIGXCPU:
        return "timeout", None
    return ("memory" if number == signal.SIGKILL and reply.oom_kills else "killed"), None


def parse_step(reply: JailReply, seconds: float) -> Execution:
    """How a step of a session ended; the exit code and the value's text are the interpreter's claims."""
    if "reason" in reply.header:
        return parse_execution(reply, seconds)
    header, value = next(iter(parse_frames(reply.answers)), ({}, b""))
    return Execution(
        ending="exited",
        exit_code=code if isinstance(code := header.get("code"), int) else 1,
        stdout=reply.stdout.decode(errors="replace"),
        stderr=reply.stderr.decode(errors="replace"),
        seconds=seconds,
        result=value.decode(errors="replace") if header.get("shown") else None,
    )


def parse_calls(reply: JailReply, count: int) -> tuple[CallResult, ...]:
    """One result per call. The first unanswered call has the program's ending; later ones were not reached."""
    ending, code = parse_ending(reply)
    results: list[CallResult] = []
    for header, _ in parse_frames(reply.answers):
        if "value" in header:
            results.append(CallResult("returned", value=header["value"]))
        elif "error" in header:
            results.append(CallResult("raised", error=str(header["error"])))
    results = results[:count]
    if len(results) < count:
        error = f"the program exited with code {code}" if ending == "exited" else ""
        results.append(CallResult(ending, error=error))
    return (*results, *[CallResult("not_reached")] * (count - len(results)))


def parse_frames(data: bytes) -> Sequence[tuple[dict[str, Any], bytes]]:
    """The complete frames, up to the first one whose header is not a JSON object."""
    frames: list[tuple[dict[str, Any], bytes]] = []
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
        frames.append((header, data[at + text : at + text + blob]))
        at += text + blob
    return frames
