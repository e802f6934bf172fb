"""Runs a function in worker processes with a deadline, for verification that may be slow, hang or crash.

The event loop is never blocked, and a worker that is late is killed. Workers start when first needed. Arguments and
results are JSON; the function is named as `module:function`. This is not a sandbox: do not run model-written code here.

Invariants:
- A worker is starting, idle or in exactly one call; `_all` has every live one. A call holds one of `size` slots from
  before its worker starts until the worker is idle or killed, so there are never more than `size` workers.
- A worker whose call was late or cancelled is killed, never reused: its next reply would be to the wrong call.
- An exception of the function is a reply like any other: it reaches the caller, and the worker stays.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import sys
from pathlib import Path
from typing import Any, Final, Self

_SCRIPT: Final = str(Path(__file__).with_name("process_pool_worker.py"))
_START_TIMEOUT_S: Final = 120.0


class WorkerError(Exception):
    """The function raised an exception; `kind` is the name of its type."""

    def __init__(self, kind: str, text: str) -> None:
        super().__init__(f"{kind}: {text}" if text else kind)
        self.kind = kind
        self.text = text


class WorkerTimeoutError(WorkerError):
    """The function did not return in time; its worker was killed."""


class WorkerCrashedError(WorkerError):
    """The worker process ended during a call, or could not start."""

    def __init__(self, kind: str, text: str, code: int | None = None) -> None:
        super().__init__(kind, text)
        self.code = code
        """The exit code, negative for a signal; None if unknown."""


class CpuTimeExceededError(WorkerCrashedError):
    """The function exceeded its CPU time limit, and its worker was killed."""


class ProcessPool:
    """Calls one function in up to `size` processes. Close it with `await pool.close()` or `async with`.

    `cpu_s` limits the CPU time of a call. Unlike `timeout_s`, a limit on wall time, it does not make results depend on
    how busy the machine is; alone, it implies a timeout of ten times as long plus half a minute. `memory_mb` limits
    what a worker may allocate once it is ready; 0 for no limit. `warm_up` names a function without arguments that a
    worker calls before it is ready, without a time limit.
    """

    def __init__(
        self,
        function: str,
        *,
        size: int,
        timeout_s: float | None = None,
        cpu_s: float | None = None,
        memory_mb: int = 4096,
        warm_up: str = "",
    ) -> None:
        self._command = (function, str(memory_mb), warm_up)
        self._cpu_s = cpu_s or 0.0
        self._timeout_s = timeout_s if timeout_s is not None else 10 * self._cpu_s + 30
        self._slots = asyncio.Semaphore(size)
        self._idle: list[_Worker] = []
        self._all: set[_Worker] = set()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def call(self, *arguments: Any) -> Any:
        """Call the function with these arguments. Raises WorkerError or one of its subclasses."""
        async with self._slots:
            worker = self._idle.pop() if self._idle else await self._start_worker()
            try:
                reply = await worker.call(arguments, self._timeout_s, self._cpu_s)
            except BaseException:
                await self._discard(worker)  # cancelled or late: its next reply would be to the wrong call
                raise
            self._idle.append(worker)
        if "error" in reply:
            raise WorkerError(reply["error"], reply["text"])
        return reply["result"]

    async def close(self) -> None:
        """Kill all workers."""
        await asyncio.gather(*(self._discard(worker) for worker in list(self._all)))
        self._idle.clear()

    async def _start_worker(self) -> _Worker:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-P", _SCRIPT, *self._command),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
        )
        worker = _Worker(process)
        self._all.add(worker)
        try:
            await worker.wait_until_ready()
        except BaseException:
            await self._discard(worker)
            raise
        return worker

    async def _discard(self, worker: _Worker) -> None:
        self._all.discard(worker)
        await asyncio.shield(worker.kill())


class _Worker:
    """One process and its pipes."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self._process, self._stdin, self._stdout = process, process.stdin, process.stdout

    async def wait_until_ready(self) -> None:
        async with asyncio.timeout(_START_TIMEOUT_S):
            message = await self.receive()
        if "error" in message:
            raise WorkerCrashedError(message["error"], message["text"])

    async def call(self, arguments: tuple[Any, ...], timeout_s: float, cpu_s: float) -> dict[str, Any]:
        body = json.dumps({"arguments": arguments, "timeout_s": timeout_s, "cpu_s": cpu_s}).encode()
        try:
            async with asyncio.timeout(timeout_s):
                self._stdin.write(len(body).to_bytes(4, "big") + body)
                await self._stdin.drain()
                return await self.receive()
        except TimeoutError:
            raise WorkerTimeoutError("timeout", f"no result after {timeout_s:g} s") from None
        except WorkerCrashedError as error:
            if cpu_s and error.code == -signal.SIGPROF:
                raise CpuTimeExceededError("overrun", f"no result after {cpu_s:g} s of CPU time", error.code) from None
            raise
        except ConnectionError as error:
            raise WorkerCrashedError("crash", f"the worker process is gone: {error!r}") from error

    async def receive(self) -> dict[str, Any]:
        try:
            size = int.from_bytes(await self._stdout.readexactly(4), "big")
            reply: dict[str, Any] = json.loads(await self._stdout.readexactly(size))
        except asyncio.IncompleteReadError:
            code = await self._process.wait()
            raise WorkerCrashedError("crash", f"the worker process ended with code {code}", code) from None
        return reply

    async def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()
        self._stdin.close()
        with contextlib.suppress(ConnectionError):
            await self._stdin.wait_closed()
        while await self._stdout.read(1 << 16):
            """Read to the end of the pipe: its transport closes with it."""
        await self._process.wait()
