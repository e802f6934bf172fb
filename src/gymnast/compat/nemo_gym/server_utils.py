"""`nemo_gym.server_utils`: the client of servers (`ServerClient`), and their base classes. One module, as in NeMo Gym,
where programs replace functions of it.

A server hosted by Gymnast reaches its peers through the cell: in memory if they share its process, with deadlines, and
with failures that keep their kind. A standalone one reaches them over HTTP. Retries are bounded: connecting is retried
for a minute, a broken connection three times.
"""

import asyncio
import inspect
import logging
import resource
import time
import urllib.error
import urllib.request
from abc import abstractmethod
from typing import Any, ClassVar, Final, Literal, TypeAlias, Unpack, cast
from urllib.parse import urlsplit

import orjson
from aiohttp import (
    ClientConnectorError,
    ClientOSError,
    ClientResponse,
    ClientResponseError,
    ClientSession,
    ClientTimeout,
    DummyCookieJar,
    ServerDisconnectedError,
    TCPConnector,
)
from aiohttp.client import _RequestOptions
from fastapi import FastAPI
from omegaconf import DictConfig, OmegaConf
from pydantic import BaseModel, ConfigDict, PrivateAttr
from starlette.middleware.sessions import SessionMiddleware

from gymnast.compat.nemo_gym import standalone as by_hand
from gymnast.compat.nemo_gym.client_response import HostedResponse, plain_cookies
from gymnast.compat.nemo_gym.config_types import BaseRunServerInstanceConfig, BaseServerConfig
from gymnast.compat.nemo_gym.context import PROCESS, CellContext, current_cell
from gymnast.compat.nemo_gym.global_config import (
    HEAD_SERVER_KEY_NAME,
    GlobalConfigDictParser,
    GlobalConfigDictParserConfig,
    get_first_server_config_dict,
    get_global_config_dict,
    maybe_get_global_config_dict,
)
from gymnast.compat.nemo_gym.hosting import HostedServer, config_problems, host_server
from gymnast.compat.nemo_gym.middleware import ExceptionMiddleware, SessionIdMiddleware
from gymnast.compat.nemo_gym.peer_calls import CALL_TIMEOUT_S, call_peer, is_json, jsonable
from gymnast.compat.nemo_gym.rollout_correlation import apply_rollout_prefix, rollout_path_prefix
from gymnast.compat.nemo_gym.stages import failure_of
from gymnast.compat.nemo_gym.surface import missing_from
from gymnast.config import read_environ
from gymnast.config.environ import read_network
from gymnast.config.instances import Instance, ServerKind
from gymnast.errors import NotFoundError, Problem
from gymnast.runtime.registry import Registry
from gymnast.types.failure import FailureDetail
from gymnast.wire.proxy import choose_proxy
from gymnast.wire.server import ServerContext

__all__ = [
    "CALL_TIMEOUT_S",
    "CONNECT_FOR_S",
    "HEAD_SERVER_KEY_NAME",
    "MAX_NUM_TRIES",
    "SESSION_ID_KEY",
    "BaseServer",
    "BaseServerConfig",
    "ClientResponse",
    "GlobalConfigDictParserConfig",
    "HeadServer",
    "ProfilingMiddlewareConfig",
    "ServerClient",
    "ServerStatus",
    "SimpleServer",
    "apply_rollout_prefix",
    "get_first_server_config_dict",
    "get_global_aiohttp_client",
    "get_global_config_dict",
    "get_response_json",
    "get_server_url",
    "is_global_aiohttp_client_request_debug_enabled",
    "is_nemo_gym_fastapi_entrypoint",
    "raise_for_status",
    "read_head_config",
    "request",
    "rollout_path_prefix",
    "token_for",
]

SESSION_ID_KEY: Final = "session_id"
MAX_NUM_TRIES: Final = 3
_DIRECT: Final = urllib.request.build_opener(urllib.request.ProxyHandler({}))
"""Our own servers are never called through a proxy."""
CONNECT_FOR_S: Final = 60.0
ServerStatus: TypeAlias = Literal["success", "connection_error", "timeout", "unknown_error"]


