"""`nemo_gym.mcp_auto_exposure`: an environment's routes as tools of an MCP server (`expose_tools_over_mcp: true`).

Every POST route without path parameters is a tool, except those of the contract. The reply of /seed_session has a token
for the session; the route itself handles each tool call, in that session.
"""

import functools
import inspect
import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import orjson
from fastapi import FastAPI, Request
from fastapi.encoders import jsonable_encoder
from fastapi.responses import JSONResponse, PlainTextResponse
from fastapi.routing import APIRoute
from itsdangerous import BadData, URLSafeSerializer
from pydantic import BaseModel

from gymnast.compat.nemo_gym.middleware import CURRENT_SESSION, SESSION_ID, SessionCookies
from gymnast.compat.nemo_gym.surface import missing_from
from gymnast.kit.mcp_server import TOKEN_HEADER, TOKEN_SALT
from gymnast.wire.mcp import answer_mcp
from gymnast.wire.message import PlainText, Reply
from gymnast.wire.message import Request as WireRequest
from gymnast.wire.transports import AsgiTransport

if TYPE_CHECKING:
    from gymnast.compat.nemo_gym.base_resources_server import BaseVerifyRequest, SimpleResourcesServer

NEMO_GYM_MCP_METADATA_KEY: Final = "mcp"
MCP_PATH: Final = "/mcp"
_RESERVED: Final = frozenset({"verify", "seed_session", "aggregate_metrics", "mcp", "reset", "step", "close"})
_NAME: Final = re.compile(r"[A-Za-z0-9_-]+")
_ANYTHING: Final = {"type": "object", "additionalProperties": True}
Handler = Callable[..., Awaitable[Any]]


@dataclass(slots=True)
class MCPTool:
    """A tool offered over MCP."""

    name: str
    description: str = ""
    input_schema: dict[str, Any] = field(default_factory=lambda: dict(_ANYTHING))
    path: str = ""
    """The route that handles it; by default the route of the same name."""

    def declaration(self) -> dict[str, Any]:
        """The tool as our MCP server lists it."""
        return {"name": self.name, "description": self.description, "parameters": self.input_schema}


def maybe_auto_expose(server: Any, app: FastAPI) -> dict[str, MCPTool] | None:
    """Offer the routes of an application over MCP, if its server is configured to."""
    if not getattr(server.config, "expose_tools_over_mcp", False):
        return None
    tools = {tool.name: tool for tool in _tools(server, app)}
    exposure = _Exposure(server, app, tools)
    for path in (MCP_PATH, f"{MCP_PATH}/"):
        app.post(path, include_in_schema=False)(exposure.answer)
    return tools


def _tools(server: Any, app: FastAPI) -> list[MCPTool]:
    harvested: list[MCPTool] = []
    catchall: APIRoute | None = None
    for route in app.routes:
        if not isinstance(route, APIRoute) or "POST" not in (route.methods or ()):
            continue
        name = route.path.strip("/")
        if "{" in route.path:
            catchall = catchall or route
        elif _NAME.fullmatch(name) and name not in _RESERVED:
            doc = inspect.getdoc(route.endpoint) or ""
            harvested.append(MCPTool(name, doc, _schema(route.endpoint), route.path))
    chosen = server.mcp_tools(harvested, catchall)
    return harvested if chosen is None else list(chosen)


def _schema(endpoint: Any) -> dict[str, Any]:
    try:
        parameters = inspect.signature(endpoint, eval_str=True).parameters.values()
    except (NameError, TypeError, ValueError):
        return dict(_ANYTHING)
    for parameter in parameters:
        if isinstance(parameter.annotation, type) and issubclass(parameter.annotation, BaseModel):
            return parameter.annotation.model_json_schema()
    return dict(_ANYTHING)


