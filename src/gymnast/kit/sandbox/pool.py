"""Warm jails, each serving one program at a time.

Why a server that forks inside the jail, and not jails started ahead and used once: in bench/sandbox.py a program costs
9 ms of CPU this way and 14 as a bare `python -c`; a jail of its own takes 60 ms to start. A program cannot reach the
server or the next program: it lives in a process namespace that shows neither, without privileges, and its processes,
/tmp and /dev/shm are gone before the jail is used again. Where the jail cannot make such namespaces (containers), each
one is used once and its successor started ahead.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any

from gymnast.kit.sandbox.interface import Calls, Execution, Limits, Program, SandboxError
from gymnast.kit.sandbox.jail import Jail, Report
from gymnast.kit.sandbox.verdict import calls_of, execution_of, step_of

Opener = Callable[[Limits], Coroutine[Any, Any, Jail]]
SPARE = 16
"""Jails of finished sessions that are kept beside the pool's."""
DEFAULT_COMMAND = ("python3", "main.py")


class JailPool:
    """A sandbox whose programs run in warm jails."""

    def __init__(self, opener: Opener, limits: Limits, *, size: int, sessions: int, recycle_after: int) -> None:
        self._open, self._limits, self._recycle_after = opener, limits, recycle_after
        self._turns, self._session_turns = asyncio.Semaphore(size), asyncio.Semaphore(sessions)
        self._size = size
        self._idle: deque[asyncio.Future[Jail]] = deque()
        """Ready ones first, then those that are being started."""
        self._background: set[asyncio.Task[None]] = set()
        self._is_closed = False

    async def run(self, program: Program) -> Execution:
        """Run a program to its end."""
        files = _checked(program.files)
        request: dict[str, Any] = {"kind": "command", "command": list(program.command)}
        # Variables may be meant for the interpreter itself: a warm one has read them already.
        if tuple(program.command) == DEFAULT_COMMAND and "main.py" in files and not program.environment:
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
        """A stateful interpreter, in a jail that serves nobody else meanwhile."""
        async with self._session_turns:
            session = Session(self._taken, self._given_back)
            try:
                yield session
            finally:
                await session.close()

    async def _ask(self, request: dict[str, Any], blob: bytes, limits: Limits, wall_s: float) -> tuple[Report, float]:
        async with self._turns:
            jail = await self._taken(limits)
            is_sound = False
            try:
                started = time.monotonic()
                report = await jail.ask(request, blob, limits, wall_s)
                is_sound = "lost" not in report.header
                return report, time.monotonic() - started
            finally:
                self._given_back(jail, is_sound)

    async def _taken(self, limits: Limits) -> Jail:
        """A warm jail, one that is being started, or a new one; a caller that gives up leaves it to the next."""
        while not self._is_closed:
            is_new = not self._idle
            waiting = self._started(limits) if is_new else self._idle.popleft()
            try:
                jail = await asyncio.shield(waiting)
            except asyncio.CancelledError:
                self._idle.append(waiting)
                raise
            except SandboxError:
                if is_new:
                    raise
                continue
            if jail.is_alive and jail.launch.allows(limits):
                return jail
            self._later(jail.close())  # killed from outside, or too small
        raise SandboxError("the sandbox is closed")

    def _started(self, limits: Limits) -> asyncio.Future[Jail]:
        return asyncio.ensure_future(self._open(limits))

    def _given_back(self, jail: Jail, is_sound: bool) -> None:  # noqa: FBT001 - the one thing to say about it
        """For the next program, or for the bin with a successor started; nobody waits for either."""
        is_fresh = self._recycle_after == 0 or jail.programs < self._recycle_after
        if is_sound and jail.is_reusable and is_fresh and not self._is_closed and len(self._idle) < self._size + SPARE:
            self._idle.appendleft(_now(jail))
            return
        self._later(jail.close())
        if not self._is_closed and len(self._idle) < self._size:
            self._idle.append(self._started(self._limits))

    def _later(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(work)
        self._background.add(task)
        task.add_done_callback(self._background.discard)

    async def warm(self) -> None:
        """Start one jail ahead, and wait until it serves."""
        self._idle.append(_now(await self._open(self._limits)))

    async def close(self) -> None:
        self._is_closed = True
        started = await asyncio.gather(*self._idle, return_exceptions=True)
        self._idle.clear()
        for jail in started:
            if isinstance(jail, Jail):
                self._later(jail.close())
        while self._background:
            await asyncio.gather(*self._background)


def _now(jail: Jail) -> asyncio.Future[Jail]:
    future: asyncio.Future[Jail] = asyncio.get_running_loop().create_future()
    future.set_result(jail)
    return future


class Session:
    """A Python interpreter that keeps its variables."""

    def __init__(self, take: Opener, give_back: Callable[[Jail, bool], None]) -> None:
        self._take, self._give_back = take, give_back
        self._jail: Jail | None = None
        self._is_sound, self._is_lost = True, False
        self._one_at_a_time = asyncio.Lock()

    @property
    def alive(self) -> bool:
        return not self._is_lost

    async def execute(self, code: str, limits: Limits) -> Execution:
        """Run code; `result` is the repr of the last line if that is an expression."""
        async with self._one_at_a_time:
            if self._is_lost:
                raise SandboxError("this session has ended: open another")
            started = time.monotonic()
            report = await self._asked("execute", _encoded(code), limits)
            self._is_lost = "reason" in report.header
            return step_of(report, time.monotonic() - started)

    async def _asked(self, kind: str, blob: bytes, limits: Limits) -> Report:
        self._is_sound, self._is_lost = False, True  # until we know better: also when the caller is cancelled
        if self._jail is None:
            self._jail = await self._take(limits)
        report = await self._jail.ask({"kind": kind}, blob, limits, limits.wall_s)
        self._is_sound = "lost" not in report.header
        return report

    async def close(self) -> None:
        """End what runs in it; the jail goes back to whom it came from."""
        async with self._one_at_a_time:
            was_lost, self._is_lost = self._is_lost, True
            if self._jail is None:
                return
            try:
                if self._jail.is_reusable and not was_lost:
                    await self._asked("end", b"", Limits())
            except SandboxError:
                self._is_sound = False
            finally:
                jail, self._jail = self._jail, None
                self._give_back(jail, self._is_sound)


def _encoded(code: str) -> bytes:
    return code.encode(errors="surrogatepass")


def _checked(files: Mapping[str, bytes]) -> dict[str, bytes]:
    """Only paths below the working directory."""
    for name in files:
        path = PurePosixPath(name)
        if path.is_absolute() or ".." in path.parts or not path.parts:
            raise ValueError(f"a program's file must be a path below its working directory, not '{name}'")
    return dict(files)