class ServerClient(BaseModel):
    """Calls servers by the names of their instances."""

    model_config = ConfigDict(arbitrary_types_allowed=True)
    head_server_config: BaseServerConfig
    global_config_dict: DictConfig
    _cell: CellContext | None = PrivateAttr(default=None)
    _token: str | None = PrivateAttr(default=None)
    """The token of the head server's servers; empty if they need none, None until it is known."""

    @classmethod
    def load_head_server_config(cls) -> BaseServerConfig:
        """The configured address of the head server."""
        return BaseServerConfig.model_validate(OmegaConf.to_container(get_global_config_dict()[HEAD_SERVER_KEY_NAME]))

    @classmethod
    def load_from_global_config(cls, head_server_config: BaseServerConfig | None = None) -> "ServerClient":
        head = head_server_config or cls.load_head_server_config()
        return cls(head_server_config=head, global_config_dict=read_head_config(head))

    @classmethod
    def of_this_process(cls) -> "ServerClient":
        """The client of a server that runs by itself."""
        return cls(head_server_config=cls.load_head_server_config(), global_config_dict=get_global_config_dict())

    @classmethod
    def of_cell(cls, cell: CellContext) -> "ServerClient":
        """The client of a server that a cell hosts."""
        head = BaseServerConfig.model_validate(OmegaConf.to_container(cell.config[HEAD_SERVER_KEY_NAME]))
        client = cls(head_server_config=head, global_config_dict=cell.config)
        client._cell = cell
        return client

    def _build_server_base_url(self, server_config_dict: Any) -> str:
        if server_config_dict.get("url"):
            return str(server_config_dict["url"]).rstrip("/")
        return f"http://{server_config_dict['host']}:{server_config_dict['port']}"

    async def request(
        self, server_name: str, url_path: str, method: str, **kwargs: Unpack[_RequestOptions]
    ) -> ClientResponse:
        """Send a request. A pydantic body is sent without unset fields."""
        body = kwargs.get("json")
        if isinstance(body, BaseModel):
            kwargs["json"] = body.model_dump(mode="json", exclude_unset=True)
        cell = self._cell or current_cell()
        calls = cell.local_calls() if cell is not None else None
        if calls is not None and calls.knows(server_name) and is_json(kwargs):
            return await call_peer(calls, server_name, url_path, method, kwargs)  # type: ignore[return-value] # same interface
        block = get_first_server_config_dict(self.global_config_dict, server_name)
        headers: Any = kwargs.get("headers") or {}
        kwargs["headers"] = {**({} if block.get("url") else self._authorization()), **dict(headers)}
        url = f"{self._build_server_base_url(block)}{url_path}"
        return await request(method=method, url=url, _internal=True, **kwargs)

    def _authorization(self) -> dict[str, str]:
        """The token, which a serve that listens beyond this machine requires."""
        if self._token is None:
            head = self.head_server_config
            self._token = token_for(f"http://{head.host}:{head.port}") or ""
        return {"authorization": f"Bearer {self._token}"} if self._token else {}

    async def get(self, server_name: str, url_path: str, **kwargs: Unpack[_RequestOptions]) -> ClientResponse:
        return await self.request(server_name=server_name, url_path=url_path, method="GET", **kwargs)

    async def post(self, server_name: str, url_path: str, **kwargs: Unpack[_RequestOptions]) -> ClientResponse:
        return await self.request(server_name=server_name, url_path=url_path, method="POST", **kwargs)

    def poll_for_status(self, server_name: str) -> ServerStatus:
        """Whether a server responds at all."""
        block = get_first_server_config_dict(self.global_config_dict, server_name)
        try:
            with _DIRECT.open(self._build_server_base_url(block), timeout=2):
                return "success"
        except urllib.error.HTTPError:
            return "success"
        except TimeoutError:
            return "timeout"
        except OSError:
            return "connection_error"


async def request(
    method: str,
    url: str,
    _internal: bool = False,  # noqa: FBT001, FBT002 - its signature
    **kwargs: Unpack[_RequestOptions],
) -> ClientResponse:
    """Send an HTTP request to any URL. Any status is returned; broken connections are retried a few times."""
    body = kwargs.pop("json", None)
    if body is not None:
        kwargs["data"] = orjson.dumps(body, default=jsonable)
        headers: Any = kwargs.get("headers") or {}
        kwargs["headers"] = {"content-type": "application/json", **dict(headers)}
    if kwargs.get("cookies"):
        kwargs["cookies"] = plain_cookies(kwargs["cookies"])
    if not _internal and "proxy" not in kwargs:
        kwargs["proxy"] = _proxy_url(url)
    session, until = get_global_aiohttp_client(), time.monotonic() + CONNECT_FOR_S
    tries = 0
    while True:
        tries += 1
        try:
            return await session.request(method, url, **kwargs)
        except ClientConnectorError:
            if not _internal or time.monotonic() > until:
                raise
        except (ServerDisconnectedError, ClientOSError):
            if tries >= MAX_NUM_TRIES:
                raise
        await asyncio.sleep(0.5)


