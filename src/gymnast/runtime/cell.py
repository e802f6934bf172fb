"""A cell: one process with instances, started and stopped together and called by name.

Each instance runs in this process, in a child process, or at a URL; callers see no difference. Invariants: every wrong
setting is reported before anything starts; every resource is on one exit stack, closed in reverse order of starting; an
instance has a transport in `calls` once it is ready. Instances of this process listen on ports only if something
outside needs them: a child process, a hosted server, or clients of `gymnast serve`. Startup: bind ports, launch
children (which report their ports), start local instances, then send the children all addresses.
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

from gymnast.config.roots import BUILTIN
from gymnast.config.secrets import Scrubber
from gymnast.errors import ConfigError, StartError, UserError
from gymnast.runtime.children import Child
from gymnast.runtime.control import ChildSpec, encode_instance
from gymnast.runtime.hosted_servers import is_hostable, transport_of, with_addresses
from gymnast.runtime.late_imports import imports_own_modules_late
from gymnast.runtime.listener import Listener
from gymnast.runtime.loader import check_settings, is_server_class, load_entry, make_server
from gymnast.runtime.logs import InstanceLogs, log_folder
from gymnast.runtime.loop_monitor import LoopMonitor, log_blocked
from gymnast.runtime.ports import advertised_host, bind_socket
from gymnast.runtime.relative_files import reads_own_files
from gymnast.runtime.venvs import say_nothing, unmet_requirements
from gymnast.types.failure import FailureKind
from gymnast.types.tokens import RecordedTokens, TokenForm
from gymnast.wire.asgi import AccessGuard, ServerApp
from gymnast.wire.boundary import BoundaryLog
from gymnast.wire.calls import Calls, Transport
from gymnast.wire.http_client import HttpClient, raise_fd_limit
from gymnast.wire.http_connection import MAX_REPLY_BYTES, TransportError
from gymnast.wire.in_flight import InFlightTracker
from gymnast.wire.progress import Signals
from gymnast.wire.server import ServerContext
from gymnast.wire.transports import AsgiLifespan, AsgiTransport, HttpTransport, InProcessTransport

if TYPE_CHECKING:
    import socket
    from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence

    from gymnast.config import Config, Environ, Instance
    from gymnast.runtime.hosted_servers import HostableClass
    from gymnast.types.failure import FailureDetail
    from gymnast.wire.asgi import AsgiApp


@dataclass(frozen=True, slots=True)
class CellOptions:
    """How to run a cell."""

    host: str = "127.0.0.1"
    token: str | None = None
    exposed: bool = False
    """Put every instance of this process on a port."""
    log_dir: Path | None = None
    """Directory of instance logs; None leaves logging unchanged."""
    cache_dir: Path = Path(".cache")
    request_debug: bool = False
    strict_settings: bool = True
    """Whether unknown settings of a server are errors."""
    scrubber: Scrubber = field(default_factory=Scrubber)
    max_connections: int | None = None
    max_connections_per_host: int | None = None
    max_reply_bytes: int = MAX_REPLY_BYTES
    on_child_death: Callable[[Child], None] | None = None
    say: Callable[[str], None] = say_nothing
    """Takes messages about what takes long."""
    token_form: TokenForm = "ledger"
    """How records store the tokens of their model calls."""
    config: Mapping[str, Any] = field(default_factory=dict)
    """The whole configuration, for hosted servers, which may read any of it."""

    def tokens_of(self, instances: Iterable[Instance]) -> RecordedTokens:
        """Which models' tokens are kept when a rollout ends, and how."""
        models = [instance for instance in instances if instance.kind == "responses_api_models"]
        names = (model.name for model in models if model.settings.get("return_token_id_information") is True)
        return RecordedTokens(tuple(names), self.token_form)


def _read_max_reply(mib: Any) -> int:
    if mib is None:
        return MAX_REPLY_BYTES
    if not isinstance(mib, int) or isinstance(mib, bool) or mib < 1:
        raise UserError(f"max_reply_mib must be a whole number of at least 1, not {mib!r}")
    return mib << 20


def make_cell_options(config: Config, environ: Environ, **more: Any) -> CellOptions:
    values = config.values
    return CellOptions(
        cache_dir=environ.cache_dir,
        request_debug=bool(values.get("global_aiohttp_client_request_debug")),
        strict_settings=config.strict_settings,
        scrubber=config.scrubber,
        max_connections=values.get("global_aiohttp_connector_limit"),
        max_connections_per_host=values.get("global_aiohttp_connector_limit_per_host"),
        max_reply_bytes=_read_max_reply(values.get("max_reply_mib")),
        token_form=read_token_form(config),
        config=values,
        **more,
    )


