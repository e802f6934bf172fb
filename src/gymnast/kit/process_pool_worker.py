"""A worker of a `ProcessPool`, run as a script: `python process_pool_worker.py MODULE:FUNCTION MEMORY_MB [WARM_UP]`.

Reads frames (four bytes of length, then JSON) from standard input, calls the function with the arguments in each, and
writes its result as a frame. Standard library only, so that a worker starts in milliseconds.
"""

from __future__ import annotations

import importlib
import json
import os
import resource
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any


def main(target: str, memory_mb: int, warm_up: str = "") -> None:
    """Serve until standard input ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle
    requests, replies = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    null = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1):
        os.dup2(null, stream)  # what the function prints must not look like a reply
    try:
        function = _import_function(target)
        if warm_up:
            _import_function(warm_up)()
    except Exception as error:  # noqa: BLE001 - the boundary: the parent reports it
        _send(replies, _failure(error))
        return
    if memory_mb:
        limit = _reserved_bytes() + (memory_mb << 20)
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    _send(replies, {"ready": True})
    while (request := _receive(requests)) is not None:
        _send(replies, _call(function, request))


def _import_function(target: str) -> Callable[..., Any]:
    module, _, name = target.partition(":")
    function: Callable[..., Any] = getattr(importlib.import_module(module), name)
    return function


def _call(function: Callable[..., Any], request: dict[str, Any]) -> dict[str, Any]:
    # The default action of both signals kills the process, even if its parent has died.
    signal.setitimer(signal.ITIMER_REAL, request["timeout_s"] + 5.0)
    signal.setitimer(signal.ITIMER_PROF, request["cpu_s"])
    try:
        return {"result": function(*request["arguments"])}
    except Exception as error:  # noqa: BLE001 - the boundary: the parent raises it
        return _failure(error)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.setitimer(signal.ITIMER_PROF, 0)


def _reserved_bytes() -> int:
    """The address space in use. On large machines, libraries and their threads reserve gigabytes."""
    try:
        with Path("/proc/self/statm").open() as file:
            return int(file.read().split()[0]) * resource.getpagesize()
    except (OSError, ValueError):
        return 0


def _failure(error: Exception) -> dict[str, Any]:
    return {"error": type(error).__name__, "text": str(error)[:4000]}


def _send(stream: IO[bytes], message: dict[str, Any]) -> None:
    try:
        text = json.dumps(message, ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        text = json.dumps(_failure(error))
    body = text.encode("utf-8", "replace")  # lone surrogates are not valid JSON text
    stream.write(len(body).to_bytes(4, "big") + body)
    stream.flush()


def _receive(stream: IO[bytes]) -> Any:
    head = stream.read(4)
    if len(head) < 4:
        return None
    return json.loads(stream.read(int.from_bytes(head, "big")))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), *sys.argv[3:])