class _Exposure:
    """The MCP endpoint of one application."""

    def __init__(self, server: Any, app: FastAPI, tools: dict[str, MCPTool]) -> None:
        self._server = server
        self._app = AsgiTransport(app)
        self._tools = tools
        self._cookies = SessionCookies(server.get_session_middleware_key())

    async def answer(self, request: Request) -> Any:
        """Handle one message of a client."""
        claims = _claims(self._server, request.headers.get(TOKEN_HEADER))
        allowed = claims.get("tools") if claims else None
        offered = [tool for name, tool in self._tools.items() if allowed is None or name in allowed]

        async def call(name: str, arguments: Any) -> Reply:
            if claims is None:
                return Reply(401, {"detail": f"tool calls need the session's token in the header {TOKEN_HEADER}"})
            cookies = {self._cookies.name: self._cookies.dump({SESSION_ID: claims["sid"]})}
            path = self._tools[name].path or f"/{name}"
            return await self._app.send(WireRequest("POST", path, arguments, cookies))

        message = orjson.loads(await request.body())
        declared = [tool.declaration() for tool in offered]
        reply = await answer_mcp(message, declared, call, server_name=self._server.config.name)
        if isinstance(reply.body, PlainText):
            return PlainTextResponse(str(reply.body), status_code=reply.status)
        return JSONResponse(reply.body, status_code=reply.status)


def add_mcp_offer(server: "SimpleResourcesServer", seed_session: Handler) -> Handler:
    """Wrap `seed_session` so that its reply says where the tools are, with a token for the session."""

    @functools.wraps(seed_session)
    async def seed(*args: Any, **kwargs: Any) -> Any:
        reply = jsonable_encoder(await seed_session(*args, **kwargs))
        body: Any = next((jsonable_encoder(value) for value in kwargs.values() if isinstance(value, BaseModel)), {})
        claims = {"sid": CURRENT_SESSION.get(), "tools": server.mcp_allowed_tools_for_session(body)}
        token = str(_serializer(server).dumps(claims))
        offer = {"server_name": server.config.name, "url_path": MCP_PATH, "transport": "http"}
        return JSONResponse({**reply, NEMO_GYM_MCP_METADATA_KEY: {**offer, "headers": {TOKEN_HEADER: token}}})

    return seed


def strip_mcp_names(server: "SimpleResourcesServer", verify_fn: Handler) -> Handler:
    """Wrap `verify` so that it sees calls of `mcp__SERVER__TOOL` as calls of `TOOL`; the row keeps the full names."""

    @functools.wraps(verify_fn)
    async def verify(*args: Any, **kwargs: Any) -> Any:
        name, body = next((name, value) for name, value in kwargs.items() if hasattr(value, "response"))
        normalized = _with_plain_names(server, body)
        result = await verify_fn(*args, **{**kwargs, name: normalized})
        if normalized is not body and getattr(result, "response", None) == normalized.response:
            return result.model_copy(update={"response": body.response})
        return result

    return verify


def _with_plain_names(server: "SimpleResourcesServer", body: "BaseVerifyRequest") -> "BaseVerifyRequest":
    def plain(item: Any) -> Any:
        if getattr(item, "type", None) != "function_call" or server.normalize_tool_name(item.name) == item.name:
            return item
        return item.model_copy(update={"name": server.normalize_tool_name(item.name)})

    output = [plain(item) for item in body.response.output]
    if all(new is old for new, old in zip(output, body.response.output, strict=True)):
        return body
    return body.model_copy(update={"response": body.response.model_copy(update={"output": output})})


def _serializer(server: Any) -> URLSafeSerializer:
    return URLSafeSerializer(server.get_session_middleware_key(), salt=TOKEN_SALT)


def _claims(server: Any, token: str | None) -> dict[str, Any] | None:
    try:
        claims = _serializer(server).loads(token) if token else None
    except BadData:
        return None
    return claims if isinstance(claims, dict) and isinstance(claims.get("sid"), str) else None


__getattr__ = missing_from("nemo_gym.mcp_auto_exposure")