def read_token_form(config: Config, default: TokenForm = "ledger") -> TokenForm:
    """The configured `token_form`: how records store tokens."""
    form = config.values.get("token_form", default)
    if form not in {"ledger", "items"}:
        raise UserError(
            f"invalid token_form {form!r}",
            next="choose 'ledger' (linear in tokens) or 'items' (whole prompts on items)",
        )
    return cast("TokenForm", form)


@dataclass(frozen=True, slots=True)
class Address:
    """Where an instance is reached from outside."""

    host: str
    port: int

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
        self.instances = [resolve_placement(instance) for instance in instances]
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

    async def __aexit__(self, *_: object) -> None:
        for listener in self._listeners:
            listener.start_closing()
        await self._stack.aclose()

    async def _start(self) -> None:
        options = self.options
        self.http = await self._stack.enter_async_context(
            HttpClient(
                max_connections=options.max_connections,
                max_per_host=options.max_connections_per_host,
                max_reply_bytes=options.max_reply_bytes,
            )
        )
        if options.log_dir is not None:
            self._stack.enter_context(InstanceLogs([instance.name for instance in self.instances], options.log_dir))
        for name, url in self._peers.items():
            self._transports[name] = HttpTransport(url, self.http, token=options.token)
        in_children = [instance for instance in self.instances if instance.runs_in in {"child", "venv"}]
        local = [instance for instance in self.instances if instance not in in_children and instance.url is None]
        self._check_settings(local)
        for instance in self.instances:
            if instance.url is not None:  # not ours: do not send it our token
                self._transports[instance.name] = HttpTransport(instance.url, self.http)
        has_hosted = any(is_hostable(load_entry(instance)) for instance in local)
        if options.exposed or in_children or has_hosted:
            self._bind(local)
        await self._launch_children(in_children)
        config = with_addresses(options.config, self._urls())
        context = ServerContext(self.calls, self.http, self._boundary, self.signals, options.log_dir, config)
        for instance in local:
            await self._start_local(instance, context)
        await self._connect_children()
        self._stack.enter_context(LoopMonitor(partial(log_blocked, local)))

    def _check_settings(self, instances: Iterable[Instance]) -> None:
        """Report all wrong settings of all instances together, before any of them starts."""
        if self.options.strict_settings:
            problems = [problem for instance in instances for problem in check_settings(instance)]
            if problems:
                raise ConfigError(problems)

    # --- instances in this process -----------------------------------------------------------------------------------

    def _bind(self, instances: Iterable[Instance]) -> None:
        """Bind ports for instances of this process, before their addresses are published."""
        for instance in instances:
            sock = self._sockets.get(instance.name)
            if sock is None:
                hint = f"choose another `port` for '{instance.name}', or none to use a free one"
                host, port = instance.host or self.options.host, instance.port or 0
                sock = self._sockets[instance.name] = bind_socket(host, port, what=instance.name, hint=hint)
                self._stack.callback(sock.close)
            host, port = sock.getsockname()[:2]
            self.addresses[instance.name] = Address(advertised_host(host), port)

    def _urls(self) -> dict[str, str]:
        """The URLs of all instances that can be reached from outside."""
        urls = {name: address.url for name, address in self.addresses.items()} | self._peers
        return urls | {instance.name: instance.url for instance in self.instances if instance.url is not None}

    async def _start_local(self, instance: Instance, context: ServerContext) -> None:
        entry = load_entry(instance)
        app: AsgiApp
        if is_server_class(entry):
            server = make_server(entry, instance, context, strict=self.options.strict_settings)
            await server.start()
            self._stack.push_async_callback(server.stop)
            self._transports[instance.name] = InProcessTransport(server)
            app = ServerApp(server)
        elif is_hostable(entry):
            app = await self._start_hosted(entry, instance, context)
        else:
            lifespan = AsgiLifespan(entry)
            app = lifespan.serve
            try:
                await lifespan.start()
            except TransportError as error:
                raise StartError(f"{instance.name}: {error}") from error
            self._stack.push_async_callback(lifespan.stop)
            self._transports[instance.name] = AsgiTransport(app)
        sock = self._sockets.get(instance.name)
        if sock is not None:
            guarded = AccessGuard(InFlightTracker(app, instance.name), self.options.token)
            listener = await self._stack.enter_async_context(Listener(guarded, sock))
            self._listeners.append(listener)
            self.addresses[instance.name] = Address(advertised_host(listener.host), listener.port)

    async def _start_hosted(self, entry: HostableClass, instance: Instance, context: ServerContext) -> AsgiApp:
        try:
            hosted = entry.gymnast_hosted(instance, context)
        except UserError:
            raise
        except Exception as error:
            text = f"{instance.name} could not be created: {type(error).__name__}: {error}"
            raise StartError(text, where=f"{instance.directory}/{instance.entrypoint}") from error
        await hosted.start()
        self._stack.push_async_callback(hosted.stop)
        self._transports[instance.name] = transport_of(hosted)
        return hosted.app

    # --- instances in child processes --------------------------------------------------------------------------------

    async def _launch_children(self, instances: Sequence[Instance]) -> None:
        """Start the processes, which bind their ports."""
        if not instances:
            return
        folder = self.options.log_dir or self._stack.enter_context(log_folder())
        for instance in instances:
            log = folder / f"{instance.name}.log"
            child = Child(instance, log, on_death=self._child_died)
            self.children[instance.name] = child
            self._stack.push_async_callback(child.stop)
        async with _all_or_first_error() as group:
            for child in self.children.values():
                group.create_task(self._launch(child))

    async def _connect_children(self) -> None:
        """Send the children the addresses of all instances, and wait until they serve."""
        urls = self._urls()
        async with _all_or_first_error() as group:
            for child in self.children.values():
                group.create_task(child.connect(urls))

    async def _launch(self, child: Child) -> None:
        instance = child.instance
        host = instance.host or self.options.host
        spec = make_child_spec(instance, host, self.options)
        port = await child.launch(spec, self.options.cache_dir, self.options.say)
        address = Address(advertised_host(host), port)
        self.addresses[instance.name] = address
        self._transports[instance.name] = HttpTransport(address.url, self.http, token=self.options.token)

    def explain(self, detail: FailureDetail) -> FailureDetail:
        """Attribute a failure to reach an instance to the death of its process, if it died."""
        child = self.children.get(detail.instance or "")
        if child is None or child.last_death is None or not detail.kind.endswith("_unreachable"):
            return detail
        kind = FailureKind.OUT_OF_MEMORY if child.was_oom_killed else FailureKind.INSTANCE_DIED
        return msgspec.structs.replace(detail, kind=kind, message=f"{child.last_death}; {detail.message}")

    def pid_of(self, name: str) -> int | None:
        """The process that an instance runs in; a child's is another one after each restart."""
        child = self.children.get(name)
        return os.getpid() if child is None else child.pid

    def _child_died(self, child: Child) -> None:
        if self.options.on_child_death is not None:
            self.options.on_child_death(child)


