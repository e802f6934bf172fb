"""Hosts a `nemo_gym` server in a cell: it is reached in memory, and reaches its peers through the cell."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from omegaconf import DictConfig, OmegaConf
from pydantic import ValidationError

from gymnast.compat.nemo_gym.context import (
    CURRENT_REQUEST,
    PROCESS,
    CellContext,
    RequestContext,
    close_session,
    use_cell,
)
from gymnast.compat.nemo_gym.direct_calls import DirectCalls
from gymnast.compat.nemo_gym.global_config import (
    RAY_HEAD_NODE_ADDRESS_KEY_NAME,
    as_dict_config,
    get_first_server_config_dict,
)
from gymnast.compat.nemo_gym.mcp_auto_exposure import maybe_auto_expose
from gymnast.compat.nemo_gym.middleware import SessionCookies
from gymnast.compat.nemo_gym.ray_node import join_ray, uses_ray
from gymnast.compat.nemo_gym.rollout_correlation import ROLLOUT_PATH_PREFIX
from gymnast.errors import ConfigError, Problem, StartError
from gymnast.types.tokens import TOKEN_CALL
from gymnast.types.usage import USAGE_HEADER, encode_usage
from gymnast.wire.asgi import ROLLOUT_HEADER
from gymnast.wire.http_connection import TransportError
from gymnast.wire.progress import PROGRESS_KEY
from gymnast.wire.server import strip_prefix
from gymnast.wire.transports import AsgiLifespan, AsgiTransport

if TYPE_CHECKING:
    from collections.abc import Callable, MutableMapping

    from fastapi import FastAPI

    from gymnast.compat.nemo_gym.observed_runs import ObservedRuns
    from gymnast.compat.nemo_gym.server_utils import ServerClient, SimpleServer
    from gymnast.config.instances import Instance
    from gymnast.wire.asgi import AsgiScope, Receive, Send
    from gymnast.wire.message import Reply, Request
    from gymnast.wire.progress import AttemptProgress
    from gymnast.wire.server import ServerContext

_PREFIX: Final = f"/{ROLLOUT_PATH_PREFIX}/"
_USAGE_HEADER: Final = USAGE_HEADER.encode()


class HostedServer:
    """A hosted server: a transport for the cell's calls and an application for its ports."""

    address = "in-process (nemo_gym)"

    def __init__(self, server: SimpleServer, app: FastAPI, cell: CellContext, folder: Path | None) -> None:
        self.server = server
        self._folder = folder
        self._fastapi = app
        self._cell = cell
        self._name = server.config.name
        self._in_memory = AsgiTransport(self.app)
        self._lifespan = AsgiLifespan(app)
        cookies = SessionCookies(server.get_session_middleware_key())
        self._direct = DirectCalls(app, cookies, server.explain_exception, self._lifespan.state)
        self._observed: ObservedRuns | None = server.gymnast_observed_runs()

    async def app(self, scope: AsgiScope, receive: Receive, send: Send) -> None:
        """Run the application in the context of its cell."""
        if self._lifespan.state:
            scope = {**scope, "state": {**self._lifespan.state, **scope.get("state", {})}}
        current = CURRENT_REQUEST.get()
        if current.cell is self._cell:  # set by `send`
            return await self._fastapi(scope, receive, send)
        headers = dict(scope["headers"]) if scope["type"] == "http" else {}
        rollout_id = headers.get(ROLLOUT_HEADER.encode(), b"").decode("latin-1") or None
        progress: AttemptProgress | None = scope.get(PROGRESS_KEY)
        if progress is not None:  # the caller is in another process, which knows of no calls made here
            send = _report_usage(send, progress)
        context = RequestContext(self._cell, rollout_id or current.rollout_id, progress or current.progress)
        token = CURRENT_REQUEST.set(context)
        try:
            # Other collectors add what was observed by themselves.
            if self._observed is not None and rollout_id and scope["path"] == "/run":
                await self._observed.serve(self._fastapi, scope, receive, send)
            else:
                await self._fastapi(scope, receive, send)
        finally:
            CURRENT_REQUEST.reset(token)

    async def send(self, request: Request) -> Reply:
        """Handle a call of the cell."""
        full_path = request.path
        is_prefixed = full_path.startswith(_PREFIX)
        if is_prefixed:
            strip_prefix(request)
        path = request.path
        plain = self._direct.find(request.method, path)
        context = RequestContext(self._cell, request.rollout_id, request.progress)
        observed = self._observed if path == "/run" else None
        if observed is not None:
            observed.begin(request.body)
        token = CURRENT_REQUEST.set(context)
        try:
            if plain is not None:
                reply = await self._direct.call(plain, request, is_prefixed=is_prefixed)
            else:
                request.path = full_path  # its middleware strips the prefix, and tells handlers of it
                reply = await self._in_memory.send(request)
        finally:
            CURRENT_REQUEST.reset(token)
        if path == "/verify" and reply.status == 200:
            restore_token_calls(request.body, reply.body)
        if path == "/run" and reply.status == 200 and context.judge_failure and isinstance(reply.body, dict):
            # An agent whose reply does not declare these fields drops them: a failed judge would become a reward of 0.
            reply.body, reply.raw = {**reply.body, **context.judge_failure}, None
        if observed is not None and reply.status == 200 and isinstance(reply.body, dict):
            observed.finish(request.body, reply.body, request.progress)
            reply.raw = None
        return reply

    async def start(self) -> None:
        """Run the application's startup."""
        if self._folder is not None and uses_ray(self._folder):
            await join_ray(self._name, self._cell.config.get(RAY_HEAD_NODE_ADDRESS_KEY_NAME))
        try:
            with use_cell(self._cell):
                await self._lifespan.start()
        except TransportError as error:
            raise StartError(f"{self._name}: {error}") from error

    async def stop(self) -> None:
        """Run the application's shutdown."""
        await self._lifespan.stop()
        await close_session()
        if PROCESS.cell is self._cell:
            PROCESS.cell = None