def _proxy_url(url: str) -> str | None:
    """The proxy for an endpoint outside, as the environment says."""
    parts, network = urlsplit(url), read_network()
    tls = parts.scheme == "https"
    chosen = choose_proxy(network, parts.hostname or "", parts.port or (443 if tls else 80), tls=tls)
    value = network.https_proxy if tls else network.http_proxy
    return value if chosen is not None and value and "://" in value else f"http://{value}" if chosen else None


def get_global_aiohttp_client(
    global_config_dict_parser_config: GlobalConfigDictParserConfig | None = None,  # noqa: ARG001 - its signature
    global_config_dict_parser_cls: type[GlobalConfigDictParser] = GlobalConfigDictParser,  # noqa: ARG001 - its signature
) -> ClientSession:
    """The HTTP session of this event loop."""
    loop = asyncio.get_running_loop()
    existing = PROCESS.sessions.get(loop)
    if existing is not None and not existing.closed:
        return existing
    config: Any = maybe_get_global_config_dict() or {}
    connector = TCPConnector(
        limit=int(config.get("global_aiohttp_connector_limit") or 102400),
        limit_per_host=int(config.get("global_aiohttp_connector_limit_per_host") or 1024),
    )
    session = ClientSession(
        connector=connector, cookie_jar=DummyCookieJar(), timeout=ClientTimeout(total=CALL_TIMEOUT_S, sock_connect=30)
    )
    PROCESS.sessions[loop] = session
    return session


def is_global_aiohttp_client_request_debug_enabled() -> bool:
    """Whether to log requests."""
    config = maybe_get_global_config_dict()
    return bool(config is not None and config.get("global_aiohttp_client_request_debug"))


async def raise_for_status(response: ClientResponse) -> None:
    """Raise for an error status, with the body at `response_content` of the error."""
    if getattr(response, "ok", True):
        return
    content = await response.read()
    if isinstance(response, HostedResponse):
        raise response.error(content)
    try:
        response.raise_for_status()
    except ClientResponseError as error:
        error.response_content = content  # type: ignore[attr-defined] # read by the exception middleware
        raise


async def get_response_json(response: ClientResponse) -> Any:
    """Decode the body of a reply; mocked replies may have a plain `read`, or only `json`."""
    content: Any = response.read()
    if inspect.isawaitable(content):
        content = await content
    if isinstance(content, (bytes, bytearray, str)):
        return orjson.loads(content)
    return await response.json()


def get_server_url(server_name: str) -> str:
    block = get_first_server_config_dict(get_global_config_dict(), server_name)
    if block.get("url"):
        return str(block["url"]).rstrip("/")
    return f"http://{block['host']}:{block['port']}"


def is_nemo_gym_fastapi_entrypoint(file: str) -> bool:
    """Whether a worker of a web server imports this file for its `app`."""
    return read_environ().web_entrypoint == file


def read_head_config(head: BaseServerConfig) -> DictConfig:
    url = f"http://{head.host}:{head.port}"
    token = token_for(url)
    head_request = urllib.request.Request(f"{url}/global_config_dict_yaml")  # noqa: S310 - the head's address
    if token:
        head_request.add_header("authorization", f"Bearer {token}")
    try:
        with _DIRECT.open(head_request, timeout=10) as reply:
            config = OmegaConf.create(orjson.loads(reply.read()))
    except OSError as error:
        raise NotFoundError(
            f"no head server at {url}: {error}", next="start one with RunHelper().start(…) or gymnast serve"
        ) from error
    assert isinstance(config, DictConfig)
    return config


def token_for(head_url: str) -> str | None:
    """The token of a head server: from the environment, or from the local serve with its port."""
    environ, port = read_environ(), urlsplit(head_url).port
    if environ.token:
        return environ.token
    entries = Registry(environ.runtime_dir).entries()
    return next((entry.token for entry in entries if urlsplit(entry.head_url).port == port), None)


# --- servers ----------------------------------------------------------------------------------------------------------


class ProfilingMiddlewareConfig(BaseModel):
    """Whether to profile, and where the profile is written."""

    profiling_enabled: bool = False
    profiling_results_dirpath: str | None = None


class BaseServer(BaseModel):
    model_config = ConfigDict(arbitrary_types_allowed=True)
    config: BaseServerConfig

    @classmethod
    def load_config_from_global_config(cls) -> BaseRunServerInstanceConfig:
        """Load the configuration of the instance that this process runs."""
        return by_hand.load_own_config(cls.config_type())

    @classmethod
    def config_type(cls) -> type[BaseRunServerInstanceConfig]:
        """The configuration model that the class declares."""
        return cast("type[BaseRunServerInstanceConfig]", cls.model_fields["config"].annotation)

    def setup_liveness(self, app: FastAPI) -> None:
        """Add `GET /`, which reports that the server is running."""

        async def liveness() -> dict[str, str]:
            return {"status": "ok"}

        app.get("/", include_in_schema=False)(liveness)


