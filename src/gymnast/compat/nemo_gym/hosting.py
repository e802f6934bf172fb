"""A server of the surface as a guest of a cell: reached in memory, and reaching its peers through the cell."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from omegaconf import DictConfig, OmegaConf
from pydantic import ValidationError

from gymnast.compat.nemo_gym import current
from gymnast.compat.nemo_gym.current import Place, Visit
from gymnast.compat.nemo_gym.direct import DirectCalls
from gymnast.compat.nemo_gym.global_config import HEAD_SERVER_KEY_NAME, as_dict_config, get_first_server_config_dict
from gymnast.compat.nemo_gym.mcp_auto_exposure import maybe_auto_expose
from gymnast.compat.nemo_gym.middleware import SessionCookies
from gymnast.errors import ConfigError, Problem, StartError
from gymnast.types.tokens import TOKEN_CALL
from gymnast.wire.asgi import ROLLOUT_HEADER
from gymnast.wire.http_connection import TransportError
from gymnast.wire.server import strip_prefix
from gymnast.wire.trail import TRAIL_KEY
from gymnast.wire.transports import AsgiLifespan, InMemoryAsgi

if TYPE_CHECKING:
    from fastapi import FastAPI

    from gymnast.compat.nemo_gym.server_base import SimpleServer
    from gymnast.config.instances import Instance
    from gymnast.wire.asgi import AsgiScope, Receive, Send
    from gymnast.wire.message import Reply, Request
    from gymnast.wire.server import Surroundings


class Guest:
    """One hosted server: a transport for the cell's calls, an application for its ports."""

    address = "in-process (nemo_gym)"

    def __init__(self, server: SimpleServer, app: FastAPI, place: Place) -> None:
        self.server = server
        self._fastapi = app
        self._place = place
        self._name = server.config.name
        self._in_memory = InMemoryAsgi(self.app)
        self._direct = DirectCalls(app, SessionCookies(server.get_session_middleware_key()), server.explain_exception)
        self._lifespan = AsgiLifespan(app)

    async def app(self, scope: AsgiScope, receive: Receive, send: Send) -> None:
        """The application, run where it belongs."""
        known = current.VISIT.get()
        if known.place is self._place:  # by `send`, which has said whose visit it is
            return await self._fastapi(scope, receive, send)
        headers = dict(scope["headers"]) if scope["type"] == "http" else {}
        rollout_id = headers.get(ROLLOUT_HEADER.encode(), b"").decode("latin-1") or None
        visit = Visit(self._place, rollout_id or known.rollout_id, scope.get(TRAIL_KEY) or known.trail)
        token = current.VISIT.set(visit)
        try:
            await self._fastapi(scope, receive, send)
        finally:
            current.VISIT.reset(token)

    async def send(self, request: Request) -> Reply:
        """Answer a call of the cell."""
        if request.path.startswith("/ng-rollout/"):
            strip_prefix(request)
        plain = self._direct.find(request.method, request.path)
        visit = Visit(self._place, request.rollout_id, request.trail)
        token = current.VISIT.set(visit)
        try:
            reply = await (self._direct.call(plain, request) if plain else self._in_memory.send(request))
        finally:
            current.VISIT.reset(token)
        if request.path == "/verify" and reply.status == 200:
            keep_token_calls(request.body, reply.body)
        if request.path == "/run" and reply.status == 200 and visit.unjudged and isinstance(reply.body, dict):
            # An agent whose reply does not declare these drops them, and no verdict would become a reward of 0.
            reply.body, reply.raw = {**reply.body, **visit.unjudged}, None
        return reply

    async def start(self) -> None:
        """Run the application's startup."""
        try:
            with current.at(self._place):
                await self._lifespan.start()
        except TransportError as error:
            raise StartError(f"{self._name}: {error}") from error

    async def stop(self) -> None:
        """Run its shutdown."""
        await self._lifespan.stop()
        await current.close_session()
        if current.PROCESS.place is self._place:
            current.PROCESS.place = None


def hosted(server_class: type[SimpleServer], instance: Instance, surroundings: Surroundings) -> Guest:
    """A server of an instance, ready to be started."""
    from gymnast.compat.nemo_gym.server_utils import BaseServerConfig, ServerClient  # noqa: PLC0415 - which needs this

    config = shared_config(surroundings)
    place = Place(config, surroundings.calls, asyncio.get_running_loop())
    current.PROCESS.place = place
    with current.at(place):
        head = BaseServerConfig.model_validate(OmegaConf.to_container(config[HEAD_SERVER_KEY_NAME]))
        client = ServerClient(head_server_config=head, global_config_dict=config)
        client._place = place  # noqa: SLF001 - a private attribute of a model of ours
        server = server_class(config=_own_config(server_class, instance, config), server_client=client)
        app = whole_app(server)
    return Guest(server, app, place)


def whole_app(server: SimpleServer) -> FastAPI:
    """A server's application with what stands around every one that is served."""
    app = server.setup_webserver()
    server.setup_exception_middleware(app)
    maybe_auto_expose(server, app)
    return app


def shared_config(surroundings: Surroundings) -> DictConfig:
    """The cell's configuration, made once for all guests of a cell."""
    known = surroundings.shared.get("nemo_gym config")
    if known is None:
        known = surroundings.shared["nemo_gym config"] = as_dict_config(surroundings.config)
    assert isinstance(known, DictConfig)
    return known


def _own_config(server_class: type[SimpleServer], instance: Instance, config: DictConfig) -> Any:
    block: Any = dict(instance.block)
    if instance.name in config:  # with the address that it was given
        block |= OmegaConf.to_container(get_first_server_config_dict(config, instance.name), resolve=True)
    try:
        return server_class.config_type().model_validate(_complete(block, instance))
    except ValidationError as error:
        raise ConfigError(_problems(error, instance)) from error


def _complete(block: dict[str, Any], instance: Instance) -> dict[str, Any]:
    here = {"host": block.get("host") or "127.0.0.1", "port": block.get("port") or 0}
    return {**block, **here, "entrypoint": instance.entrypoint, "name": instance.name}


def config_problems(server_class: type[SimpleServer], instance: Instance) -> list[Problem]:
    """What a server's configuration model says of an instance, without starting it."""
    try:
        server_class.config_type().model_validate(_complete(dict(instance.block), instance))
    except ValidationError as error:
        return _problems(error, instance)
    return []


def _problems(error: ValidationError, instance: Instance) -> list[Problem]:
    found = []
    for entry in error.errors(include_url=False):
        path = ".".join(str(step) for step in entry["loc"])
        what = (
            f"{instance.implementation} needs '{path}'" if entry["type"] == "missing" else f"'{path}': {entry['msg']}"
        )
        found.append(Problem(what, where=instance.name))
    return found


def keep_token_calls(sent: Any, answered: Any) -> None:
    """Items of a response that a guest sends back have lost the number of their model call: put it back."""
    before, after = _output(sent), _output(answered)
    if len(before) != len(after):
        return
    for old, new in zip(before, after, strict=True):
        if TOKEN_CALL in old and new.get("type") == old.get("type"):
            new[TOKEN_CALL] = old[TOKEN_CALL]


def _output(row: Any) -> list[Any]:
    response = row.get("response") if isinstance(row, dict) else None
    output = response.get("output") if isinstance(response, dict) else None
    return output if isinstance(output, list) else []
