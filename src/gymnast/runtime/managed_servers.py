"""Managed servers: inference servers and the like, run from a command and supervised.

Each has its own port and is ready once it answers with a good status. States: starting, up, restarting (it died and is
being restarted at the same address, after growing pauses), gone (it died too often) and stopped. Its output goes to a
log file, whose last lines are part of every start error.
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
from gymnast.runtime.listening_ports import listening_pids, reserve_port
from gymnast.runtime.probe import probe
from gymnast.runtime.spawn import STOP_TIMEOUT_S, ControlledProcess

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from gymnast.wire.http_client import HttpClient

State = Literal["starting", "up", "restarting", "gone", "stopped"]

_ADDRESS_IN_USE: Final = "address already in use"
_MAX_PORT_TRIES: Final = 5
"""How many ports to try if the chosen one is taken."""
_FIRST_POLL_S: Final = 0.1
_MAX_POLL_S: Final = 2.0
_LOG_LINES: Final = 40


@dataclass(frozen=True, slots=True)
class ManagedServerSpec:
    """What to run, and when it counts as ready."""

    command: Callable[[int], Sequence[str]]
    """The argument list, given the port."""
    env: Mapping[str, str] = field(default_factory=dict)
    host: str = "127.0.0.1"
    ready_paths: tuple[str, ...] = ("/health", "/v1/models")
    """Probed in this order; a missing page (404, 405) defers to the next."""
    api_key: str = ""
    """Sent with these probes."""
    ready_timeout_s: float = 600.0
    stop_s: float = 0.8 * STOP_TIMEOUT_S
    """Grace period between SIGTERM and SIGKILL."""
    max_restarts: int = 3
    first_pause_s: float = 0.5
    max_pause_s: float = 30.0
    reset_after_s: float = 1800.0
    """After this long without a death, earlier ones no longer count."""


class ManagedServer:
    """One managed server. Call `start`, then `stop`."""

    def __init__(
        self, name: str, spec: ManagedServerSpec, log: Path, client: HttpClient, say: Callable[[str], None]
    ) -> None:
        self.name = name
        self.state: State = "starting"
        self.restarts = 0
        self.last_death: str | None = None
        """How it last died, in one line; kept after a restart."""
        self.was_oom_killed = False
        self.changed = asyncio.Event()
        self._spec = spec
        self._process = ControlledProcess(name, log)
        self._client = client
        self._say = say
        self._port = 0
        self._reservation: socket.socket | None = None
        self._watch: asyncio.Task[None] | None = None

    @property
    def url(self) -> str:
        host = f"[{self._spec.host}]" if ":" in self._spec.host else self._spec.host
        return f"http://{host}:{self._port}"

    @property
    def pid(self) -> int | None:
        """The process id of the command's guard, which leads the process group."""
        return self._process.pid

    async def start(self) -> None:
        """Run it on a free port and wait until it is ready. Raises StartError with the end of its log."""
        for tries_left in reversed(range(_MAX_PORT_TRIES)):
            self._reserve(hold=tries_left == _MAX_PORT_TRIES - 1)
            try:
                await self._run()
                break
            except StartError as error:
                if not tries_left or not self._is_port_taken(error):
                    raise
                self._say(f"{self.name}: port {self._port} is taken; trying another")
        self._watch = asyncio.create_task(self._watch_for_death())

    async def stop(self) -> None:
        """Stop it and everything it started."""
        if self._watch is not None:
            self._watch.cancel()
            await asyncio.gather(self._watch, return_exceptions=True)
        self._set_state("stopped")
        await self._process.stop(b"stop\n")
        self._release()

    def _reserve(self, *, hold: bool) -> None:
        """Choose a port. A program without SO_REUSEADDR cannot bind a port that we hold: then do not `hold` it."""
        self._release()
        self._reservation = reserve_port(self._spec.host)
        self._port = self._reservation.getsockname()[1]
        if not hold:
            self._release()

    def _release(self) -> None:
        if self._reservation is not None:
            self._reservation.close()
            self._reservation = None

    async def _run(self) -> None:
        """Start the process and wait until it is ready; stop it if it is not."""
        spec = self._spec
        argv = list(spec.command(self._port))
        log_start = self._process.log.stat().st_size if self._process.log.exists() else 0
        self._process = ControlledProcess(self.name, self._process.log)
        _, writer = await self._process.start("gymnast.runtime.guard")
        message = {"argv": argv, "env": child_environ(spec.env), "stop_s": spec.stop_s}
        writer.write(json.dumps(message).encode() + b"\n")
        ended = asyncio.create_task(self._process.wait())
        try:
            async with asyncio.timeout(spec.ready_timeout_s):
                await self._wait_until_ready(ended)
        except TimeoutError as error:
            await self._process.stop(b"stop\n")
            what = f"{self.name} was not ready within {spec.ready_timeout_s:g} s"
            raise StartError(what, where=self._process.log_tail(_LOG_LINES, log_start)) from error
        except BaseException:
            await self._process.stop(b"stop\n")
            raise
        finally:
            ended.cancel()
        if self._process.exit_code is not None:
            code = self._process.exit_code
            await self._process.stop(b"")
            how = f"exit code {code}" if code >= 0 else f"killed by signal {-code}"
            where = self._process.log_tail(_LOG_LINES, log_start)
            raise StartError(f"{self.name} ended while starting ({how})", where=where)
        self._set_state("up")

    async def _wait_until_ready(self, ended: asyncio.Task[int]) -> None:
        """Return when it is ready, or when it has ended."""
        pause_s = _FIRST_POLL_S
        while not await self._is_ready():
            done, _ = await asyncio.wait({ended}, timeout=pause_s)
            if done:
                return
            pause_s = min(2 * pause_s, _MAX_POLL_S)

    async def _is_ready(self) -> bool:
        for path in self._spec.ready_paths:
            result = await probe(self._client, self.url + path, token=self._spec.api_key or None, timeout_s=10.0)
            if result.ok:
                return await asyncio.to_thread(self._is_listening)
            if result.code not in {404, 405}:
                return False
        return False

    def _is_listening(self) -> bool:
        """Whether the listener is a descendant of our guard: on a taken port, another server may answer."""
        return self.pid is not None and not set(descendants(self.pid)).isdisjoint(listening_pids(self._port))

    async def _watch_for_death(self) -> None:
        while True:
            started = time.monotonic()
            await self._process.wait()
            self.last_death = self._process.describe_death().splitlines()[0]
            self.was_oom_killed = self._process.was_oom_killed
            await self._process.stop(b"")  # processes it started must not outlive it
            if time.monotonic() - started > self._spec.reset_after_s:
                self.restarts = 0
            self._set_state("restarting")
            self._say(self._process.describe_death())
            if not await self._restart():
                self._set_state("gone")
                self._say(f"{self.name} is not restarted: it died {self.restarts + 1} times")
                return

    async def _restart(self) -> bool:
        spec = self._spec
        while self.restarts < spec.max_restarts:
            await asyncio.sleep(min(spec.first_pause_s * 2**self.restarts, spec.max_pause_s))
            self.restarts += 1
            self._say(f"{self.name}: restarting ({self.restarts} of {spec.max_restarts})")
            try:
                await self._run()
                return True
            except StartError as error:  # it may have died again: that is what further restarts are for
                self.last_death = f"{self.name} could not be restarted: {error.what}"
                self._say(str(error))
        return False

    def _set_state(self, state: State) -> None:
        self.state = state
        self.changed.set()
        self.changed = asyncio.Event()

    def _is_port_taken(self, error: StartError) -> bool:
        return _ADDRESS_IN_USE in (error.where or "").lower()