def host_server(
    server_class: type[SimpleServer],
    make_client: Callable[[CellContext], ServerClient],
    instance: Instance,
    context: ServerContext,
) -> HostedServer:
    """Create the server of an instance, not started yet."""
    config = shared_config(context)
    cell = CellContext(config, context.calls, asyncio.get_running_loop())
    PROCESS.cell = cell
    # Servers read files relative to their own folder when they are created: there, a launcher starts them in it.
    with use_cell(cell), contextlib.chdir(instance.directory or Path.cwd()):
        server = server_class(config=_own_config(server_class, instance, config), server_client=make_client(cell))
        app = build_app(server)
    return HostedServer(server, app, cell, instance.directory)


def build_app(server: SimpleServer) -> FastAPI:
    """The application of a server, with the exception middleware and MCP tools."""
    app = server.setup_webserver()
    server.setup_exception_middleware(app)
    maybe_auto_expose(server, app)
    return app


def shared_config(context: ServerContext) -> DictConfig:
    """The cell's configuration, built once for all hosted servers of a cell."""
    config = context.shared.get("nemo_gym config")
    if config is None:
        config = context.shared["nemo_gym config"] = as_dict_config(context.config)
    assert isinstance(config, DictConfig)
    return config


def _own_config(server_class: type[SimpleServer], instance: Instance, config: DictConfig) -> Any:
    block: Any = dict(instance.block)
    if instance.name in config:  # with its assigned address
        block |= OmegaConf.to_container(get_first_server_config_dict(config, instance.name), resolve=True)
    try:
        return server_class.config_type().model_validate(_complete(block, instance))
    except ValidationError as error:
        raise ConfigError(_problems(error, instance)) from error


def _complete(block: dict[str, Any], instance: Instance) -> dict[str, Any]:
    address = {"host": block.get("host") or "127.0.0.1", "port": block.get("port") or 0}
    return {**block, **address, "entrypoint": instance.entrypoint, "name": instance.name}


def config_problems(server_class: type[SimpleServer], instance: Instance) -> list[Problem]:
    """Validate the settings of an instance against its configuration model, without starting it."""
    try:
        server_class.config_type().model_validate(_complete(dict(instance.block), instance))
    except ValidationError as error:
        return _problems(error, instance)
    return []


def _problems(error: ValidationError, instance: Instance) -> list[Problem]:
    problems = []
    for entry in error.errors(include_url=False):
        path = ".".join(str(step) for step in entry["loc"])
        message = (
            f"{instance.implementation} needs '{path}'" if entry["type"] == "missing" else f"'{path}': {entry['msg']}"
        )
        problems.append(Problem(message, where=instance.name))
    return problems


def _report_usage(send: Send, progress: AttemptProgress) -> Send:
    """Add to a reply what the model calls behind it used."""

    async def send_with_usage(message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.start" and progress.usage_counter is not None:
            usage = encode_usage(progress.usage_counter.usage())
            message = {**message, "headers": [*message.get("headers", ()), (_USAGE_HEADER, usage.encode())]}
        await send(message)

    return send_with_usage


def restore_token_calls(request: Any, reply: Any) -> None:
    """Restore the model call numbers that items lose when a hosted server sends a response back."""
    before, after = _output(request), None
    for index, old in enumerate(before):
        if TOKEN_CALL not in old:
            continue
        after = _output(reply) if after is None else after
        if len(before) != len(after):
            return
        if after[index].get("type") == old.get("type"):
            after[index][TOKEN_CALL] = old[TOKEN_CALL]


def _output(row: Any) -> list[Any]:
    response = row.get("response") if isinstance(row, dict) else None
    output = response.get("output") if isinstance(response, dict) else None
    return output if isinstance(output, list) else []
