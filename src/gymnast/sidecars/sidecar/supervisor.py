"""One component from start to end: start it, publish it when it is ready, watch it, restart it within its budget.

States of a task: starting, ready (its address is published), dead. A death before the component was ever ready is
final. After later deaths it is restarted, up to `restarts` times; half an hour without a death resets the count. A port
that another program took is replaced by another one, which is not a restart. Every exit withdraws the address and
kills everything that the component has started.
"""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Any

from gymnast.runtime.guard import kill_descendants
from gymnast.sidecars.sidecar import host_environment
from gymnast.sidecars.sidecar.job_registry import JobRegistry, tail_log
from gymnast.sidecars.sidecar.port_lease import PortLease, is_owned_by, lease_port
from gymnast.sidecars.sidecar.process import GuardedProcess, describe_exit
from gymnast.sidecars.sidecar.readiness import http_status, wait_until
from gymnast.sidecars.sidecar.spec import SidecarSpec, fill_placeholders

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from gymnast.sidecars.sidecar.stop_signals import StopSignals

_PORT_TRIES = 5
_MIN_BACKOFF_S = 0.5
_MAX_BACKOFF_S = 30.0
_FORGIVEN_AFTER_S = 1800.0
"""After this long without a death, earlier ones no longer count."""
_POLL_S = 0.25
_HEALTH_INTERVAL_S = 10.0
_MAX_UNHEALTHY = 3
"""Failed health checks in a row (nothing listens, or a status of 500 and more) before a live process counts as dead."""
_IN_USE = "address already in use"


class ComponentDiedError(Exception):
    """The component ended, or could not start; `what` says how."""

    def __init__(self, what: str, code: int, *, port_taken: bool = False) -> None:
        super().__init__(what)
        self.what = what
        self.code = code
        self.port_taken = port_taken
        self.log_start = 0
        self.was_ready = False


