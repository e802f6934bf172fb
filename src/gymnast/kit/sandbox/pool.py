"""Warm jails, each serving one program at a time.

Why a server that forks inside the jail, and not jails started ahead and used once: measured on two cores, a new jail
costs about 25 ms of CPU for each program and a fork in fresh process and mount namespaces about 5, beside 15 for a bare
`python -c`. A program cannot reach the server or the next program: it lives in a process namespace that shows neither,
without privileges, and its /tmp, /dev/shm and processes are gone before the jail is used again. Where the jail cannot
make such namespaces (containers), each one is used once and its successor started ahead.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any

from gymnast.kit.sandbox.interface import Calls, Execution, Limits, Program, SandboxError
from gymnast.kit.sandbox.jail import Jail, Report, closing
from gymnast.kit.sandbox.verdict import calls_of, execution_of, step_of

Opener = Callable[[Limits], Awaitable[Jail]]
DEFAULT_COMMAND = ("python3", "main.py")


class JailPool:
    """A sandbox whose programs run in warm jails."""

    def __init__(self, opener: Opener, limits: Limits, *, size: int, sessions: int, recycle_after: int) -> None:
        self._open, self._limits, self._recycle_after = opener, limits, recycle_after
        self._turns, self._session_turns = asyncio.Semaphore(size), asyncio.Semaphore(sessions)
        self._size = size
        self._idle: deque[Jail] = deque()
        self._background: set[asyncio.Task[None]] = set()
        self._is_closed = False

    async def run(self, program: Program) -> Execution:
        """Run a program to its end."""
        files = _checked(program.files)
        request: dict[str, Any] = {"kind": "command", "command": list(program.command)}
        if tuple(program.command) == DEFAULT_COMMAND and "main.py" in files:
            files = {"main.py": files.pop("main.py"), **files}
            request = {"kind": "python"}
        request |= {"stdin": len(program.stdin), "environment": dict(program.environment)}
        request["files"] = [(name, len(data)) for name, data in files.items()]
        blob = b"".join([program.stdin, *files.values()])
        report, seconds = await self._ask(request, blob, program.limits, program.limits.wall_s)
        return execution_of(report, seconds)

    async def run_python(self, code: str, *, stdin: bytes = b"", limits: Limits | None = None) -> Execution:
        """Run a Python program from the warm pool."""
        return await self.run(Program(files={"main.py": _encoded(code)}, stdin=stdin, limits=limits or self._limits))

    async def call_function(
        self, code: str, function: str, arguments: Sequence[Sequence[Any]], limits: Limits | None = None
    ) -> Calls:
        """Define `code`, then call its function with each list of arguments; see the interface."""
        limits, source = limits or self._limits, _encoded(code)
        request = {
            "kind": "call",
            "function": function,
            "arguments": [list(given) for given in arguments],
            "files": [("main.py", len(source))],
        }
        report, seconds = await self._ask(request, source, limits, limits.wall_s * (len(arguments) + 1))
        return Calls(calls_of(report, len(arguments)), execution_of(report, seconds))

    @contextlib.asynccontextmanager
    async def python_session(self) -> AsyncIterator[Session]:
        """A stateful interpreter in a jail of its own."""
        async with self._session_turns:
            session = Session(self._open)
            try:
                yield session
            finally:
                await session.close()

    async def _ask(self, request: dict[str, Any], blob: bytes, limits: Limits, wall_s: float) -> tuple[Report, float]:
        async with self._turns:
            jail = self._warm_one(limits) or await self._open(limits)
            kept = False
            try:
                started = time.monotonic()
                report = await jail.ask(request, blob, limits, wall_s)
                kept = jail.is_reusable and report.header.get("reason") is not None and self._may_keep(jail)
                return report, time.monotonic() - started
            finally:
                if kept:
                    self._idle.append(jail)
                else:
                    self._retire(jail)

    def _warm_one(self, limits: Limits) -> Jail | None:
        while self._idle:
            jail = self._idle.popleft()
            if jail.is_alive and jail.launch.allows(limits):
                return jail
            self._later(jail.close())  # too small, or killed from outside
        return None

    def _may_keep(self, jail: Jail) -> bool:
        return not self._is_closed and (self._recycle_after == 0 or jail.programs < self._recycle_after)

    def _retire(self, jail: Jail) -> None:
        """End a jail and start its successor, without anybody waiting for either."""
        self._later(jail.close())
        if not self._is_closed:
            self._later(self.warm())

    def _later(self, work: Any) -> None:
        task = asyncio.ensure_future(work)
        self._background.add(task)
        task.add_done_callback(self._background.discard)

    async def warm(self) -> None:
        """Start one jail ahead; should that fail, the next program to find none says why."""
        with contextlib.suppress(SandboxError):
            await self.add()

    async def add(self) -> None:
        jail = await self._open(self._limits)
        if self._is_closed or len(self._idle) >= self._size:
            await jail.close()
        else:
            self._idle.append(jail)

    async def close(self) -> None:
        self._is_closed = True
        while self._background:
            await asyncio.gather(*self._background, return_exceptions=True)
        await asyncio.gather(*(jail.close() for jail in self._idle))
        self._idle.clear()


class Session:
    """A Python interpreter that keeps its variables."""

    def __init__(self, opener: Opener) -> None:
        self._open = opener
        self._jail: Jail | None = None
        self._is_lost = False
        self._one_at_a_time = asyncio.Lock()

    @property
    def alive(self) -> bool:
        return not self._is_lost

    async def execute(self, code: str, limits: Limits) -> Execution:
        """Run code; `result` is the repr of the last line if that is an expression."""
        async with self._one_at_a_time:
            if self._is_lost:
                raise SandboxError("this session has ended: open another")
            self._is_lost = True  # until we know better: also when the caller is cancelled
            if self._jail is None:
                self._jail = await self._open(limits)
            started = time.monotonic()
            report = await self._jail.ask({"kind": "execute"}, _encoded(code), limits, limits.wall_s)
            self._is_lost = "reason" in report.header
            return step_of(report, time.monotonic() - started)

    async def close(self) -> None:
        self._is_lost = True
        if self._jail is not None:
            async with closing(self._jail):
                self._jail = None


def _encoded(code: str) -> bytes:
    return code.encode(errors="surrogatepass")


def _checked(files: Mapping[str, bytes]) -> dict[str, bytes]:
    """Only paths below the working directory."""
    for name in files:
        path = PurePosixPath(name)
        if path.is_absolute() or ".." in path.parts or not path.parts:
            raise ValueError(f"a program's file must be a path below its working directory, not '{name}'")
    return dict(files)
