"""Foreign servers as supervised children: a command each, on a port of its own, ready when it answers well.

One that dies is started again at its old address, a bounded number of times with growing pauses. What it was told to
say stands in its log file, whose end is part of every failure to start.
"""

from __future__ import annotations

import asyncio
import json
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Literal

from gymnast.config.environ import child_environ
from gymnast.errors import StartError
from gymnast.runtime.guard import descendants
from gymnast.runtime.listening import listening_pids, reserve
from gymnast.runtime.probe import probe
from gymnast.runtime.spawn import STOP_TIMEOUT_S, OwnProcess

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from gymnast.wire.http_client import HttpClient

State = Literal["starting", "up", "restarting", "gone", "stopped"]

_ADDRESS_IN_USE: Final = "address already in use"
_OTHER_PORTS: Final = 5
"""How often a fresh port is tried when the one we chose is taken."""
_FIRST_POLL_S: Final = 0.1
_LONGEST_POLL_S: Final = 2.0
_LOG_LINES: Final = 40
_MOST_LOG_BYTES: Final = 65536


@dataclass(frozen=True, slots=True)
class EngineOrder:
    """What to run and how to tell that it is ready."""

    command: Callable[[int], Sequence[str]]
    """The argument list, given the port."""
    env: Mapping[str, str] = field(default_factory=dict)
    host: str = "127.0.0.1"
    ready_paths: tuple[str, ...] = ("/health", "/v1/models")
    """Asked in this order; one that is not there (404, 405) leaves it to the next."""
    api_key: str = ""
    """Sent with those questions."""
    ready_timeout_s: float = 600.0
    stop_s: float = 0.8 * STOP_TIMEOUT_S
    """How long it may take to end when told to; then it is killed."""
    max_restarts: int = 3
    first_pause_s: float = 0.5
    longest_pause_s: float = 30.0
    forgiven_after_s: float = 1800.0
    """After this long without a death, earlier ones are no longer counted."""