class Supervisor:
    """Keeps one task of a component running."""

    def __init__(
        self,
        spec: SidecarSpec,
        registry: JobRegistry,
        placeholders: Mapping[str, str],
        stop_signals: StopSignals,
        log: Callable[[str], None],
    ) -> None:
        self._spec = spec
        self._registry = registry
        self._placeholders = dict(placeholders)
        self._stop_signals = stop_signals
        self._log = log
        self._lease: PortLease | None = None
        self._is_server = spec.ready is not None and not (spec.is_multi_node and registry.task)

    def run(self) -> int:
        """Run it until it ends permanently or a stop is requested. Returns the exit code."""
        restarts = 0
        try:
            while True:
                started = time.monotonic()
                try:
                    code = self._run_on_free_port()
                    return code if self._spec.is_main or not self._stop_signals.is_requested else 0
                except ComponentDiedError as death:
                    if self._stop_signals.is_requested:
                        return death.code if self._spec.is_main else 0
                    if death.was_ready and time.monotonic() - started > _FORGIVEN_AFTER_S:
                        restarts = 0
                    if restarts >= self._spec.restarts or not (restarts or death.was_ready):
                        return self._give_up(death, restarts)
                    restarts += 1
                    self._log(f"{death.what}; starting again ({restarts} of {self._spec.restarts})")
                    self._stop_signals.wait(min(_MIN_BACKOFF_S * 2**restarts, _MAX_BACKOFF_S))
        finally:
            self._registry.withdraw()
            if self._lease is not None:
                self._lease.release()
            kill_descendants()

    def _run_on_free_port(self) -> int:
        """Run it on the port it had, or on a new one. A port that another program took is replaced."""
        for left in reversed(range(_PORT_TRIES)):
            is_first = left == _PORT_TRIES - 1
            if self._spec.needs_port and (self._lease is None or not is_first):
                self._lease_port(bound=is_first)
            try:
                return self._run_once()
            except ComponentDiedError as death:
                if death.was_ready or not left or not self._is_port_taken(death):
                    raise
                self._log(f"port {self._placeholders['port']} is taken; trying another")
        raise AssertionError("the last try returns or raises")

    def _lease_port(self, *, bound: bool) -> None:
        if self._lease is not None:
            self._lease.release()
        self._lease = lease_port(self._spec.bind)
        if not bound:
            self._lease.unbind()
        self._placeholders["port"] = str(self._lease.port)

    def _is_port_taken(self, death: ComponentDiedError) -> bool:
        output = tail_log(self._registry.log, death.log_start).lower()
        return self._lease is not None and (death.port_taken or _IN_USE in output)

    def _run_once(self) -> int:
        """Start it, publish it when it is ready, return its exit code. Raises ComponentDiedError if it dies."""
        log = self._registry.log
        log_start, is_ready = log.stat().st_size if log.exists() else 0, False
        process = self._spawn()
        copying = process.copy_output(echo=self._spec.is_main)
        try:
            if self._is_server:
                self._wait_until_ready(process)
                is_ready = True
                self._publish(process)
            return self._watch(process)
        except ComponentDiedError as death:
            death.log_start, death.was_ready = log_start, is_ready
            raise
        finally:
            self._registry.withdraw()
            process.stop()
            copying.join(2.0)

    @property
    def _name(self) -> str:
        kind = "part" if self._spec.is_multi_node else "replica"
        return self._spec.name if self._spec.tasks == 1 else f"{self._spec.name} ({kind} {self._registry.task})"

    def _spawn(self) -> GuardedProcess:
        spec, values = self._spec, self._placeholders
        env = host_environment.environment(
            {name: fill_placeholders(text, values) for name, text in spec.environment.items()}
        )
        if spec.gpus_per_task:
            env[host_environment.VISIBLE_GPUS] = values["gpus"]
        command = [fill_placeholders(word, values) for word in spec.command_for(self._registry.task)]
        self._log(f"starting {self._name}: {command}")
        cwd = fill_placeholders(spec.workdir, values) if spec.workdir else None
        return GuardedProcess(command, env, cwd=cwd, log=self._registry.log, stop_s=spec.stop_s)

    def _wait_until_ready(self, process: GuardedProcess) -> None:
        ready = self._spec.ready
        assert ready is not None
        port = int(self._placeholders["port"])

        def is_serving() -> bool:
            status = http_status(self._loopback, port, ready.path, 10.0)
            return status is not None and 200 <= status < 400

        def is_over() -> bool:
            return self._stop_signals.is_requested or process.wait(0) is not None

        started = time.monotonic()
        is_ready = wait_until(is_serving, ready, is_over)
        code = process.wait(0)
        if code is not None:
            raise ComponentDiedError(f"{self._name} {describe_exit(code)} while starting", code if code > 0 else 1)
        if self._stop_signals.is_requested:
            raise ComponentDiedError(f"{self._name} was stopped while starting", 0)
        if not is_ready:
            raise ComponentDiedError(
                f"{self._name} was not ready within {ready.deadline_s:g} s ({ready.path} on port {port})", 1
            )
        if not is_owned_by(port, process.pid):
            what = f"another program answers on port {port}, which {self._name} was given"
            raise ComponentDiedError(what, 1, port_taken=True)
        self._log(f"{self._name} is ready on port {port} after {time.monotonic() - started:.1f} s")

    @property
    def _loopback(self) -> str:
        return self._spec.bind if self._spec.bind not in {"0.0.0.0", "::"} else "127.0.0.1"  # noqa: S104 - compared

    def _publish(self, process: GuardedProcess) -> None:
        port = int(self._placeholders["port"])
        host = self._reachable_host(port)
        address: dict[str, Any] = {
            "url": f"http://{host}:{port}",
            "host": host,
            "port": port,
            "task": self._registry.task,
            "pid": process.pid,
            "at": time.time(),
        }
        while not self._try_publish(address) and process.wait(_POLL_S) is None and not self._stop_signals.is_requested:
            pass

    def _try_publish(self, address: dict[str, Any]) -> bool:
        """A file system that refuses for a while is no reason to end a server that is up."""
        try:
            self._registry.publish(address)
        except OSError as error:
            self._log(f"cannot publish the address of {self._name} yet: {error}")
            self._stop_signals.wait(_MIN_BACKOFF_S)
            return False
        return True

    def _reachable_host(self, port: int) -> str:
        """The first of our host names under which it answers."""
        ready = self._spec.ready
        if self._loopback == self._spec.bind or ready is None:
            return self._spec.bind
        for name in host_environment.host_names():
            if http_status(name, port, ready.path, 10.0):
                return name
        return "127.0.0.1"

    def _watch(self, process: GuardedProcess) -> int:
        """Wait until it ends or a stop is requested."""
        unhealthy, checked_at = 0, time.monotonic()
        while True:
            code = process.wait(_POLL_S)
            if code is not None:
                return self._check_exit(code)
            if self._spec.is_main and self._stop_signals.take_drain_request():
                process.terminate()
            if self._stop_signals.is_requested:
                return process.stop()
            if self._is_server and time.monotonic() - checked_at > _HEALTH_INTERVAL_S:
                checked_at = time.monotonic()
                unhealthy = 0 if self._is_healthy() else unhealthy + 1
                if unhealthy >= _MAX_UNHEALTHY:
                    seconds = _MAX_UNHEALTHY * _HEALTH_INTERVAL_S
                    raise ComponentDiedError(f"{self._name} runs but was unhealthy for {seconds:g} s", 1)

    def _check_exit(self, code: int) -> int:
        """A server that ends by itself has died, whatever its exit code."""
        if not self._stop_signals.is_requested and (code != 0 or self._is_server):
            exit_code = code if code > 0 else 128 - code if code else 1
            raise ComponentDiedError(f"{self._name} {describe_exit(code)}", exit_code)
        return code

    def _is_healthy(self) -> bool:
        """A late reply means a busy server, not an unhealthy one."""
        assert self._spec.ready is not None
        status = http_status(self._loopback, int(self._placeholders["port"]), self._spec.ready.path, 10.0)
        return status is not None and status < 500

    def _give_up(self, death: ComponentDiedError, restarts: int) -> int:
        tail = tail_log(self._registry.log, death.log_start)
        after = f" after {restarts} restarts" if restarts else ""
        self._registry.write_death_note(
            {
                "component": self._spec.name,
                "task": self._registry.task,
                "host": host_environment.host_names()[0],
                "pid": os.getpid(),
                "what": death.what + after,
                "exit_code": death.code,
                "restarts": restarts,
                "log": str(self._registry.log),
                "log_tail": tail,
                "at": time.time(),
            }
        )
        self._log(f"{death.what}{after}" if self._spec.is_main else f"{death.what}{after}\n{tail}")
        return death.code or 1
