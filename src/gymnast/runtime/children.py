"""Child processes as seen by their parent: start, learn the port, hand over peers, watch, stop without orphans."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import sys
from typing import TYPE_CHECKING, Final

from gymnast.config.environ import child_environ
from gymnast.errors import StartError
from gymnast.runtime.control import (
    CONTROL_FD_FLAG,
    Bound,
    Failed,
    Launch,
    Peers,
    Ready,
    Stop,
    ToParent,
    line,
    to_parent,
)
from gymnast.runtime.venvs import ensure_venv, tail

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from gymnast.config import Instance

READY_TIMEOUT_S: Final = 120.0
STOP_TIMEOUT_S: Final = 5.0
_LOG_LINES: Final = 15


class Child:
    """One instance in a process of its own."""

    def __init__(self, instance: Instance, log: Path, *, on_death: Callable[[Child], None]) -> None:
        self.instance = instance
        self.log = log
        self.port: int | None = None
        self.process: asyncio.subprocess.Process | None = None
        self.stopping = False
        self._on_death = on_death
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._watch: asyncio.Task[None] | None = None

    @property
    def pid(self) -> int | None:
        return self.process.pid if self.process is not None else None

    @property
    def exit_code(self) -> int | None:
        return self.process.returncode if self.process is not None else None

    async def launch(self, launch: Launch, cache_dir: Path) -> int:
        """Start the process; it binds its port and tells us which."""
        python = await self._python(cache_dir)
        ours, theirs = socket.socketpair()
        self.log.parent.mkdir(parents=True, exist_ok=True)
        try:
            with self.log.open("ab") as out:
                self.process = await asyncio.create_subprocess_exec(
                    python,
                    "-m",
                    "gymnast.runtime.child",
                    f"{CONTROL_FD_FLAG}={theirs.fileno()}",
                    stdin=asyncio.subprocess.DEVNULL,
                    stdout=out,
                    stderr=out,
                    pass_fds=(theirs.fileno(),),
                    start_new_session=True,  # a terminal's Ctrl-C is for the parent, which then stops its children
                    env=child_environ({"PYTHONUNBUFFERED": "1"}),
                    cwd=self.instance.directory,
                )
        finally:
            theirs.close()
        self._reader, self._writer = await asyncio.open_connection(sock=ours)
        self._watch = asyncio.create_task(self._watch_for_death())
        self._writer.write(line(launch))
        bound = await self._expect(Bound)
        assert isinstance(bound, Bound)
        self.port = bound.port
        return bound.port

    async def introduce(self, peers: Mapping[str, str]) -> None:
        """Tell the child where its peers are and wait until it serves."""
        assert self._writer is not None
        self._writer.write(line(Peers(dict(peers))))
        await self._expect(Ready)

    async def stop(self) -> None:
        """Ask it to finish; kill it and whatever it started if it does not."""
        self.stopping = True
        if self._writer is not None:
            with contextlib.suppress(ConnectionError):
                self._writer.write(line(Stop()))
                await self._writer.drain()
        if self.process is not None:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(STOP_TIMEOUT_S):
                    await self.process.wait()
            _kill_group(self.process.pid)
            await self.process.wait()
        if self._watch is not None:
            await asyncio.gather(self._watch, return_exceptions=True)
        if self._writer is not None:
            self._writer.close()

    def death_note(self) -> str:
        """How it ended, with the end of its log."""
        code = self.exit_code
        how = (
            f"was killed by {signal.Signals(-code).name}"
            if code is not None and code < 0
            else f"exited with code {code}"
        )
        return f"{self.instance.name} (pid {self.pid}) {how}\n{self.log_tail()}"

    def log_tail(self) -> str:
        return f"last lines of {self.log}:\n" + "\n".join(
            f"  | {text}" for text in tail(self.log, _LOG_LINES).splitlines()
        )

    async def _python(self, cache_dir: Path) -> str:
        if self.instance.runs_in != "venv":
            return sys.executable
        assert self.instance.directory is not None
        return str(await ensure_venv(self.instance.directory, cache_dir, self.log))

    async def _expect(self, wanted: type[ToParent]) -> ToParent:
        assert self._reader is not None
        try:
            async with asyncio.timeout(READY_TIMEOUT_S):
                text = await self._reader.readline()
        except TimeoutError as error:
            what = f"{self.instance.name} was not ready within {READY_TIMEOUT_S:g} s"
            raise StartError(what, where=self.log_tail()) from error
        if not text:
            if self.process is not None:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(STOP_TIMEOUT_S):
                        await self.process.wait()
            raise StartError(
                f"{self.instance.name} ended while starting (exit code {self.exit_code})", where=self.log_tail()
            )
        message = to_parent.decode(text)
        if isinstance(message, Failed):
            where = message.where or self.log_tail()
            raise StartError(f"{self.instance.name} could not start: {message.what}", where=where, next=message.next)
        assert isinstance(message, wanted)
        return message

    async def _watch_for_death(self) -> None:
        assert self.process is not None
        await self.process.wait()
        if not self.stopping:
            self._on_death(self)


def _kill_group(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)
