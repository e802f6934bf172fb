"""Processes of ours: started with a private socket and a log file, watched, and ended with everything they started."""

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
from gymnast.runtime.venvs import tail

if TYPE_CHECKING:
    from pathlib import Path

STOP_TIMEOUT_S: Final = 5.0
_LOG_LINES: Final = 15


class OwnProcess:
    """A process that runs one of our modules with a control socket to us."""

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
        """Start it; what is returned is our end of its control socket."""
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
                    start_new_session=True,  # a terminal's Ctrl-C is for the parent, which then stops its children
                    env=child_environ({"PYTHONUNBUFFERED": "1"}),
                    cwd=cwd,
                )
        finally:
            theirs.close()
        reader, self._writer = await asyncio.open_connection(sock=ours, limit=limit)
        return reader, self._writer

    async def wait(self) -> int:
        """Wait for its end. Our end of its socket is closed then: a successor has another."""
        assert self.process is not None
        code = await self.process.wait()
        if self._writer is not None:
            self._writer.close()
        return code

    async def stop(self, farewell: bytes) -> None:
        """Ask it to finish; kill it and whatever it started if it does not."""
        if self._writer is not None:
            with contextlib.suppress(ConnectionError, RuntimeError):  # the latter is uvloop's for a closed transport
                self._writer.write(farewell)
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
        """End it and whatever it started, at once."""
        if self.process is not None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.process.pid, signal.SIGKILL)

    @property
    def was_out_of_memory(self) -> bool:
        """Killed by the kernel because memory ran out, as far as its counters tell."""
        return self.exit_code == -signal.SIGKILL and oom_kills() > self._oom_kills_before

    def death_note(self) -> str:
        """How it ended, with the end of its log."""
        code = self.exit_code
        if self.was_out_of_memory:
            how = "was killed because memory ran out (out of memory)"
        elif code is not None and code < 0:
            how = f"was killed by {signal.Signals(-code).name}"
        else:
            how = f"exited with code {code}"
        return f"{self.name} (pid {self.pid}) {how}\n{self.log_tail()}"

    def log_tail(self) -> str:
        lines = tail(self.log, _LOG_LINES).splitlines()
        return f"last lines of {self.log}:\n" + "\n".join(f"  | {text}" for text in lines)


def end_with_parent() -> None:
    """From now on, whatever happens to the parent, this process and what it started end with it.

    A thread looks, so that even a blocked event loop does not outlive its parent by more than a second.
    """
    parent = os.getppid()

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(0.5)
        os.killpg(os.getpgid(0), signal.SIGKILL)

    threading.Thread(target=watch, name="parent-watch", daemon=True).start()


def oom_kills() -> int:
    """How many processes the kernel has killed for want of memory since it started."""
    try:
        with open("/proc/vmstat", encoding="ascii") as stream:  # noqa: PTH123 - /proc
            return next((int(line.split()[1]) for line in stream if line.startswith("oom_kill ")), 0)
    except OSError:
        return 0
