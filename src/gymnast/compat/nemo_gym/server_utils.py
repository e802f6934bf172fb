"""`nemo_gym.server_utils`: how servers are reached (`ServerClient`), and the classes that they are built on.

A server hosted by Gymnast reaches its peers through the cell: in memory where they live in the same process, with
deadlines, and with failures that keep their kind. One that was started by hand reaches them over HTTP. Retries are
bounded: a connection that cannot be made is tried for a minute, one that breaks three times.
"""

import asyncio
import inspect
import time
import urllib.error
import urllib.request
from typing import Any, Final, Literal, TypeAlias, Unpack
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
from omegaconf import DictConfig, OmegaConf
from pydantic import BaseModel, ConfigDict, PrivateAttr

from gymnast.compat.nemo_gym import current
from gymnast.compat.nemo_gym.client_response import HostedResponse, plain_cookies
from gymnast.compat.nemo_gym.config_types import BaseServerConfig
from gymnast.compat.nemo_gym.global_config import (
    HEAD_SERVER_KEY_NAME,
    GlobalConfigDictParser,
    GlobalConfigDictParserConfig,
    get_first_server_config_dict,
    get_global_config_dict,
    maybe_get_global_config_dict,
)
from gymnast.compat.nemo_gym.peer_calls import CALL_TIMEOUT_S, call_peer, is_json, jsonable
from gymnast.compat.nemo_gym.rollout_correlation import apply_rollout_prefix, rollout_path_prefix
from gymnast.compat.nemo_gym.surface import missing_from
from gymnast.config import read_environ
from gymnast.errors import NotFoundError
from gymnast.runtime.registry import Registry

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
CONNECT_FOR_S: Final = 60.0
ServerStatus: TypeAlias = Literal["success", "connection_error", "timeout", "unknown_error"]


class ServerClient(BaseModel):
    """Calls servers by the names of their instances."""

    model_config = ConfigDict(arbitrary_types_allowed=True)
    head_server_config: BaseServerConfig
    global_config_dict: DictConfig
    _place: current.Place | None = PrivateAttr(default=None)
    _token: str | None = PrivateAttr(default=None)
    """Of the head server's servers; empty where they ask for none, None before it is known."""

    @classmethod
    def load_head_server_config(cls) -> BaseServerConfig:
        """Where the head server is, as configured."""
        return BaseServerConfig.model_validate(OmegaConf.to_container(get_global_config_dict()[HEAD_SERVER_KEY_NAME]))

    @classmethod
    def load_from_global_config(cls, head_server_config: BaseServerConfig | None = None) -> "ServerClient":
        """A client of everything that a head server knows."""
        head = head_server_config or cls.load_head_server_config()
        return cls(head_server_config=head, global_config_dict=read_head_config(head))

    def _build_server_base_url(self, server_config_dict: Any) -> str:
        if server_config_dict.get("url"):
            return str(server_config_dict["url"]).rstrip("/")
        return f"http://{server_config_dict['host']}:{server_config_dict['port']}"

    async def request(
        self, server_name: str, url_path: str, method: str, **kwargs: Unpack[_RequestOptions]
    ) -> ClientResponse:
        """Send a request. A pydantic body is sent without what was not set."""
        body = kwargs.get("json")
        if isinstance(body, BaseModel):
            kwargs["json"] = body.model_dump(mode="json", exclude_unset=True)
        place = self._place or current.current_place()
        calls = place.calls_from_here() if place is not None else None
        if calls is not None and calls.knows(server_name) and is_json(kwargs):
            return await call_peer(calls, server_name, url_path, method, kwargs)  # type: ignore[return-value] # its like
        block = get_first_server_config_dict(self.global_config_dict, server_name)
        given: Any = kwargs.get("headers") or {}
        kwargs["headers"] = {**({} if block.get("url") else self._authorization()), **dict(given)}
        url = f"{self._build_server_base_url(block)}{url_path}"
        return await request(method=method, url=url, _internal=True, **kwargs)

    def _authorization(self) -> dict[str, str]:
        """A serve that listens beyond this machine asks for its token."""
        if self._token is None:
            head = self.head_server_config
            self._token = token_for(f"http://{head.host}:{head.port}") or ""
        return {"authorization": f"Bearer {self._token}"} if self._token else {}

    async def get(self, server_name: str, url_path: str, **kwargs: Unpack[_RequestOptions]) -> ClientResponse:
        """Send a GET."""
        return await self.request(server_name=server_name, url_path=url_path, method="GET", **kwargs)

    async def post(self, server_name: str, url_path: str, **kwargs: Unpack[_RequestOptions]) -> ClientResponse:
        """Send a POST."""
        return await self.request(server_name=server_name, url_path=url_path, method="POST", **kwargs)

    def poll_for_status(self, server_name: str) -> ServerStatus:
        """Whether a server answers at all."""
        block = get_first_server_config_dict(self.global_config_dict, server_name)
        try:
            with urllib.request.urlopen(self._build_server_base_url(block), timeout=2):  # noqa: S310 - from our config
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
    """An HTTP request to any URL. Statuses are not looked at; broken connections are tried again a few times."""
    body = kwargs.pop("json", None)
    if body is not None:
        kwargs["data"] = orjson.dumps(body, default=jsonable)
        given: Any = kwargs.get("headers") or {}
        kwargs["headers"] = {"content-type": "application/json", **dict(given)}
    if kwargs.get("cookies"):
        kwargs["cookies"] = plain_cookies(kwargs["cookies"])
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


