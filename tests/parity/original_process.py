"""The process with the original's servers, started again when it dies or does not answer."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final, Self

PROGRAM: Final = Path(__file__).with_name("original.py")
_START_S: Final = 1800
_ANSWER_S: Final = 600
"""Long enough for a machine that does other things as well: a reply that is too late counts as none."""
_MAX_LINE_BYTES: Final = 64 * 2**20


class OriginalError(Exception):
    """The original's server does not start."""


class OriginalProcess:
    """The servers of a checkout, one at a time, on an interpreter that has their packages."""

    def __init__(self, python: str, checkout: Path, program: Path = PROGRAM) -> None:
        self._command = [python, str(program), str(checkout)]
        self._process: asyncio.subprocess.Process | None = None
        self._environment: str | None = None
        self.errors = Counter[str]()
        """Requests that did not reach the open server, for example settings that it refuses."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stop()

    @asynccontextmanager
    async def opened(self, environment: str) -> AsyncIterator[Self]:
        """With the server of an environment."""
        self.errors.clear()
        self._environment = environment
        await self._open()
        try:
            yield self
        finally:
            if self._process is not None and not await self._ask({"close": True}, _ANSWER_S):
                await self._stop()

    async def score(self, request: dict[str, Any]) -> list[dict[str, Any]]:
        """The original's replies; none if it fails or does not answer."""
        if self._process is None:
            await self._open()
        reply = await self._ask(request, _ANSWER_S)
        if "replies" not in reply:
            message = reply.get("error", f"no reply within {_ANSWER_S} s, or the process died")
            self.errors[message[:200]] += 1
        if not reply or "closed" in reply:
            await self._stop()
        replies: list[dict[str, Any]] = reply.get("replies", [])
        return replies

    async def _open(self) -> None:
        if self._process is None:
            await self._start()
        if "ready" not in await self._ask({"open": self._environment}, _START_S):
            await self._stop()
            command = " ".join(self._command)
            raise OriginalError(f"{command} does not start it; PARITY_VERBOSE=1 shows what it writes")

    async def _ask(self, message: dict[str, Any], seconds: float) -> dict[str, Any]:
        """The next line that it writes; nothing if there is none."""
        assert self._process is not None
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.write(json.dumps(message).encode() + b"\n")
            await self._process.stdin.drain()
            line = await asyncio.wait_for(self._process.stdout.readline(), seconds)
        except (TimeoutError, ConnectionError, ValueError):  # a line that is too long is a ValueError
            return {}
        reply: dict[str, Any] = json.loads(line) if line else {}
        return reply

    async def _start(self) -> None:
        options = {"TOKENIZERS_PARALLELISM": "false", "PYTHONDONTWRITEBYTECODE": "1", "PYTHONUTF8": "1"}
        options["PYTHONHASHSEED"] = os.environ.get("PYTHONHASHSEED", "random")  # the same order of sets on both sides
        environment = {**os.environ, **options}
        environment.pop("PYTHONPATH", None)
        self._process = await asyncio.create_subprocess_exec(
            *self._command,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=sys.stderr if os.environ.get("PARITY_VERBOSE") else asyncio.subprocess.DEVNULL,
            env=environment,
            limit=_MAX_LINE_BYTES,
            start_new_session=True,
        )

    async def _stop(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()
