"""Instances in child processes: started, connected to their peers, and restarted when they die.

States of a child: launched (it has bound its port), up (it knows its peers and serves), restarting (at the same port,
so that no peer needs a new address), dead (`MAX_RESTARTS` are used up), stopped. `on_death` is called for each death.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
from typing import TYPE_CHECKING, Final

import msgspec

from gymnast.errors import StartError
from gymnast.runtime.control import PARENT_DECODER, Bound, ChildSpec, Failed, Peers, Ready, Stop, ToParent, encode_line
from gymnast.runtime.spawn import STOP_TIMEOUT_S, ControlledProcess
from gymnast.runtime.venvs import ensure_venv

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from gymnast.config import Instance

READY_TIMEOUT_S: Final = 600.0
"""For each step of a start: a server may load a dataset or a model, or wait for a Ray node, which takes minutes."""
MAX_RESTARTS: Final = 3
_FIRST_PAUSE_S: Final = 0.4
"""Before the first restart; twice as long before each further one."""


class Child:
    """One instance in a child process. If it dies it is restarted on the same port, a few times."""

    def __init__(self, instance: Instance, log: Path, *, on_death: Callable[[Child], None]) -> None:
        self.instance = instance
        self.process = ControlledProcess(instance.name, log)
        self.port: int | None = None
        self.restarts = 0
        self.is_up = False
        self.last_death: str | None = None
        """How it last died, in one line; kept after a restart."""
        self.was_oom_killed = False
        self._stopping = False
        self._on_death = on_death
        self._spec: ChildSpec | None = None
        self._python = sys.executable
        self._peers: dict[str, str] = {}
        self._pipes: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
        self._watch: asyncio.Task[None] | None = None

    @property
    def pid(self) -> int | None:
        return self.process.pid

    @property
    def is_lost(self) -> bool:
        """Whether it died and is not restarted any more."""
        return not self.is_up and not self._stopping and self._watch is not None and self._watch.done()

    async def launch(self, spec: ChildSpec, cache_dir: Path, say: Callable[[str], None]) -> int:
        """Start the process, which binds its port. Returns the port. Says if packages are installed for it."""
        if self.instance.runs_in == "venv":
            assert self.instance.directory is not None
            self._python = str(await ensure_venv(self.instance.directory, cache_dir, self.process.log, say))
        self._spec = spec
        await self._start(spec)
        assert self.port is not None
        return self.port

    async def connect(self, peers: Mapping[str, str]) -> None:
        """Send the child the addresses of its peers, and wait until it serves."""
        self._peers = dict(peers)
        await self._send_peers()
        self.is_up = True
        self._watch = asyncio.create_task(self._watch_for_death())

    async def stop(self) -> None:
        """Stop it and all it started."""
        self._stopping = True
        self.is_up = False
        if self._watch is not None:
            self._watch.cancel()
            await asyncio.gather(self._watch, return_exceptions=True)
        await self.process.stop(encode_line(Stop()))

    async def _start(self, spec: ChildSpec) -> None:
        self._pipes = await self.process.start(
            "gymnast.runtime.child", python=self._python, cwd=self.instance.directory
        )
        self._pipes[1].write(encode_line(spec))
        bound = await self._expect(Bound)
        assert isinstance(bound, Bound)
        self.port = bound.port

    async def _send_peers(self) -> None:
        assert self._pipes is not None
        self._pipes[1].write(encode_line(Peers(self._peers)))
        await self._expect(Ready)

    async def _expect(self, expected: type[ToParent]) -> ToParent:
        assert self._pipes is not None
        process = self.process
        try:
            async with asyncio.timeout(READY_TIMEOUT_S):
                text = await self._pipes[0].readline()
        except ConnectionError:  # it died before it read the message
            text = b""
        except TimeoutError as error:
            what = f"{self.instance.name} was not ready within {READY_TIMEOUT_S:g} s"
            raise StartError(what, where=process.log_tail()) from error
        if not text:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(STOP_TIMEOUT_S):
                    await process.wait()
            what = f"{self.instance.name} ended while starting (exit code {process.exit_code})"
            raise StartError(what, where=process.log_tail())
        message = PARENT_DECODER.decode(text)
        if isinstance(message, Failed):
            where = message.where or process.log_tail()
            raise StartError(f"{self.instance.name} could not start: {message.what}", where=where, next=message.next)
        assert isinstance(message, expected)
        return message

    async def _watch_for_death(self) -> None:
        while True:
            await self.process.wait()
            if self._stopping:
                return
            self.is_up = False
            self.last_death = self.process.describe_death().splitlines()[0]
            self.was_oom_killed = self.process.was_oom_killed
            self._on_death(self)
            if not await self._restart():
                return

    async def _restart(self) -> bool:
        """Restart it at its old address, so that its peers need no new one."""
        while self.restarts < MAX_RESTARTS and self._spec is not None and self.port is not None:
            await asyncio.sleep(_FIRST_PAUSE_S * 2**self.restarts)
            self.restarts += 1
            self.process.kill()  # processes it started must not outlive it
            self.process = ControlledProcess(self.instance.name, self.process.log)
            try:
                await self._start(msgspec.structs.replace(self._spec, port=self.port))
                await self._send_peers()
            except StartError as error:  # it may have died again: that is what further restarts are for
                self.last_death = f"{self.instance.name} could not be restarted: {error.what}"
                continue
            self.is_up = True
            return True
        return False
