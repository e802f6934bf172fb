"""An environment's tools as an MCP server (`expose_tools_over_mcp: true`), each call in a rollout's session.

Seeding a session returns a token, with which its tools are called. Like the session cookie that it stands for, the
token identifies a session; it does not protect it.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from gymnast.errors import UserError
from gymnast.kit.tools import Tool
from gymnast.types.task import PARAMS
from gymnast.wire.mcp import answer_mcp
from gymnast.wire.message import Reply, Request

if TYPE_CHECKING:
    from itsdangerous import URLSafeSerializer

    from gymnast.types.json import JsonObject

TOKEN_HEADER: Final = "X-NeMo-Gym-Session-Token"
PATH: Final = "/mcp"
TOKEN_SALT: Final = "nemo-gym-mcp-session-token"
_NAME: Final = re.compile(r"mcp__.+?__(.+)")

Handle = Callable[[Request], Awaitable[Reply]]


class McpServer:
    """Serves the MCP clients of one environment."""

    def __init__(self, name: str, cookie_name: str, tools: Mapping[str, Tool], handle: Handle) -> None:
        """`handle` answers a request as the environment does over HTTP."""
        self._name = name
        self._cookie_name = cookie_name
        self._tools = tools
        self._handle = handle
        self._tokens = _serializer(cookie_name)

    def connection(self, session_id: str, row: JsonObject) -> JsonObject:
        """How to connect, for the reply of /seed_session: the path and the session's token.

        If the row declares tools of this environment, the token is limited to them.
        """
        params = row.get(PARAMS)
        declared = (params.get("tools") if isinstance(params, dict) else None) or ()
        names = [tool["name"] for tool in declared if isinstance(tool, dict) and tool.get("name") in self._tools]
        token = str(self._tokens.dumps({"sid": session_id, "tools": names or None}))
        return {"server_name": self._name, "url_path": PATH, "transport": "http", "headers": {TOKEN_HEADER: token}}

    async def handle(self, request: Request) -> Reply:
        """Answer one message of a client."""
        claims = self._claims(request.headers.get(TOKEN_HEADER.lower()))
        allowed = claims.get("tools") if claims else None
        tools = [tool for name, tool in self._tools.items() if allowed is None or name in allowed]

        async def call(name: str, arguments: Any) -> Reply:
            if claims is None:
                return Reply(401, {"detail": f"missing or invalid session token in {TOKEN_HEADER}"})
            cookies = {self._cookie_name: claims["sid"]}
            return await self._handle(Request("POST", f"/{name}", arguments, cookies, rollout_id=request.rollout_id))

        listed: list[Any] = [tool.declaration() for tool in tools]
        return await answer_mcp(request.body, listed, call, server_name=self._name)

    def _claims(self, token: str | None) -> JsonObject | None:
        from itsdangerous import BadData  # noqa: PLC0415 - an extra

        try:
            claims = self._tokens.loads(token) if token else None
        except BadData:
            return None
        return claims if isinstance(claims, dict) and isinstance(claims.get("sid"), str) else None


def strip_mcp_prefixes(response: JsonObject) -> JsonObject:
    """The response with calls of `mcp__SERVER__TOOL` renamed to `TOOL`; itself if there are none."""
    matches = [_NAME.fullmatch(item.get("name", "")) for item in response["output"] if _is_call(item)]
    if not any(matches):
        return response
    return {**response, "output": [_strip_prefix(item) for item in response["output"]]}


def _strip_prefix(item: JsonObject) -> JsonObject:
    match = _NAME.fullmatch(item.get("name", "")) if _is_call(item) else None
    return {**item, "name": match[1]} if match else item


def _is_call(item: JsonObject) -> bool:
    return item.get("type") == "function_call"


def _serializer(secret: str) -> URLSafeSerializer:
    try:
        from itsdangerous import URLSafeSerializer  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise UserError(
            "expose_tools_over_mcp needs the package itsdangerous", next="pip install 'gymnast[mcp]'"
        ) from error
    return URLSafeSerializer(secret, salt=TOKEN_SALT)
