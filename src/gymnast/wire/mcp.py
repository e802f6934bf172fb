"""An environment's tools over MCP: the part of streamable HTTP that agents need, one JSON reply per request.

Only tools; no sessions, server-sent events or server notifications. The gateway provides the transport.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

from gymnast.wire.message import PlainText, Reply

if TYPE_CHECKING:
    from gymnast.types.json import JsonObject

CallTool = Callable[[str, Any], Awaitable[Reply]]
_PROTOCOL_VERSION: Final = "2025-06-18"
_INVALID_REQUEST, _NO_METHOD, _INVALID_PARAMS = -32600, -32601, -32602


async def answer_mcp(message: Any, tools: Sequence[JsonObject], call: CallTool, *, server_name: str) -> Reply:
    """Answer one JSON-RPC message of an MCP client."""
    if not isinstance(message, dict) or not isinstance(message.get("method"), str):
        return Reply(400, _error(None, _INVALID_REQUEST, "expected a single JSON-RPC request"))
    if "id" not in message:
        return Reply(202, PlainText(""))
    request_id, params = message["id"], message.get("params") or {}
    if message["method"] == "tools/call":
        return await _call_tool(request_id, params, tools, call)
    result: JsonObject
    match message["method"]:
        case "initialize":
            server = {"capabilities": {"tools": {}}, "serverInfo": {"name": server_name, "version": "1"}}
            result = {"protocolVersion": params.get("protocolVersion") or _PROTOCOL_VERSION, **server}
        case "tools/list":
            result = {"tools": [_describe(tool) for tool in tools]}
        case "ping":
            result = {}
        case other:
            return Reply(200, _error(request_id, _NO_METHOD, f"unsupported method '{other}'"))
    return _result(request_id, result)


async def _call_tool(request_id: Any, params: JsonObject, tools: Sequence[JsonObject], call: CallTool) -> Reply:
    name = params.get("name")
    if name not in {tool["name"] for tool in tools}:
        return Reply(200, _error(request_id, _INVALID_PARAMS, f"there is no tool '{name}'"))
    reply = await call(str(name), params.get("arguments") or {})
    text = reply.text() if reply.ok else f"HTTP {reply.status} from POST /{name}: {reply.text()}"
    return _result(request_id, {"content": [{"type": "text", "text": text}], "isError": not reply.ok})


def _describe(tool: JsonObject) -> JsonObject:
    schema = {"type": "object", **(tool.get("parameters") or {})}
    description = {"description": tool["description"]} if tool.get("description") else {}
    return {"name": tool["name"], "inputSchema": schema, **description}


def _result(request_id: Any, result: JsonObject) -> Reply:
    return Reply(200, {"jsonrpc": "2.0", "id": request_id, "result": result})


def _error(request_id: Any, code: int, text: str) -> JsonObject:
    return {"jsonrpc": "2.0", "id": request_id, "error": {"code": code, "message": text}}
