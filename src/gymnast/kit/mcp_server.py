"""An environment's tools as an MCP server of its own (`expose_tools_over_mcp: true`), each call in a rollout's session.

Who opens a session gets a token for it; tools are called with that token. The token is as public as the session cookie
it stands for: it tells sessions apart, it guards nothing.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from gymnast.errors import UserError
from gymnast.kit.mcp_tools import answer_mcp
from gymnast.kit.tools import Tool
from gymnast.types.task import PARAMS
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
    """Answers MCP clients of one environment."""

    def __init__(self, name: str, cookie_name: str, tools: Mapping[str, Tool], handle: Handle) -> None:
        """`handle` answers a request as the environment would over HTTP."""
        self._name = name
        self._cookie_name = cookie_name
        self._tools = tools
        self._handle = handle
        self._tokens = _serializer(cookie_name)

    def offer(self, session_id: str, row: JsonObject) -> JsonObject:
        """What the reply of /seed_session says: where the tools are, and the token of the session.

        A row that declares tools of this environment limits the token to them.
        """
        params = row.get(PARAMS)
        declared = (params.get("tools") if isinstance(params, dict) else None) or ()
        names = [tool["name"] for tool in declared if isinstance(tool, dict) and tool.get("name") in self._tools]
        token = str(self._tokens.dumps({"sid": session_id, "tools": names or None}))
        return {"server_name": self._name, "url_path": PATH, "transport": "http", "headers": {TOKEN_HEADER: token}}

    async def answer(self, request: Request) -> Reply:
        """Answer one message of a client."""
        claims = self._claims(request.headers.get(TOKEN_HEADER.lower()))
        allowed = claims.get("tools") if claims else None
        tools = [tool for name, tool in self._tools.items() if allowed is None or name in allowed]

        async def call(name: str, arguments: Any) -> Reply:
            if claims is None:
                return Reply(401, {"detail": f"a tool is called with the session's token in {TOKEN_HEADER}"})
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


def plain_tool_names(response: JsonObject) -> JsonObject:
    """A response whose calls of `mcp__SERVER__TOOL` are calls of `TOOL`: itself, or a copy."""
    found = [_NAME.fullmatch(item.get("name", "")) for item in response["output"] if _is_call(item)]
    if not any(found):
        return response
    return {**response, "output": [_plain(item) for item in response["output"]]}


def _plain(item: JsonObject) -> JsonObject:
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
