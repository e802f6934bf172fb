"""An environment's tools over MCP (streamable HTTP, one JSON answer for each request): what agents' clients need of it.

Only tools are offered; no sessions, no server-sent events, no notifications of ours. The transport is the gateway's.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

from gymnast.wire.message import PlainText, Reply

if TYPE_CHECKING:
    from gymnast.types.json import JsonObject

CallTool = Callable[[str, Any], Awaitable[Reply]]
_LATEST: Final = "2025-06-18"
_INVALID_REQUEST, _NO_METHOD, _INVALID_PARAMS = -32600, -32601, -32602


async def answer_mcp(message: Any, tools: Sequence[JsonObject], call: CallTool, *, server_name: str) -> Reply:
    """Answer one JSON-RPC message of an MCP client."""
    if not isinstance(message, dict) or not isinstance(message.get("method"), str):
        return Reply(400, _error(None, _INVALID_REQUEST, "a single JSON-RPC request is expected"))
    if "id" not in message:
        return Reply(202, PlainText(""))
    ident, params = message["id"], message.get("params") or {}
    if message["method"] == "tools/call":
        return await _called(ident, params, tools, call)
    result: JsonObject
    match message["method"]:
        case "initialize":
            offered = {"capabilities": {"tools": {}}, "serverInfo": {"name": server_name, "version": "1"}}
            result = {"protocolVersion": params.get("protocolVersion") or _LATEST, **offered}
        case "tools/list":
            result = {"tools": [_described(tool) for tool in tools]}
        case "ping":
            result = {}
        case other:
            return Reply(200, _error(ident, _NO_METHOD, f"'{other}' is not offered here"))
    return _result(ident, result)


async def _called(ident: Any, params: JsonObject, tools: Sequence[JsonObject], call: CallTool) -> Reply:
    name = params.get("name")
    if name not in {tool["name"] for tool in tools}:
        return Reply(200, _error(ident, _INVALID_PARAMS, f"there is no tool '{name}'"))
    reply = await call(str(name), params.get("arguments") or {})
    text = reply.text() if reply.ok else f"HTTP {reply.status} from POST /{name}: {reply.text()}"
    return _result(ident, {"content": [{"type": "text", "text": text}], "isError": not reply.ok})


def _described(tool: JsonObject) -> JsonObject:
    schema = tool.get("parameters") or {}
    found = {"name": tool["name"], "inputSchema": {"type": "object", **schema}}
    return {**found, "description": tool["description"]} if tool.get("description") else found


def _result(ident: Any, result: JsonObject) -> Reply:
    return Reply(200, {"jsonrpc": "2.0", "id": ident, "result": result})


def _error(ident: Any, code: int, text: str) -> JsonObject:
    return {"jsonrpc": "2.0", "id": ident, "error": {"code": code, "message": text}}