def resolve_placement(instance: Instance) -> Instance:
    """Resolve `runs_in: auto`: this process, unless the instance requires packages that are not installed here.

    Or unless it waits for its peers while it is created: in this process, it would keep them from starting. Or unless
    it opens files of its folder by a relative path, or imports its modules in functions: a separate process runs in
    that folder.
    """
    if instance.runs_in != "auto" or instance.url is not None or instance.directory is None:
        return instance
    if unmet_requirements(instance.directory):
        return replace(instance, runs_in="venv")
    entry = instance.directory / instance.entrypoint if instance.entrypoint is not None else None
    is_foreign = entry is not None and not entry.is_relative_to(BUILTIN)
    needs_own = entry is not None and is_foreign and _needs_own_process(entry, instance.directory)
    return replace(instance, runs_in="child" if needs_own else "process")


def _needs_own_process(entry: Path, folder: Path) -> bool:
    waits_for_peers = entry.is_file() and "poll_for_status(" in entry.read_text(errors="replace")
    return waits_for_peers or reads_own_files(entry, folder) or imports_own_modules_late(entry, folder)


def make_child_spec(instance: Instance, host: str, options: CellOptions) -> ChildSpec:
    """The specification from which a child process runs this instance."""
    return ChildSpec(
        instance=encode_instance(instance),
        host=host,
        port=instance.port or 0,
        token=options.token,
        request_debug=options.request_debug,
        strict_settings=options.strict_settings,
        config=dict(options.config),
    )


@asynccontextmanager
async def _all_or_first_error() -> AsyncIterator[asyncio.TaskGroup]:
    """A task group that raises its first error, not an exception group."""
    try:
        async with asyncio.TaskGroup() as group:
            yield group
    except BaseExceptionGroup as errors:  # raised inside `except*`, some releases of 3.11 wrap it again
        raise next((error for error in errors.exceptions if isinstance(error, UserError | OSError)), errors) from None


def stderr_boundary(scrubber: Scrubber) -> BoundaryLog:
    """A boundary log that writes to standard error."""
    return BoundaryLog(lambda text: print(text, file=sys.stderr, flush=True), scrubber)  # noqa: T201 - enabled by a flag
