"""A pool of warm jails, each running one program at a time.

A server forks inside the jail, instead of one jail per program, because in bench/sandbox.py a program then costs 9 ms
of CPU (a bare `python -c` costs 14) while starting a jail takes 60 ms. A program cannot reach the server or the next
program: it runs unprivileged in its own process namespace, and its processes, /tmp and /dev/shm are gone before the
jail is used again. Where a jail cannot create such namespaces (containers), each is used once and its successor is
started ahead of time.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any

from gymnast.sandbox.inside.frames import pack_frame
from gymnast.sandbox.interface import Execution, FunctionCalls, Limits, Program, SandboxError
from gymnast.sandbox.jail import Jail, JailLostError, JailReply, JailRequest, lost_reply
from gymnast.sandbox.results import parse_calls, parse_execution, parse_step

Opener = Callable[[Limits], Coroutine[Any, Any, Jail]]
MAX_SPARE = 16
"""Jails of finished sessions kept in addition to the pool's size."""
DEFAULT_COMMAND = ("python3", "main.py")
CONTROL_PROGRAM, CONTROL_OUTPUT = b"print(6 * 7)", b"42\n"
ENDED_SESSION = "this session has ended: open another\n"
Sender = Callable[[Jail, JailRequest, Limits, float], Coroutine[Any, Any, JailReply]]