class Engine:
    """One foreign server. Use `start`, then `stop`."""

    def __init__(
        self, name: str, order: EngineOrder, log: Path, client: HttpClient, say: Callable[[str], None]
    ) -> None:
        self.name = name
        self.state: State = "starting"
        self.restarts = 0
        self.last_death: str | None = None
        """How it last died, in one line; kept after a restart."""
        self.died_of_memory = False
        self.changed = asyncio.Event()
        self._order = order
        self._process = OwnProcess(name, log)
        self._client = client
        self._say = say
        self._port = 0
        self._reservation: socket.socket | None = None
        self._watch: asyncio.Task[None] | None = None

    @property
    def url(self) -> str:
        host = f"[{self._order.host}]" if ":" in self._order.host else self._order.host
        return f"http://{host}:{self._port}"

    @property
    def pid(self) -> int | None:
        """The guard of the command, which leads the process group."""
        return self._process.pid

    async def start(self) -> None:
        """Run it on a free port and wait until it is ready. Raises StartError with the end of its log."""
        for left in reversed(range(_OTHER_PORTS)):
            held = left == _OTHER_PORTS - 1
            self._reserve(held=held)
            try:
                await self._run()
                break
            except StartError as error:
                if not left or not self._port_was_taken(error):
                    raise
                self._say(f"{self.name}: port {self._port} is taken; trying another")
        self._watch = asyncio.create_task(self._watch_for_death())

    async def stop(self) -> None:
        """End it and everything it started."""
        if self._watch is not None:
            self._watch.cancel()
            await asyncio.gather(self._watch, return_exceptions=True)
        self._become("stopped")
        await self._process.stop(b"stop\n")
        self._release()

    def _reserve(self, *, held: bool) -> None:
        """Choose a port. A program without SO_REUSEADDR cannot bind one we hold: then it is let go of just before."""
        self._release()
        self._reservation = reserve(self._order.host)
        self._port = self._reservation.getsockname()[1]
        if not held:
            self._release()

    def _release(self) -> None:
        if self._reservation is not None:
            self._reservation.close()
            self._reservation = None

    async def _run(self) -> None:
        """Start the process and wait until it is ready, or end it."""
        order = self._order
        argv = list(order.command(self._port))
        begin = self._process.log.stat().st_size if self._process.log.exists() else 0
        self._process = OwnProcess(self.name, self._process.log)
        _, writer = await self._process.start("gymnast.runtime.guard")
        told = {"argv": argv, "env": child_environ(order.env), "stop_s": order.stop_s}
        writer.write(json.dumps(told).encode() + b"\n")
        ended = asyncio.create_task(self._process.wait())
        try:
            async with asyncio.timeout(order.ready_timeout_s):
                await self._until_ready(ended)
        except TimeoutError as error:
            await self._process.stop(b"stop\n")
            what = f"{self.name} was not ready within {order.ready_timeout_s:g} s"
            raise StartError(what, where=self._log_end(begin)) from error
        except BaseException:
            await self._process.stop(b"stop\n")
            raise
        finally:
            ended.cancel()
        if self._process.exit_code is not None:
            code = self._process.exit_code
            await self._process.stop(b"")
            how = f"exit code {code}" if code >= 0 else f"killed by signal {-code}"
            raise StartError(f"{self.name} ended while starting ({how})", where=self._log_end(begin))
        self._become("up")

    async def _until_ready(self, ended: asyncio.Task[int]) -> None:
        """Return when it answers well, or when it has ended."""
        pause_s = _FIRST_POLL_S
        while not await self._is_ready():
            done, _ = await asyncio.wait({ended}, timeout=pause_s)
            if done:
                return
            pause_s = min(2 * pause_s, _LONGEST_POLL_S)

    async def _is_ready(self) -> bool:
        for path in self._order.ready_paths:
            found = await probe(self._client, self.url + path, token=self._order.api_key or None, timeout_s=10.0)
            if found.ok:
                return await asyncio.to_thread(self._is_ours)
            if found.code not in {404, 405}:
                return False
        return False

    def _is_ours(self) -> bool:
        """Who answers is below our guard: on a port that was taken, a stranger may answer as well."""
        return self.pid is not None and not set(descendants(self.pid)).isdisjoint(listening_pids(self._port))

    async def _watch_for_death(self) -> None:
        while True:
            started = time.monotonic()
            await self._process.wait()
            self.last_death = self._process.death_note().splitlines()[0]
            self.died_of_memory = self._process.was_out_of_memory
            await self._process.stop(b"")  # what it had started must not live on beside its successor
            if time.monotonic() - started > self._order.forgiven_after_s:
                self.restarts = 0
            self._become("restarting")
            self._say(self._process.death_note())
            if not await self._restarted():
                self._become("gone")
                self._say(f"{self.name} is not started again: it died {self.restarts + 1} times")
                return

    async def _restarted(self) -> bool:
        order = self._order
        while self.restarts < order.max_restarts:
            await asyncio.sleep(min(order.first_pause_s * 2**self.restarts, order.longest_pause_s))
            self.restarts += 1
            self._say(f"{self.name}: starting again ({self.restarts} of {order.max_restarts})")
            try:
                await self._run()
                return True
            except StartError as error:  # it may have died once more: that is what further restarts are for
                self.last_death = f"{self.name} could not be started again: {error.what}"
                self._say(str(error))
        return False

    def _become(self, state: State) -> None:
        self.state = state
        self.changed.set()
        self.changed = asyncio.Event()

    def _port_was_taken(self, error: StartError) -> bool:
        return _ADDRESS_IN_USE in (error.where or "").lower()

    def _log_end(self, begin: int) -> str:
        """The end of the log of this start, not of earlier ones."""
        log = self._process.log
        try:
            with log.open("rb") as stream:
                stream.seek(max(begin, log.stat().st_size - _MOST_LOG_BYTES))
                text = stream.read().decode(errors="replace")
        except OSError as error:
            return f"{log} cannot be read: {error}"
        lines = text.splitlines()[-_LOG_LINES:]
        return f"last lines of {log}:\n" + "\n".join(f"  | {line}" for line in lines)