def get_global_aiohttp_client(
    global_config_dict_parser_config: GlobalConfigDictParserConfig | None = None,  # noqa: ARG001 - its signature
    global_config_dict_parser_cls: type[GlobalConfigDictParser] = GlobalConfigDictParser,  # noqa: ARG001 - its signature
) -> ClientSession:
    """The HTTP session of this event loop."""
    loop = asyncio.get_running_loop()
    known = current.PROCESS.sessions.get(loop)
    if known is not None and not known.closed:
        return known
    config: Any = maybe_get_global_config_dict() or {}
    connector = TCPConnector(
        limit=int(config.get("global_aiohttp_connector_limit") or 102400),
        limit_per_host=int(config.get("global_aiohttp_connector_limit_per_host") or 1024),
    )
    session = ClientSession(
        connector=connector, cookie_jar=DummyCookieJar(), timeout=ClientTimeout(total=CALL_TIMEOUT_S, sock_connect=30)
    )
    current.PROCESS.sessions[loop] = session
    return session


def is_global_aiohttp_client_request_debug_enabled() -> bool:
    """Whether requests are to be logged."""
    found = maybe_get_global_config_dict()
    return bool(found is not None and found.get("global_aiohttp_client_request_debug"))


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
        error.response_content = content  # type: ignore[attr-defined] # read by whoever answers for us
        raise


async def get_response_json(response: ClientResponse) -> Any:
    """The body of a reply, decoded; of a stand-in, what its `read` or `json` gives."""
    content: Any = response.read()
    if inspect.isawaitable(content):
        content = await content
    if isinstance(content, (bytes, bytearray, str)):
        return orjson.loads(content)
    return await response.json()


def get_server_url(server_name: str) -> str:
    """Where an instance listens."""
    block = get_first_server_config_dict(get_global_config_dict(), server_name)
    if block.get("url"):
        return str(block["url"]).rstrip("/")
    return f"http://{block['host']}:{block['port']}"


def is_nemo_gym_fastapi_entrypoint(file: str) -> bool:
    """Whether a web server's worker imports this file for its `app`."""
    return read_environ().web_entrypoint == file


def read_head_config(head: BaseServerConfig) -> DictConfig:
    """The configuration that a head server shows."""
    url = f"http://{head.host}:{head.port}"
    token = token_for(url)
    asked = urllib.request.Request(f"{url}/global_config_dict_yaml")  # noqa: S310 - the head's address
    if token:
        asked.add_header("authorization", f"Bearer {token}")
    try:
        with urllib.request.urlopen(asked, timeout=10) as answer:  # noqa: S310 - as above
            found = OmegaConf.create(orjson.loads(answer.read()))
    except OSError as error:
        raise NotFoundError(
            f"no head server answers at {url}: {error}", next="start one: RunHelper().start(…) or gymnast serve"
        ) from error
    assert isinstance(found, DictConfig)
    return found


def token_for(head_url: str) -> str | None:
    """The token of a head server: told by the environment, or by the serve of this machine that has its port."""
    environ, port = read_environ(), urlsplit(head_url).port
    if environ.token:
        return environ.token
    entries = Registry(environ.runtime_dir).entries()
    return next((entry.token for entry in entries if urlsplit(entry.head_url).port == port), None)


# At the end: these classes hold a ServerClient.
from gymnast.compat.nemo_gym.server_base import (  # noqa: E402 - see above
    BaseServer,
    HeadServer,
    ProfilingMiddlewareConfig,
    SimpleServer,
)

__getattr__ = missing_from("nemo_gym.server_utils")