class JailPool:
    """A sandbox whose programs run in warm jails."""

    def __init__(self, opener: Opener, limits: Limits, *, size: int, sessions: int, recycle_after: int) -> None:
        self._open, self._limits, self._recycle_after = opener, limits, recycle_after
        self._slots, self._session_slots = asyncio.Semaphore(size), asyncio.Semaphore(sessions)
        self._size = size
        self._idle: deque[asyncio.Future[Jail]] = deque()
        """Ready jails first, then those still starting."""
        self._background: set[asyncio.Task[None]] = set()
        self._is_closed = False

    async def run(self, program: Program) -> Execution:
        files = _check_paths(program.files)
        request: dict[str, Any] = {"kind": "command", "command": list(program.command)}
        # Variables may configure the interpreter itself, and a warm one has already read them.
        if tuple(program.command) == DEFAULT_COMMAND and "main.py" in files and not program.environment:
            files = {"main.py": files.pop("main.py"), **files}
            request = {"kind": "python"}
        request |= {"stdin": len(program.stdin), "environment": dict(program.environment)}
        request["files"] = [(name, len(data)) for name, data in files.items()]
        blob = b"".join([program.stdin, *files.values()])
        reply, seconds = await self._request(JailRequest(request, blob), program.limits, program.limits.wall_s)
        return parse_execution(reply, seconds)

    async def run_python(self, code: str, *, stdin: bytes = b"", limits: Limits | None = None) -> Execution:
        """Run a Python program from the warm pool."""
        return await self.run(Program(files={"main.py": _encode(code)}, stdin=stdin, limits=limits or self._limits))

    async def call_function(
        self, code: str, function: str, arguments: Sequence[Sequence[Any]], limits: Limits | None = None
    ) -> FunctionCalls:
        """Run `code`, then call its function with each list of arguments; see the interface."""
        limits, source = limits or self._limits, _encode(code)
        header = {"kind": "call", "function": function, "files": [("main.py", len(source))]}
        calls = pack_frame({"arguments": [list(values) for values in arguments]})
        request = JailRequest(header, source, then=calls)
        reply, seconds = await self._request(request, limits, limits.wall_s * (len(arguments) + 1))
        return FunctionCalls(parse_calls(reply, len(arguments)), parse_execution(reply, seconds))

    @contextlib.asynccontextmanager
    async def python_session(self) -> AsyncIterator[JailSession]:
        """A stateful interpreter, in a jail that runs nothing else meanwhile."""
        async with self._session_slots:
            session = JailSession(self._acquire, self._send, self._release)
            try:
                yield session
            finally:
                await session.close()

    async def _request(self, request: JailRequest, limits: Limits, wall_s: float) -> tuple[JailReply, float]:
        async with self._slots:
            jail = await self._acquire(limits)
            is_healthy = False
            try:
                started = time.monotonic()
                reply = await self._send(jail, request, limits, wall_s)
                is_healthy = "lost" not in reply.header
                return reply, time.monotonic() - started
            finally:
                self._release(jail, is_healthy)

    async def _send(self, jail: Jail, request: JailRequest, limits: Limits, wall_s: float) -> JailReply:
        """Run a program in the jail. What it does to its own jail is its outcome, not a failure of the sandbox.

        If the jail is lost although nothing outside killed it, a program that is known to work runs in a new one: only
        if that fails too is the sandbox at fault.
        """
        try:
            return await jail.request(request, limits, wall_s)
        except JailLostError as error:
            if not error.is_silent and await jail.was_killed_from_outside():
                raise
            await jail.close()
            await self._check_that_jails_work(error)
            return lost_reply("wall" if error.is_silent else "killed")

    async def _check_that_jails_work(self, error: JailLostError) -> None:
        """Raises `error` unless a new jail runs a program."""
        control = None
        try:
            control = await self._open(self._limits)
            header = {"kind": "python", "stdin": 0, "environment": {}, "files": [("main.py", len(CONTROL_PROGRAM))]}
            reply = await control.request(JailRequest(header, CONTROL_PROGRAM), self._limits, self._limits.wall_s)
            if reply.stdout != CONTROL_OUTPUT:
                raise error
        except SandboxError:
            raise error from None
        finally:
            if control is not None:
                self._run_in_background(control.close())

    async def _acquire(self, limits: Limits) -> Jail:
        """A warm jail, one that is starting, or a new one. A cancelled caller leaves it to the next."""
        while not self._is_closed:
            is_new = not self._idle
            pending = self._start(limits) if is_new else self._idle.popleft()
            try:
                jail = await asyncio.shield(pending)
            except asyncio.CancelledError:
                self._idle.append(pending)
                raise
            except SandboxError:
                if is_new:
                    raise
                continue
            if jail.is_alive and jail.launch.allows(limits):
                return jail
            self._run_in_background(jail.close())  # killed from outside, or its limits are too small
        raise SandboxError("the sandbox is closed")

    def _start(self, limits: Limits) -> asyncio.Future[Jail]:
        return asyncio.ensure_future(self._open(limits))

    def _release(self, jail: Jail, is_healthy: bool) -> None:  # noqa: FBT001 - its only argument besides the jail
        """Keep the jail for the next program, or close it and start a successor, both in the background."""
        is_fresh = self._recycle_after == 0 or jail.programs < self._recycle_after
        if (
            is_healthy
            and jail.is_reusable
            and is_fresh
            and not self._is_closed
            and len(self._idle) < self._size + MAX_SPARE
        ):
            self._idle.appendleft(_completed_future(jail))
            return
        self._run_in_background(jail.close())
        if not self._is_closed and len(self._idle) < self._size:
            self._idle.append(self._start(self._limits))

    def _run_in_background(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(work)
        self._background.add(task)
        task.add_done_callback(self._background.discard)

    async def warm(self) -> None:
        """Start one jail ahead of time, and wait until it is ready."""
        self._idle.append(_completed_future(await self._open(self._limits)))

    async def close(self) -> None:
        self._is_closed = True
        started = await asyncio.gather(*self._idle, return_exceptions=True)
        self._idle.clear()
        for jail in started:
            if isinstance(jail, Jail):
                self._run_in_background(jail.close())
        while self._background:
            await asyncio.gather(*self._background)


def _completed_future(jail: Jail) -> asyncio.Future[Jail]:
    future: asyncio.Future[Jail] = asyncio.get_running_loop().create_future()
    future.set_result(jail)
    return future


class JailSession:
    """A Python interpreter in a jail that keeps its variables."""

    def __init__(self, take: Opener, send: Sender, give_back: Callable[[Jail, bool], None]) -> None:
        self._take, self._send, self._give_back = take, send, give_back
        self._jail: Jail | None = None
        self._is_healthy, self._is_lost = True, False
        self._error: SandboxError | None = None
        self._lock = asyncio.Lock()

    @property
    def alive(self) -> bool:
        return not self._is_lost

    async def execute(self, code: str, limits: Limits) -> Execution:
        """Run code. `result` is the repr of the last line if that is an expression."""
        async with self._lock:
            if self._error is not None:
                raise SandboxError(f"the session failed earlier: {self._error}") from self._error
            if self._is_lost:
                return Execution("killed", None, "", ENDED_SESSION, 0.0)
            started = time.monotonic()
            reply = await self._request("execute", _encode(code), limits)
            self._is_lost = "reason" in reply.header
            return parse_step(reply, time.monotonic() - started)

    async def _request(self, kind: str, blob: bytes, limits: Limits) -> JailReply:
        self._is_healthy, self._is_lost = False, True  # unless the reply proves otherwise: the caller may be cancelled
        try:
            if self._jail is None:
                self._jail = await self._take(limits)
            reply = await self._send(self._jail, JailRequest({"kind": kind}, blob), limits, limits.wall_s)
        except SandboxError as error:
            self._error = error
            raise
        self._is_healthy = "lost" not in reply.header
        return reply

    async def close(self) -> None:
        """End the interpreter and give the jail back to the pool."""
        async with self._lock:
            was_lost, self._is_lost = self._is_lost, True
            if self._jail is None:
                return
            try:
                if self._jail.is_reusable and not was_lost:
                    await self._request("end", b"", Limits())
            except SandboxError:
                self._is_healthy = False
            finally:
                jail, self._jail = self._jail, None
                self._give_back(jail, self._is_healthy)


def _encode(code: str) -> bytes:
    return code.encode(errors="surrogatepass")


def _check_paths(files: Mapping[str, bytes]) -> dict[str, bytes]:
    """Raises ValueError for paths outside the working directory."""
    for name in files:
        path = PurePosixPath(name)
        if path.is_absolute() or ".." in path.parts or not path.parts:
            raise ValueError(f"expected a path below the program's working directory, got '{name}'")
    return dict(files)
