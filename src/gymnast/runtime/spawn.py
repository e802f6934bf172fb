"""Child processes with a control socket and a log file, killed together with everything they started."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import sys
import threading
import time
from typing import TYPE_CHECKING, Final

from gymnast.config.environ import child_environ
from gymnast.runtime.control import CONTROL_FD_FLAG
from gymnast.runtime.venvs import read_tail

if TYPE_CHECKING:
    from pathlib import Path

STOP_TIMEOUT_S: Final = 5.0
_LOG_LINES: Final = 15


class ControlledProcess:
    """A child process that runs one of our modules, connected by a control socket."""

    def __init__(self, name: str, log: Path) -> None:
        self.name = name
        self.log = log
        self.process: asyncio.subprocess.Process | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._oom_kills_before = 0

    @property
    def pid(self) -> int | None:
        return self.process.pid if self.process is not None else None

    @property
    def exit_code(self) -> int | None:
        return self.process.returncode if self.process is not None else None

    async def start(
        self, module: str, *, python: str = sys.executable, cwd: Path | None = None, limit: int = 1 << 20
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Start it. Returns our end of its control socket."""
        ours, theirs = socket.socketpair()
        self.log.parent.mkdir(parents=True, exist_ok=True)
        self._oom_kills_before = oom_kills()
        try:
            with self.log.open("ab") as out:
                self.process = await asyncio.create_subprocess_exec(
                    python,
                    "-m",
                    module,
                    f"{CONTROL_FD_FLAG}={theirs.fileno()}",
                    stdin=asyncio.subprocess.DEVNULL,
                    stdout=out,
                    stderr=out,
                    pass_fds=(theirs.fileno(),),
                    start_new_session=True,  # Ctrl-C is for the parent, which then stops its children
                    env=child_environ({"PYTHONUNBUFFERED": "1"}),
                    cwd=cwd,
                )
        finally:
            theirs.close()
        reader, self._writer = await asyncio.open_connection(sock=ours, limit=limit)
        return reader, self._writer

    async def wait(self) -> int:
        """Wait until it has ended, then close our end of its socket."""
        assert self.process is not None
        code = await self.process.wait()
        if self._writer is not None:
            self._writer.close()
        return code

    async def stop(self, message: bytes) -> None:
        """Send `message` to ask it to stop, then kill it and all it started."""
        if self._writer is not None:
            with contextlib.suppress(
                ConnectionError, RuntimeError
            ):  # uvloop raises RuntimeError for a closed transport
                self._writer.write(message)
                await self._writer.drain()
        if self.process is not None:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(STOP_TIMEOUT_S):
                    await self.process.wait()
            self.kill()
            await self.process.wait()
        if self._writer is not None:
            self._writer.close()

    def kill(self) -> None:
        """Kill it and all it started immediately."""
        if self.process is not None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.process.pid, signal.SIGKILL)

    @property
    def was_oom_killed(self) -> bool:
        """Whether the kernel killed it because memory ran out, according to its counters."""
        return self.exit_code == -signal.SIGKILL and oom_kills() > self._oom_kills_before

    def describe_death(self) -> str:
        """How it ended, with the last lines of its log."""
        code = self.exit_code
        if self.was_oom_killed:
            how = "was killed because memory ran out (out of memory)"
        elif code is not None and code < 0:
            how = f"was killed by {signal.Signals(-code).name}"
        else:
            how = f"exited with code {code}"
        return f"{self.name} (pid {self.pid}) {how}\n{self.log_tail()}"

    def log_tail(self, lines: int = _LOG_LINES, start: int = 0) -> str:
        """The last lines of its log, for messages; only those after the offset `start`."""
        tail = read_tail(self.log, lines, start).splitlines()
        return f"last lines of {self.log}:\n" + "\n".join(f"  | {line}" for line in tail)


def die_with_parent() -> None:
    """From now on, kill this process and all it started when the parent dies, however it dies.

    A thread watches the parent, so that even a blocked event loop outlives it by less than a second.
    """
    parent = os.getppid()

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(0.5)
        os.killpg(os.getpgid(0), signal.SIGKILL)

    threading.Thread(target=watch, name="parent-watch", daemon=True).start()


def oom_kills() -> int:
    """How many processes the kernel has killed for lack of memory since boot."""
    try:
        with open("/proc/vmstat", encoding="ascii") as stream:  # noqa: PTH123 - /proc
            return next((int(line.split()[1]) for line in stream if line.startswith("oom_kill ")), 0)
    except OSError:
        return 0
