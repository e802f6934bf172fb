"""A stand-in for Anthropic's Messages API: checks requests as the real one does, and replies from a script."""

from __future__ import annotations

import json
import re
from typing import Any, Final

from gymnast.wire.asgi import Receive, Send, read_body, send_reply
from gymnast.wire.message import Reply

KEY: Final = "sk-ant-secret"
USAGE: Final = {
    "input_tokens": 10,
    "cache_creation_input_tokens": 3,
    "cache_read_input_tokens": 20,
    "output_tokens": 7,
    "service_tier": "standard",
}
_KNOWN: Final = frozenset(
    {"model", "messages", "max_tokens", "system", "temperature", "top_p", "top_k", "stop_sequences", "tools"}
    | {"tool_choice", "thinking", "metadata", "service_tier", "output_config", "cache_control", "stream"}
)
_BLOCKS: Final = {
    "user": {"text", "image", "document", "tool_result"},
    "assistant": {"text", "thinking", "redacted_thinking", "tool_use"},
}


class RefusedError(Exception):
    """The request is not one that the API takes."""


def message(*content: Any, stop_reason: str = "end_turn", **changes: Any) -> dict[str, Any]:
    """A reply. Texts may be given as such."""
    blocks = [{"type": "text", "text": block} if isinstance(block, str) else block for block in content]
    body = {"id": "msg_01", "type": "message", "role": "assistant", "model": "claude", "content": blocks}
    return {**body, "stop_reason": stop_reason, "stop_sequence": None, "usage": USAGE, **changes}


def tool_use(call_id: str, name: str = "look", **tool_input: Any) -> dict[str, Any]:
    return {"type": "tool_use", "id": call_id, "name": name, "input": tool_input}


def error(status: int, kind: str, text: str, **headers: str) -> Reply:
    body = {"type": "error", "error": {"type": kind, "message": text}, "request_id": "req_1"}
    return Reply(status, body, headers=headers)


class MessagesServer:
    """An application for `Bench.listen`. The last reply repeats."""

    def __init__(self, *replies: Any) -> None:
        self.replies = list(replies) or [message("hi")]
        self.asked: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.signatures: set[str] = set()

    async def __call__(self, scope: Any, receive: Receive, send: Send) -> None:
        self.headers.append({name.decode(): value.decode() for name, value in scope["headers"]})
        if scope["method"] == "GET":
            is_known = scope["path"] == "/v1/models" and self.headers[-1].get("x-api-key") == KEY
            await send_reply(send, Reply(200, {"data": []}) if is_known else error(404, "not_found_error", "Not found"))
            return
        body = json.loads(await read_body(receive))
        self.asked.append(body)
        await send_reply(send, self._reply(scope["path"], self.headers[-1], body))

    def _reply(self, path: str, headers: dict[str, str], body: dict[str, Any]) -> Reply:
        if path != "/v1/messages":
            return error(404, "not_found_error", f"Not found: {path}")
        if headers.get("x-api-key") != KEY:
            return error(401, "authentication_error", f"invalid x-api-key: {headers.get('x-api-key')}")
        if "anthropic-version" not in headers:
            return error(400, "invalid_request_error", "anthropic-version: header is required")
        try:
            check_request(body, self.signatures)
        except RefusedError as refused:
            return error(400, "invalid_request_error", str(refused))
        reply = self.replies.pop(0) if len(self.replies) > 1 else self.replies[0]
        if isinstance(reply, Reply):
            return reply
        self.signatures |= {
            block.get("signature") or block["data"] for block in reply.get("content", ()) if "thinking" in block["type"]
        }
        return Reply(200, reply)


