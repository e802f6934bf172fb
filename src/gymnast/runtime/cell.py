"""A cell: the instances of one process, started together, stopped together, callable by name.

Each instance lives here, in a child process, or at a URL; callers see no difference. Instances of this cell are put on
ports only where somebody outside needs them: a child process, or the clients of `gymnast serve`.
"""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, cast

import msgspec

from gymnast.config.secrets import Scrubber
from gymnast.errors import ConfigError, StartError, UserError
from gymnast.runtime.children import Child
from gymnast.runtime.control import Launch, instance_data
from gymnast.runtime.listener import Listener
from gymnast.runtime.loader import check_settings, is_server_class, load_entry, make_server
from gymnast.runtime.logs import InstanceLogs
from gymnast.runtime.ports import advertised, bind
from gymnast.runtime.venvs import unmet
from gymnast.types.tokens import TokenForm, TokenKeeping
from gymnast.wire.asgi import Guarded, ServerApp
from gymnast.wire.boundary import BoundaryLog
from gymnast.wire.calls import Calls, Transport
from gymnast.wire.http_client import HttpClient, raise_fd_limit
from gymnast.wire.http_connection import TransportError
from gymnast.wire.server import Surroundings
from gymnast.wire.trail import Signals
from gymnast.wire.transports import AsgiLifespan, Http, InMemoryAsgi, InProcess

if TYPE_CHECKING:
    import socket
    from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
    from types import TracebackType

    from gymnast.config import Config, Environ, Instance
    from gymnast.types.failure import FailureDetail
    from gymnast.wire.asgi import AsgiApp


@dataclass(frozen=True, slots=True)
class CellOptions:
    """How a cell is run."""

    host: str = "127.0.0.1"
    token: str | None = None
    exposed: bool = False
    """Put every instance of this process on a port."""
    log_dir: Path | None = None
    """Where instances log; None leaves logging as it is."""
    cache_dir: Path = Path(".cache")
    request_debug: bool = False
    strict_settings: bool = True
    """Settings that a server does not know are errors."""
    scrubber: Scrubber = field(default_factory=Scrubber)
    max_connections: int | None = None
    max_connections_per_host: int | None = None
    on_child_death: Callable[[Child], None] | None = None
    token_form: TokenForm = "ledger"
    """How records hold the tokens of their model calls."""

    def tokens_of(self, instances: Iterable[Instance]) -> TokenKeeping:
        """Whose tokens are kept when a rollout ends, and how."""
        models = [instance for instance in instances if instance.kind == "responses_api_models"]
        told = (model.name for model in models if model.settings.get("return_token_id_information") is True)
        return TokenKeeping(tuple(told), self.token_form)


def options_from(config: Config, environ: Environ, **more: Any) -> CellOptions:
    """How a configuration says its cell is to be run."""
    values = config.values
    return CellOptions(
        cache_dir=environ.cache_dir,
        request_debug=bool(values.get("global_aiohttp_client_request_debug")),
        strict_settings=config.strict_settings,
        scrubber=config.scrubber,
        max_connections=values.get("global_aiohttp_connector_limit"),
        max_connections_per_host=values.get("global_aiohttp_connector_limit_per_host"),
        token_form=token_form_of(config),
        **more,
    )


def token_form_of(config: Config, default: TokenForm = "ledger") -> TokenForm:
    """How a configuration says records hold tokens."""
    form = config.values.get("token_form", default)
    if form not in {"ledger", "items"}:
        raise UserError(
            f"token_form is {form!r}", next="choose 'ledger' (linear in tokens) or 'items' (whole prompts on items)"
        )
    return cast("TokenForm", form)


@dataclass(frozen=True, slots=True)
class Address:
    """Where an instance can be reached from outside."""

    host: str
    port: int
    pid: int

    @property
    def url(self) -> str:
        return f"http://{self.host}:{self.port}"


