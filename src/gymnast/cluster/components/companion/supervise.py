"""One component from its start to its end: ready, published, watched, started again within its budget, ended."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Any

from gymnast.cluster.components.companion import surroundings
from gymnast.cluster.components.companion.leasing import PortLease, is_ours, lease_port
from gymnast.cluster.components.companion.order import filled
from gymnast.cluster.components.companion.process import Guarded, described
from gymnast.cluster.components.companion.readiness import status_of, until
from gymnast.runtime.guard import end_descendants

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from gymnast.cluster.components.companion.board import Board
    from gymnast.cluster.components.companion.order import Order
    from gymnast.cluster.components.companion.stopping import Stopping

_OTHER_PORTS = 5
_FIRST_PAUSE_S = 0.5
_LONGEST_PAUSE_S = 30.0
_FORGIVEN_AFTER_S = 1800.0
"""After this long without a death, earlier ones are no longer counted."""
_LOOK_S = 0.25
_HEALTH_EVERY_S = 10.0
_SICK = 3
"""Looks in a row that find nobody listening, or a status of 500 and more, before a living process counts as dead."""
_IN_USE = "address already in use"


class Death(Exception):  # noqa: N818 - what happened to it, which is our word for it
    """It ended, or could not start; `what` says how."""

    def __init__(self, what: str, code: int) -> None:
        super().__init__(what)
        self.what = what
        self.code = code
        self.log_begin = 0
        self.was_ready = False


class Supervisor:
    """Keeps one task of a component running."""

    def __init__(
        self,
        order: Order,
        board: Board,
        places: Mapping[str, str],
        stopping: Stopping,
        say: Callable[[str], None],
    ) -> None:
        self._order = order
        self._board = board
        self._places = dict(places)
        self._stopping = stopping
        self._say = say
        self._lease: PortLease | None = None
        self._answers = order.ready is not None and not (order.is_spread and board.task)

    def run(self) -> int:
        """Run it until it ends for good or we are told to stop. Returns the exit code."""
        restarts = 0
        try:
            while True:
                began = time.monotonic()
                try:
                    code = self._on_some_port()
                    return code if self._order.is_main or not self._stopping.asked else 0
                except Death as death:
                    if self._stopping.asked:
                        return death.code if self._order.is_main else 0
                    if death.was_ready and time.monotonic() - began > _FORGIVEN_AFTER_S:
                        restarts = 0
                    if restarts >= self._order.restarts or not (restarts or death.was_ready):
                        return self._given_up(death, restarts)
                    restarts += 1
                    self._say(f"{death.what}; starting again ({restarts} of {self._order.restarts})")
                    self._stopping.wait(min(_FIRST_PAUSE_S * 2**restarts, _LONGEST_PAUSE_S))
        finally:
            self._board.withdraw()
            if self._lease is not None:
                self._lease.release()
            end_descendants()

    def _on_some_port(self) -> int:
        """Run it on the port it had, or on a new one; one that somebody else took is replaced by another."""
        for left in reversed(range(_OTHER_PORTS)):
            is_first = left == _OTHER_PORTS - 1
            if self._order.wants_port and (self._lease is None or not is_first):
                self._take_port(held=is_first)
            try:
                return self._once()
            except Death as death:
                if death.was_ready or not left or not self._port_was_taken(death):
                    raise
                self._say(f"port {self._places['port']} is taken; trying another")
        raise AssertionError("the last try returns or raises")

    def _take_port(self, *, held: bool) -> None:
        if self._lease is not None:
            self._lease.release()
        self._lease = lease_port(self._order.bind)
        if not held:
            self._lease.let_bind()
        self._places["port"] = str(self._lease.port)

    def _port_was_taken(self, death: Death) -> bool:
        said = self._board.log_end(death.log_begin).lower()
        return self._lease is not None and (_IN_USE in said or "somebody else" in death.what)

    def _once(self) -> int:
        """Start it, publish it when it is ready, return its exit code when it ends well. Raises Death otherwise."""
        log = self._board.log
        begin, is_ready = log.stat().st_size if log.exists() else 0, False
        process = self._spawn()
        copying = process.copy_output(aloud=self._order.is_main)
        try:
            if self._answers:
                self._await_ready(process)
                is_ready = True
                self._publish(process)
            return self._watch(process)
        except Death as death:
            death.log_begin, death.was_ready = begin, is_ready
            raise
        finally:
            self._board.withdraw()
            process.end()
            copying.join(2.0)

    @property
    def _name(self) -> str:
        order = self._order
        return order.name if order.tasks == 1 else f"{order.name} ({self._kind} {self._board.task})"

    @property
    def _kind(self) -> str:
        return "part" if self._order.is_spread else "replica"

    def _spawn(self) -> Guarded:
        order = self._order
        env = surroundings.environment({name: filled(text, self._places) for name, text in order.environment.items()})
        if order.gpus_per_task:
            env[surroundings.VISIBLE_GPUS] = self._places["gpus"]
        words = [filled(word, self._places) for word in order.words(self._board.task)]
        self._say(f"starting {self._name}: {words}")
        cwd = filled(order.workdir, self._places) if order.workdir else None
        return Guarded(words, env, cwd=cwd, log=self._board.log, stop_s=order.stop_s)

    def _await_ready(self, process: Guarded) -> None:
        ready = self._order.ready
        assert ready is not None
        port = int(self._places["port"])

        def answers() -> bool:
            status = status_of(self._loopback, port, ready.path, 10.0)
            return status is not None and 200 <= status < 400

        def is_over() -> bool:
            return self._stopping.asked or process.ended(0) is not None

        began = time.monotonic()
        is_ready = until(answers, ready, is_over)
        code = process.ended(0)
        if code is not None:
            raise Death(f"{self._name} {described(code)} while starting", code if code > 0 else 1)
        if self._stopping.asked:
            raise Death(f"{self._name} was stopped while starting", 0)
        if not is_ready:
            raise Death(f"{self._name} was not ready within {ready.deadline_s:g} s ({ready.path} on port {port})", 1)
        if not is_ours(port, process.pid):
            raise Death(f"somebody else answers on port {port} that {self._name} was given", 1)
        self._say(f"{self._name} is ready on port {port} after {time.monotonic() - began:.1f} s")

    @property
    def _loopback(self) -> str:
        return self._order.bind if self._order.bind not in {"0.0.0.0", "::"} else "127.0.0.1"  # noqa: S104 - compared

    def _publish(self, process: Guarded) -> None:
        port = int(self._places["port"])
        host = self._reachable_host(port)
        address: dict[str, Any] = {
            "url": f"http://{host}:{port}",
            "host": host,
            "port": port,
            "task": self._board.task,
            "pid": process.pid,
            "at": time.time(),
        }
        while not self._is_published(address) and process.ended(_LOOK_S) is None and not self._stopping.asked:
            pass

    def _is_published(self, address: dict[str, Any]) -> bool:
        """A file system that refuses for a while is no reason to end a server that is up."""
        try:
            self._board.publish(address)
        except OSError as error:
            self._say(f"the address of {self._name} cannot be published yet: {error}")
            self._stopping.wait(_FIRST_PAUSE_S)
            return False
        return True

    def _reachable_host(self, port: int) -> str:
        """The first of our names under which it answers."""
        ready = self._order.ready
        if self._loopback == self._order.bind or ready is None:
            return self._order.bind
        for name in surroundings.host_names():
            if status_of(name, port, ready.path, 10.0):
                return name
        return "127.0.0.1"

    def _watch(self, process: Guarded) -> int:
        """Wait for its end, or for ours."""
        sick, looked = 0, time.monotonic()
        while True:
            code = process.ended(_LOOK_S)
            if code is not None:
                return self._checked_end(code)
            if self._order.is_main and self._stopping.take_drain():
                process.terminate()
            if self._stopping.asked:
                return process.end()
            if self._answers and time.monotonic() - looked > _HEALTH_EVERY_S:
                looked = time.monotonic()
                sick = 0 if self._is_well() else sick + 1
                if sick >= _SICK:
                    raise Death(f"{self._name} runs but has not answered well for {_SICK * _HEALTH_EVERY_S:g} s", 1)

    def _checked_end(self, code: int) -> int:
        """A server that ends has died, however it ended."""
        if not self._stopping.asked and (code != 0 or self._answers):
            raise Death(f"{self._name} {described(code)}", code if code > 0 else 128 - code if code else 1)
        return code

    def _is_well(self) -> bool:
        """A late answer is a busy server, not a sick one."""
        assert self._order.ready is not None
        status = status_of(self._loopback, int(self._places["port"]), self._order.ready.path, 10.0)
        return status is not None and status < 500

    def _given_up(self, death: Death, restarts: int) -> int:
        tail = self._board.log_end(death.log_begin)
        after = f" after {restarts} restarts" if restarts else ""
        self._board.note_death(
            {
                "component": self._order.name,
                "task": self._board.task,
                "host": surroundings.host_names()[0],
                "pid": os.getpid(),
                "what": death.what + after,
                "exit_code": death.code,
                "restarts": restarts,
                "log": str(self._board.log),
                "log_tail": tail,
                "at": time.time(),
            }
        )
        self._say(f"{death.what}{after}" if self._order.is_main else f"{death.what}{after}\n{tail}")
        return death.code or 1
