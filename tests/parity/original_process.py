"""The process with the original's server, started again when it dies or does not answer."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections import Counter
from pathlib import Path
from typing import Any, Final, Self

PROGRAM: Final = Path(__file__).with_name("original.py")
_START_S: Final = 300
_ANSWER_S: Final = 90
_MAX_LINE_BYTES: Final = 64 * 2**20


class OriginalError(Exception):
    """The original's server does not start."""


class OriginalProcess:
    """One environment of a checkout, on an interpreter that has its packages."""

    def __init__(self, python: str, checkout: Path, environment: str, program: Path = PROGRAM) -> None:
        self._command = [python, str(program), str(checkout), environment]
        self._process: asyncio.subprocess.Process | None = None
        self.errors = Counter[str]()
        """Requests that did not reach its server, for example settings that it refuses."""

    async def __aenter__(self) -> Self:
        await self._start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stop()

    async def score(self, request: dict[str, Any]) -> list[dict[str, Any]]:
        """The original's replies; none if it fails or does not answer."""
        process = self._process or await self._start()
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            process.stdin.write(json.dumps(request).encode() + b"\n")
            await process.stdin.drain()
            line = await asyncio.wait_for(process.stdout.readline(), _ANSWER_S)
        except (TimeoutError, ConnectionError):
            line = b""
        if not line:
            await self._stop()
            return []
        reply = json.loads(line)
        if "error" in reply:
            self.errors[reply["error"][:200]] += 1
        replies: list[dict[str, Any]] = reply.get("replies", [])
        return replies

    async def _start(self) -> asyncio.subprocess.Process:
        options = {"TOKENIZERS_PARALLELISM": "false", "PYTHONDONTWRITEBYTECODE": "1", "PYTHONUTF8": "1"}
        environment = {**os.environ, **options}
        environment.pop("PYTHONPATH", None)
        self._process = await asyncio.create_subprocess_exec(
            *self._command,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=sys.stderr if os.environ.get("PARITY_VERBOSE") else asyncio.subprocess.DEVNULL,
            env=environment,
            limit=_MAX_LINE_BYTES,
        )
        assert self._process.stdout is not None
        try:
            ready = await asyncio.wait_for(self._process.stdout.readline(), _START_S)
        except TimeoutError:
            ready = b""
        if not ready:
            await self._stop()
            raise OriginalError(f"{' '.join(self._command)} does not start; run it by hand to see why")
        return self._process

    async def _stop(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        if process.returncode is None:
            process.kill()
        await process.wait()