class Cell:
    """Use as `async with Cell(instances, options) as cell: await cell.calls.call(…)`."""

    def __init__(
        self,
        instances: Sequence[Instance],
        options: CellOptions,
        *,
        peers: Mapping[str, str] | None = None,
        sockets: Mapping[str, socket.socket] | None = None,
    ) -> None:
        self.instances = [placed(instance) for instance in instances]
        self.options = options
        self.addresses: dict[str, Address] = {}
        self.children: dict[str, Child] = {}
        self._peers = dict(peers or {})
        self._sockets = dict(sockets or {})
        self._transports: dict[str, Transport] = {}
        self._stack = AsyncExitStack()
        self._listeners: list[Listener] = []
        self._boundary = stderr_boundary(options.scrubber) if options.request_debug else None
        self.calls = Calls(self._transports, boundary=self._boundary)
        self.signals = Signals()

    async def __aenter__(self) -> Self:
        raise_fd_limit()
        try:
            await self._start()
        except BaseException:
            await self._stack.aclose()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for listener in self._listeners:
            listener.begin_to_close()
        await self._stack.aclose()

    async def _start(self) -> None:
        options = self.options
        self.http = await self._stack.enter_async_context(
            HttpClient(max_connections=options.max_connections, max_per_host=options.max_connections_per_host)
        )
        if options.log_dir is not None:
            self._stack.enter_context(InstanceLogs([instance.name for instance in self.instances], options.log_dir))
        surroundings = Surroundings(self.calls, self.http, self._boundary, self.signals, options.log_dir)
        for name, url in self._peers.items():
            self._transports[name] = Http(url, self.http, token=options.token)
        in_children = [instance for instance in self.instances if instance.runs_in in {"child", "venv"}]
        self._refuse_bad_settings([instance for instance in self.instances if instance not in in_children])
        for instance in self.instances:
            if instance.url is not None:
                self._transports[instance.name] = Http(
                    instance.url, self.http
                )  # somebody else's: our token is not for it
            elif instance not in in_children:
                await self._host(instance, surroundings, expose=options.exposed or bool(in_children))
        if in_children:
            await self._start_children(in_children)

    def _refuse_bad_settings(self, instances: Iterable[Instance]) -> None:
        """All wrong settings of all instances at once, before any is started."""
        if self.options.strict_settings:
            problems = [problem for instance in instances for problem in check_settings(instance)]
            if problems:
                raise ConfigError(problems)

    # --- instances in this process -----------------------------------------------------------------------------------

    async def _host(self, instance: Instance, surroundings: Surroundings, *, expose: bool) -> None:
        entry = load_entry(instance)
        if is_server_class(entry):
            server = make_server(entry, instance, surroundings, strict=self.options.strict_settings)
            await server.start()
            self._stack.push_async_callback(server.stop)
            self._transports[instance.name] = InProcess(server)
            app: AsgiApp = ServerApp(server)
        else:
            app = entry
            lifespan = AsgiLifespan(app)
            try:
                await lifespan.start()
            except TransportError as error:
                raise StartError(f"{instance.name}: {error}") from error
            self._stack.push_async_callback(lifespan.stop)
            self._transports[instance.name] = InMemoryAsgi(app)
        if expose or instance.name in self._sockets:
            await self._expose(instance, app)

    async def _expose(self, instance: Instance, app: AsgiApp) -> None:
        sock = self._sockets.get(instance.name)
        if sock is None:
            way_on = f"choose another `port` for '{instance.name}', or none to take a free one"
            sock = bind(instance.host or self.options.host, instance.port or 0, what=instance.name, way_on=way_on)
        listener = await self._stack.enter_async_context(Listener(Guarded(app, self.options.token), sock))
        self._listeners.append(listener)
        self.addresses[instance.name] = Address(advertised(listener.host), listener.port, os.getpid())

    # --- instances in child processes --------------------------------------------------------------------------------

    async def _start_children(self, instances: Iterable[Instance]) -> None:
        folder = self.options.log_dir or Path(tempfile.mkdtemp(prefix="gymnast-logs-"))
        for instance in instances:
            log = folder / f"{instance.name}.log"
            child = Child(instance, log, on_death=self._child_died, on_restart=self._child_restarted)
            self.children[instance.name] = child
            self._stack.push_async_callback(child.stop)
        async with _all_or_first_error() as group:
            for child in self.children.values():
                group.create_task(self._launch(child))
        urls = {name: address.url for name, address in self.addresses.items()} | self._peers
        urls |= {instance.name: instance.url for instance in self.instances if instance.url is not None}
        async with _all_or_first_error() as group:
            for child in self.children.values():
                group.create_task(child.introduce(urls))

    async def _launch(self, child: Child) -> None:
        instance = child.instance
        host = instance.host or self.options.host
        port = await child.launch(launch_of(instance, host, self.options), self.options.cache_dir)
        assert child.pid is not None
        address = Address(advertised(host), port, child.pid)
        self.addresses[instance.name] = address
        self._transports[instance.name] = Http(address.url, self.http, token=self.options.token)

    def explain(self, detail: FailureDetail) -> FailureDetail:
        """A failure to reach an instance whose process died is that death, and an out-of-memory kill is one by name."""
        child = self.children.get(detail.instance or "")
        if child is None or child.last_death is None or not detail.kind.endswith("_unreachable"):
            return detail
        kind = "out_of_memory" if child.died_of_memory else "instance_died"
        return msgspec.structs.replace(detail, kind=kind, message=f"{child.last_death}; {detail.message}")

    def _child_restarted(self, child: Child) -> None:
        address = self.addresses[child.instance.name]
        self.addresses[child.instance.name] = replace(address, pid=child.pid or 0)

    def _child_died(self, child: Child) -> None:
        if self.options.on_child_death is not None:
            self.options.on_child_death(child)


def placed(instance: Instance) -> Instance:
    """The instance with `runs_in: auto` decided: this process, unless its folder asks for packages we do not have."""
    if instance.runs_in != "auto" or instance.url is not None or instance.directory is None:
        return instance
    return replace(instance, runs_in="venv" if unmet(instance.directory) else "process")


def launch_of(instance: Instance, host: str, options: CellOptions) -> Launch:
    """What a child needs to know to be this instance."""
    return Launch(
        instance=instance_data(instance),
        host=host,
        port=instance.port or 0,
        token=options.token,
        request_debug=options.request_debug,
        strict_settings=options.strict_settings,
    )


@asynccontextmanager
async def _all_or_first_error() -> AsyncIterator[asyncio.TaskGroup]:
    """A task group whose users see the first error itself, not a group of one."""
    try:
        async with asyncio.TaskGroup() as group:
            yield group
    except* (UserError, OSError) as errors:
        raise errors.exceptions[0] from None


def stderr_boundary(scrubber: Scrubber) -> BoundaryLog:
    """Request-boundary lines on standard error."""
    return BoundaryLog(lambda text: print(text, file=sys.stderr, flush=True), scrubber)  # noqa: T201 - asked for by a flag
