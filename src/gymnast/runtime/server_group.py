"""`gymnast serve`: runs all instances of a configuration on ports, with the head server."""

from __future__ import annotations

import asyncio
import os
import secrets
import time
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING, Self

from gymnast.errors import PortTakenError, StartError, UserError
from gymnast.runtime.cell import Address, Cell, CellOptions, make_cell_options
from gymnast.runtime.head_server import IDENTITY_PATH, HeadServer, HeadState, config_yaml, instance_rows
from gymnast.runtime.listener import Listener
from gymnast.runtime.ports import advertised_host, bind_socket, local_address
from gymnast.runtime.probe import probe, probe_server, wait_for_endpoints
from gymnast.runtime.registry import Registry, ServeEntry, process_start
from gymnast.wire.asgi import AccessGuard, ServerApp
from gymnast.wire.http_client import HttpClient
from gymnast.wire.server import ServerContext

if TYPE_CHECKING:
    import socket
    from collections.abc import Iterable

    from gymnast.config import Config, Environ
    from gymnast.runtime.children import Child

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class ServeOptions:
    """How to serve a configuration."""

    host: str | None = None
    head_port: int | None = None
    """None uses the configured or default port; 0 chooses a free one."""
    log_dir: Path | None = None
    endpoint_timeout_s: float = 600.0


class ServerGroup:
    """All servers of a configuration. `async with ServerGroup(…)` enters the block when every instance is ready."""

    def __init__(self, config: Config, environ: Environ, options: ServeOptions, say: Say) -> None:
        self._config = config
        self._environ = environ
        self._options = options
        self._say = say
        self._stack = AsyncExitStack()
        self.state = HeadState(pid=os.getpid(), cwd=str(Path.cwd()), started_at=time.time())
        self.host = options.host or (local_address() if config.values.get("use_absolute_ip") else config.default_host)
        self.head_host = options.host or str((config.values.get("head_server") or {}).get("host") or self.host)
        hosts = {self.host, self.head_host, *(instance.host for instance in config.instances.values() if instance.host)}
        self.token = choose_token(hosts, environ.token)
        self.log_dir = options.log_dir or _log_dir(config, environ)
        self.head_url = ""
        self.cell = Cell(list(config.instances.values()), self._cell_options())

    async def __aenter__(self) -> Self:
        try:
            await self._start()
        except BaseException:
            await self._stack.aclose()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    async def _start(self) -> None:
        if not self._config.instances:
            raise UserError(
                "the configuration has no instances to serve", next="give config files: --config A.yaml --config B.yaml"
            )
        self.state.expected = [instance.name for instance in self.cell.instances]
        head_sock = await self._bind_head()
        self._stack.callback(head_sock.close)  # also where an instance cannot start
        await self._stack.enter_async_context(self.cell)
        head = HeadServer(self.state, ServerContext(self.cell.calls, self.cell.http))
        app = AccessGuard(ServerApp(head), self.token)
        listener = await self._stack.enter_async_context(Listener(app, head_sock))
        address = Address(advertised_host(listener.host), listener.port)
        self.head_url = address.url
        self.state.config_yaml = config_yaml(self._config, self.cell, address)
        self.state.instances = partial(instance_rows, self.cell, self.state.started_at)
        self.state.restarts = lambda: {
            name: child.restarts for name, child in self.cell.children.items() if child.restarts
        }
        self._register()
        await self._check_instances()
        timeout_s = self._config.values.get(
            "model_endpoint_readiness_timeout_seconds", self._options.endpoint_timeout_s
        )
        await wait_for_endpoints(self.cell.http, self.cell.instances, float(timeout_s), self._say)

    async def _bind_head(self) -> socket.socket:
        requested = self._options.head_port
        port = self._config.head_port if requested is None else requested
        try:
            return bind_socket(
                self.head_host,
                port,
                what="head server",
                hint="--head-port auto uses a free port, which status and collect find",
            )
        except PortTakenError as error:
            raise await self._explain_conflict(error, port) from error

    async def _explain_conflict(self, error: PortTakenError, port: int) -> PortTakenError:
        """What holds the head's port: another serve, a NeMo Gym head, or an unrelated process."""
        host = advertised_host(self.head_host)
        async with HttpClient() as client:
            identity, other = await asyncio.gather(  # a stranger may keep silent until a probe gives up
                probe(client, f"http://{host}:{port}{IDENTITY_PATH}", token=self.token),
                probe(client, f"http://{host}:{port}/server_instances"),
            )
        if isinstance(identity.body, dict) and identity.body.get("product") == "gymnast":
            what = f"another gymnast serve (pid {identity.body['pid']}, in {identity.body['cwd']}) holds port {port}"
            return PortTakenError(
                what, where=error.where, next=f"use it, stop it (kill {identity.body['pid']}), or pass --head-port auto"
            )
        if identity.code == 401:
            return PortTakenError(
                f"a gymnast serve that requires a token holds port {port}", where=error.where, next=error.next
            )
        if isinstance(other.body, list):
            return PortTakenError(f"a NeMo Gym head server holds port {port}", where=error.where, next=error.next)
        return error

    def _register(self) -> None:
        started = process_start(os.getpid())
        registry = Registry(self._environ.runtime_dir)
        entry = ServeEntry(
            pid=os.getpid(),
            process_started=started or 0,
            head_url=self.head_url,
            cwd=self.state.cwd,
            started_at=self.state.started_at,
            token=self.token,
            log_dir=str(self.log_dir),
        )
        registry.add(entry)
        self._stack.callback(registry.remove, entry.pid)

    async def _check_instances(self) -> None:
        """Raise StartError unless every instance answers."""
        names = list(self.cell.addresses)
        urls = [self.cell.addresses[name].url for name in names]
        results = await asyncio.gather(
            *(probe_server(self.cell.http, url, token=self.token, timeout_s=10.0) for url in urls)
        )
        failures = [f"{name}: {result.detail}" for name, result in zip(names, results, strict=True) if not result.ok]
        if failures:
            tails = [self.cell.children[name].process.log_tail() for name in names if name in self.cell.children]
            raise StartError("not ready: " + "; ".join(failures), where="\n".join(tails) or None)

    def _cell_options(self) -> CellOptions:
        return make_cell_options(
            self._config,
            self._environ,
            host=self.host,
            token=self.token,
            exposed=True,
            log_dir=self.log_dir,
            on_child_death=self._child_died,
            say=self._say,
        )

    def _child_died(self, child: Child) -> None:
        self.state.dead[child.instance.name] = child.last_death or ""
        self._say(child.process.describe_death())


def choose_token(hosts: Iterable[str], configured: str | None) -> str | None:
    """The configured token; without one, a new token unless all hosts are loopback addresses."""
    if configured:
        return configured
    return None if all(is_loopback(host) for host in hosts) else secrets.token_urlsafe(24)


def is_loopback(host: str) -> bool:
    """Whether only this host can connect to an address."""
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def _log_dir(config: Config, environ: Environ) -> Path:
    configured = config.values.get("nemo_gym_log_dir")
    if configured:
        return Path(str(configured))
    return environ.state_dir / "logs" / f"{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}-{os.getpid()}"
