"""Instances in child processes: start, learn the port, hand over peers, start again when they die."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from typing import TYPE_CHECKING, Final

import msgspec

from gymnast.errors import StartError
from gymnast.runtime.control import Bound, Failed, Launch, Peers, Ready, Stop, ToParent, line, to_parent
from gymnast.runtime.spawn import STOP_TIMEOUT_S, OwnProcess
from gymnast.runtime.venvs import ensure_venv

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from gymnast.config import Instance

READY_TIMEOUT_S: Final = 120.0
MAX_RESTARTS: Final = 3
_FIRST_PAUSE_S: Final = 0.4
"""Before the first restart; twice as long before each further one."""


class Child:
    """One instance in a process of its own. If it dies by itself it is started again, a few times, on the same port."""

    def __init__(
        self, instance: Instance, log: Path, *, on_death: Callable[[Child], None], on_restart: Callable[[Child], None]
    ) -> None:
        self.instance = instance
        self.process = OwnProcess(instance.name, log)
        self.port: int | None = None
        self.restarts = 0
        self.is_up = False
        self.last_death: str | None = None
        """How it last died, in one line; kept after a restart."""
        self.died_of_memory = False
        self._stopping = False
        self._on_death = on_death
        self._on_restart = on_restart
        self._launch: Launch | None = None
        self._python = sys.executable
        self._peers: dict[str, str] = {}
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._watch: asyncio.Task[None] | None = None

    @property
    def pid(self) -> int | None:
        return self.process.pid

    async def launch(self, launch: Launch, cache_dir: Path) -> int:
        """Start the process; it binds its port and tells us which."""
        if self.instance.runs_in == "venv":
            assert self.instance.directory is not None
            self._python = str(await ensure_venv(self.instance.directory, cache_dir, self.process.log))
        self._launch = launch
        await self._begin(launch)
        assert self.port is not None
        return self.port

    async def introduce(self, peers: Mapping[str, str]) -> None:
        """Tell the child where its peers are and wait until it serves."""
        self._peers = dict(peers)
        assert self._writer is not None
        self._writer.write(line(Peers(self._peers)))
        await self._expect(Ready)
        self.is_up = True
        self._watch = asyncio.create_task(self._watch_for_death())

    async def stop(self) -> None:
        """End it, and whatever it started."""
        self._stopping = True
        self.is_up = False
        if self._watch is not None:
            self._watch.cancel()
            await asyncio.gather(self._watch, return_exceptions=True)
        await self.process.stop(line(Stop()))

    async def _begin(self, launch: Launch) -> None:
        self._reader, self._writer = await self.process.start(
            "gymnast.runtime.child", python=self._python, cwd=self.instance.directory
        )
        self._writer.write(line(launch))
        bound = await self._expect(Bound)
        assert isinstance(bound, Bound)
        self.port = bound.port

    async def _expect(self, wanted: type[ToParent]) -> ToParent:
        assert self._reader is not None
        process = self.process
        try:
            async with asyncio.timeout(READY_TIMEOUT_S):
                text = await self._reader.readline()
        except ConnectionError:  # it died before it read what we sent
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
        message = to_parent.decode(text)
        if isinstance(message, Failed):
            where = message.where or process.log_tail()
            raise StartError(f"{self.instance.name} could not start: {message.what}", where=where, next=message.next)
        assert isinstance(message, wanted)
        return message

    async def _watch_for_death(self) -> None:
        while True:
            await self.process.wait()
            if self._stopping:
                return
            self.is_up = False
            self.last_death = self.process.death_note().splitlines()[0]
            self.died_of_memory = self.process.was_out_of_memory
            self._on_death(self)
            if not await self._restarted():
                return

    async def _restarted(self) -> bool:
        """Start it again at its old address, so that nobody has to learn a new one."""
        while self.restarts < MAX_RESTARTS and self._launch is not None and self.port is not None:
            await asyncio.sleep(_FIRST_PAUSE_S * 2**self.restarts)
            self.restarts += 1
            self.process.kill()  # what it had started must not live on beside its successor
            self.process = OwnProcess(self.instance.name, self.process.log)
            try:
                await self._begin(msgspec.structs.replace(self._launch, port=self.port))
                assert self._writer is not None
                self._writer.write(line(Peers(self._peers)))
                await self._expect(Ready)
            except StartError as error:  # it may have died once more: that is what further restarts are for
                self.last_death = f"{self.instance.name} could not be started again: {error.what}"
                continue
            self.is_up = True
            self._on_restart(self)
            return True
        return False