def check_request(body: dict[str, Any], signatures: set[str]) -> None:
    """Raise RefusedError for a request that the API would refuse, with a text like its own."""
    for name in ("model", "messages", "max_tokens"):
        _require(name in body, f"{name}: Field required")
    _require(isinstance(body["max_tokens"], int) and body["max_tokens"] > 0, "max_tokens: Input should be positive")
    for name in body.keys() - _KNOWN:
        raise RefusedError(f"{name}: Extra inputs are not permitted")
    _require(0 <= body.get("temperature", 1) <= 1, "temperature: range: 0..1")
    _check_tools(body)
    _check_thinking(body)
    previous: list[str] = []
    for index, turn in enumerate(body["messages"]):
        _require(turn["role"] == ("assistant" if index % 2 else "user"), f"messages.{index}: roles must alternate")
        _require(bool(turn["content"]), f"messages.{index}: all messages must have non-empty content")
        for block in turn["content"]:
            _check_block(block, turn["role"], f"messages.{index}", signatures)
        previous = _check_results(turn, previous, index)
    _require(not previous, "`tool_use` ids were found without `tool_result` blocks immediately after")


def _check_tools(body: dict[str, Any]) -> None:
    names = [tool["name"] for tool in body.get("tools", ())]
    for tool in body.get("tools", ()):
        _require(
            tool.keys() <= {"name", "description", "input_schema", "strict", "cache_control"}, "tools: extra inputs"
        )
        _require(tool["input_schema"].get("type") == "object", "tools.input_schema.type: Field required")
        _require(re.fullmatch(r"[a-zA-Z0-9_-]{1,128}", tool["name"]) is not None, "tools.name: bad name")
    choice = body.get("tool_choice")
    if choice is not None:
        _require(bool(names), "tool_choice may only be specified while providing tools")
        _require(choice["type"] in {"auto", "any", "tool", "none"}, "tool_choice: unknown type")
        _require(choice["type"] != "tool" or choice["name"] in names, "tool_choice: Tool not found in provided tools")


def _check_thinking(body: dict[str, Any]) -> None:
    thinking = body.get("thinking") or {"type": "disabled"}
    if thinking["type"] != "enabled":
        return
    _require(1024 <= thinking["budget_tokens"] < body["max_tokens"], "thinking.budget_tokens: < max_tokens")
    _require(body.get("temperature", 1) == 1, "`temperature` may only be set to 1 when thinking is enabled")
    for turn in body["messages"]:
        if turn["role"] == "assistant" and any(block["type"] == "tool_use" for block in turn["content"]):
            _require("thinking" in turn["content"][0]["type"], "expected `thinking` or `redacted_thinking`")


def _check_block(block: dict[str, Any], role: str, where: str, signatures: set[str]) -> None:
    kind = block["type"]
    _require(kind in _BLOCKS[role], f"{where}: {kind} blocks are not permitted in {role} messages")
    if kind == "text":
        _require(bool(block["text"].strip()), f"{where}: text content blocks must be non-empty")
    elif kind == "thinking":
        _require(block["signature"] in signatures, f"{where}: Invalid `signature` in `thinking` block")
    elif kind == "redacted_thinking":
        _require(block["data"] in signatures, f"{where}: Invalid `data` in `redacted_thinking` block")
    elif kind == "tool_use":
        _require(re.fullmatch(r"[a-zA-Z0-9_-]+", block["id"]) is not None, f"{where}: tool_use.id: bad pattern")
        _require(isinstance(block["input"], dict), f"{where}: tool_use.input: Input should be a valid dictionary")
    elif kind in {"image", "document"}:
        _require(block["source"]["type"] in {"base64", "url"}, f"{where}: source.type")
    elif kind == "tool_result":
        for inner in block.get("content", ()):
            _check_block(inner, "user", where, signatures)


def _check_results(turn: dict[str, Any], previous: list[str], index: int) -> list[str]:
    """The calls of this turn. Results come first in the turn after the calls, one for each."""
    kinds = [block["type"] for block in turn["content"]]
    results = [block["tool_use_id"] for block in turn["content"] if block["type"] == "tool_result"]
    _require(kinds[: len(results)] == ["tool_result"] * len(results), f"messages.{index}: results must come first")
    _require(not set(results) - set(previous), f"messages.{index}: unexpected `tool_use_id` found in `tool_result`")
    _require(not set(previous) - set(results), f"messages.{index}: tool_use ids without tool_result blocks: {previous}")
    return [block["id"] for block in turn["content"] if block["type"] == "tool_use"]


def _require(holds: bool, text: str) -> None:  # noqa: FBT001 - reads like an assertion
    if not holds:
        raise RefusedError(text)