class SimpleServer(BaseServer):
    """A server with a name, peers and sessions."""

    GYMNAST_KIND: ClassVar[ServerKind]
    ray_enabled: ClassVar[bool | None] = None
    """What servers of NeMo Gym 0.7 declare. Without effect: Ray is started for servers that use it."""
    config: BaseRunServerInstanceConfig
    server_client: ServerClient

    @abstractmethod
    def setup_webserver(self) -> FastAPI:
        """Build the application with its routes."""

    def get_session_middleware_key(self) -> str:
        """The name of the session cookie."""
        return f"{type(self).__name__}___{self.config.name}"

    def setup_session_middleware(self, app: FastAPI) -> None:
        """Assign every request to a session, kept in a cookie."""
        app.add_middleware(SessionIdMiddleware)
        key = self.get_session_middleware_key()
        app.add_middleware(SessionMiddleware, secret_key=key, session_cookie=key)

    def setup_exception_middleware(self, app: FastAPI) -> None:
        """Turn exceptions of handlers into the contract's 500, with the kind of failure in a header."""
        app.add_middleware(ExceptionMiddleware, explain=self.explain_exception)

    def explain_exception(self, path: str, error: Exception) -> tuple[str, FailureDetail]:
        """The body of a 500 reply, and the failure behind it."""
        name = self.get_session_middleware_key()
        logging.getLogger(f"gymnast.instance.{self.config.name}").error("POST %s raised", path, exc_info=error)
        content = getattr(error, "response_content", None)
        text = (
            f"Hit an exception in {name} calling an inner server: {content!r}" if content is not None else repr(error)
        )
        return text, failure_of(self.config.name, path, error)

    def setup_profiling(self, app: FastAPI, profiling_config: ProfilingMiddlewareConfig) -> None:
        """Add `GET /stats`, which writes a profile; needs the package yappi."""
        from gymnast.compat.nemo_gym.profiling import install  # noqa: PLC0415 - needed only for profiles

        install(app, self.get_session_middleware_key(), profiling_config.profiling_results_dirpath)

    def set_ulimit(self, target_soft_limit: int = 65535) -> None:
        """Raise the limit of open files, to allow many connections."""
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        limit = target_soft_limit if hard == resource.RLIM_INFINITY else min(target_soft_limit, hard)
        if soft < limit:
            resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))

    def prefix_server_logs(self) -> None:
        """Prefix lines of this process with the name of the server. Hosted servers have separate logs instead."""
        by_hand.prefix_output(self.config.name)

    @classmethod
    def run_webserver(cls) -> FastAPI | None:
        """Run this server until it is stopped: for `python app.py`."""
        return by_hand.run_webserver(cls, ServerClient.of_this_process)

    # --- hosted by Gymnast -------------------------------------------------------------------------------------------

    def gymnast_observed_runs(self) -> Any:
        """The observed rollouts of an agent; None for other servers, and if the run is not observed."""
        return None

    @classmethod
    def gymnast_hosted(cls, instance: Instance, context: ServerContext) -> HostedServer:
        """This server as a guest of a cell."""
        return host_server(cls, ServerClient.of_cell, instance, context)

    @classmethod
    def gymnast_problems(cls, instance: Instance) -> list[Problem]:
        """The problems of an instance's settings."""
        return config_problems(cls, instance)


class HeadServer(BaseServer):
    """Lists the servers and their configuration."""

    config: BaseServerConfig
    _server_instances: list[dict[str, Any]] = PrivateAttr(default_factory=list)

    def setup_webserver(self) -> FastAPI:
        """Build the application: the configuration and the list of servers."""
        app = FastAPI()
        self.setup_liveness(app)
        app.get("/global_config_dict_yaml")(self.global_config_dict_yaml)
        app.get("/server_instances")(self.get_server_instances)
        return app

    def get_server_instances(self) -> list[dict[str, Any]]:
        """The servers set with `set_server_instances`."""
        return self._server_instances

    def set_server_instances(self, instances: list[dict[str, Any]]) -> None:
        self._server_instances = instances

    async def global_config_dict_yaml(self) -> str:
        """The configuration, secrets masked."""
        values = OmegaConf.to_container(get_global_config_dict(), resolve=False)
        return by_hand.masked_yaml(cast("dict[str, Any]", values))

    @classmethod
    def run_webserver(cls) -> tuple[Any, Any, "HeadServer"]:
        """Serve in a thread; returns the web server, the thread and the head server."""
        return by_hand.run_head(cls)


__getattr__ = missing_from("nemo_gym.server_utils")
