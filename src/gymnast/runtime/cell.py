"""A cell: the instances of one process, started together, stopped together, callable by name.

Each instance lives here, in a child process, or at a URL; callers see no difference. Instances of this cell are put on
ports only where somebody outside needs them: a child process, or the clients of `gymnast serve`.
"""

from __future__ import annotations

import asyncio
import os
import sys
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, cast

import msgspec

from gymnast.config.secrets import Scrubber
from gymnast.errors import ConfigError, StartError, UserError
from gymnast.runtime.children import Child
from gymnast.runtime.control import Launch, instance_data
from gymnast.runtime.guests import is_guest_class, transport_of, with_addresses
from gymnast.runtime.listener import Listener
from gymnast.runtime.loader import check_settings, is_server_class, load_entry, make_server
from gymnast.runtime.logs import InstanceLogs, log_folder
from gymnast.runtime.loop_watch import LoopWatch, log_blocked
from gymnast.runtime.ports import advertised, bind
from gymnast.runtime.venvs import unmet
from gymnast.types.tokens import TokenForm, TokenKeeping
from gymnast.wire.asgi import Guarded, ServerApp
from gymnast.wire.boundary import BoundaryLog
from gymnast.wire.calls import Calls, Transport
from gymnast.wire.http_client import HttpClient, raise_fd_limit
from gymnast.wire.http_connection import TransportError
from gymnast.wire.in_flight import Watched
from gymnast.wire.server import Surroundings
from gymnast.wire.trail import Signals
from gymnast.wire.transports import AsgiLifespan, Http, InMemoryAsgi, InProcess

if TYPE_CHECKING:
    import socket
    from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
    from types import TracebackType

    from gymnast.config import Config, Environ, Instance
    from gymnast.runtime.guests import GuestClass
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
    config: Mapping[str, Any] = field(default_factory=dict)
    """The whole configuration, for guests, which may ask for any of it."""

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
        config=values,
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
        for name, url in self._peers.items():
            self._transports[name] = Http(url, self.http, token=options.token)
        in_children = [instance for instance in self.instances if instance.runs_in in {"child", "venv"}]
        here = [instance for instance in self.instances if instance not in in_children and instance.url is None]
        self._refuse_bad_settings(here)
        for instance in self.instances:
            if instance.url is not None:  # somebody else's: our token is not for it
                self._transports[instance.name] = Http(instance.url, self.http)
        guests = any(is_guest_class(load_entry(instance)) for instance in here)
        expose = options.exposed or bool(in_children) or guests
        if expose:
            self._bind(here)
        await self._launch_children(in_children)
        surroundings = Surroundings(
            self.calls, self.http, self._boundary, self.signals, options.log_dir, self._addressed_config()
        )
        for instance in here:
            await self._host(instance, surroundings)
        await self._introduce_children()
        self._stack.enter_context(LoopWatch(partial(log_blocked, here)))

    def _refuse_bad_settings(self, instances: Iterable[Instance]) -> None:
        """All wrong settings of all instances at once, before any is started."""
        if self.options.strict_settings:
            problems = [problem for instance in instances for problem in check_settings(instance)]
            if problems:
                raise ConfigError(problems)

    # --- instances in this process -----------------------------------------------------------------------------------

    def _bind(self, instances: Iterable[Instance]) -> None:
        """Take ports for instances of this process, before anybody is told of them."""
        for instance in instances:
            sock = self._sockets.get(instance.name)
            if sock is None:
                way_on = f"choose another `port` for '{instance.name}', or none to take a free one"
                host, port = instance.host or self.options.host, instance.port or 0
                sock = self._sockets[instance.name] = bind(host, port, what=instance.name, way_on=way_on)
                self._stack.callback(sock.close)
            host, port = sock.getsockname()[:2]
            self.addresses[instance.name] = Address(advertised(host), port, os.getpid())

    def _addressed_config(self) -> Mapping[str, Any]:
        return with_addresses(self.options.config, self._urls())

    def _urls(self) -> dict[str, str]:
        """Where every instance can be reached from outside, as far as it can."""
        urls = {name: address.url for name, address in self.addresses.items()} | self._peers
        return urls | {instance.name: instance.url for instance in self.instances if instance.url is not None}

    async def _host(self, instance: Instance, surroundings: Surroundings) -> None:
        entry = load_entry(instance)
        app: AsgiApp
        if is_server_class(entry):
            server = make_server(entry, instance, surroundings, strict=self.options.strict_settings)
            await server.start()
            self._stack.push_async_callback(server.stop)
            self._transports[instance.name] = InProcess(server)
            app = ServerApp(server)
        elif is_guest_class(entry):
            app = await self._host_guest(entry, instance, surroundings)
        else:
            app = entry
            lifespan = AsgiLifespan(app)
            try:
                await lifespan.start()
            except TransportError as error:
                raise StartError(f"{instance.name}: {error}") from error
            self._stack.push_async_callback(lifespan.stop)
            self._transports[instance.name] = InMemoryAsgi(app)
        sock = self._sockets.get(instance.name)
        if sock is not None:
            guarded = Guarded(Watched(app, instance.name), self.options.token)
            listener = await self._stack.enter_async_context(Listener(guarded, sock))
            self._listeners.append(listener)
            self.addresses[instance.name] = Address(advertised(listener.host), listener.port, os.getpid())

    async def _host_guest(self, entry: GuestClass, instance: Instance, surroundings: Surroundings) -> AsgiApp:
        try:
            guest = entry.gymnast_guest(instance, surroundings)
        except UserError:
            raise
        except Exception as error:
            text = f"{instance.name} could not be made: {type(error).__name__}: {error}"
            raise StartError(text, where=f"{instance.directory}/{instance.entrypoint}") from error
        await guest.start()
        self._stack.push_async_callback(guest.stop)
        self._transports[instance.name] = transport_of(guest)
        return guest.app

    # --- instances in child processes --------------------------------------------------------------------------------

    async def _launch_children(self, instances: Sequence[Instance]) -> None:
        """Start the processes, which take their ports."""
        if not instances:
            return
        folder = self.options.log_dir or self._stack.enter_context(log_folder())
        for instance in instances:
            log = folder / f"{instance.name}.log"
            child = Child(instance, log, on_death=self._child_died, on_restart=self._child_restarted)
            self.children[instance.name] = child
            self._stack.push_async_callback(child.stop)
        async with _all_or_first_error() as group:
            for child in self.children.values():
                group.create_task(self._launch(child))

    async def _introduce_children(self) -> None:
        """Tell them where everybody is, and wait until they serve."""
        urls = self._urls()
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
        config=dict(options.config),
    )


@asynccontextmanager
async def _all_or_first_error() -> AsyncIterator[asyncio.TaskGroup]:
    """A task group whose users see the first error itself, not a group of one."""
    try:
        async with asyncio.TaskGroup() as group:
            yield group
    except BaseExceptionGroup as errors:  # raised inside `except*`, some releases of 3.11 wrap it again
        raise next((error for error in errors.exceptions if isinstance(error, UserError | OSError)), errors) from None


def stderr_boundary(scrubber: Scrubber) -> BoundaryLog:
    """Request-boundary lines on standard error."""
    return BoundaryLog(lambda text: print(text, file=sys.stderr, flush=True), scrubber)  # noqa: T201 - asked for by a flag
