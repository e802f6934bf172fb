"""Replies of Anthropic's Messages API: a response object as a message or as events, and errors. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import orjson

from gymnast.types.responses import reasoning_texts
from gymnast.wire.dialects.events import encode_named_events
from gymnast.wire.dialects.messages_requests import INVALID_JSON

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gymnast.types.json import JsonObject
    from gymnast.wire.message import EventStream

_ERRORS: Final = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    422: "invalid_request_error",
    429: "rate_limit_error",
    529: "overloaded_error",
}


def response_to_message(response: JsonObject, *, message_id: str) -> JsonObject:
    usage = response.get("usage") or {}
    return {
        "id": message_id,
        "type": "message",
        "role": "assistant",
        "model": response["model"],
        "content": [block for item in response["output"] for block in _blocks(item)],
        "stop_reason": _stop_reason(response),
        "stop_sequence": None,
        "usage": {"input_tokens": usage.get("input_tokens", 0), "output_tokens": usage.get("output_tokens", 0)},
    }


def make_message_stream(message: JsonObject) -> EventStream:
    """The events that stream the message block by block."""
    return encode_named_events(_events(message))


def make_error_body(status: int, message: str) -> JsonObject:
    """An error as Anthropic's clients expect it."""
    return {"type": "error", "error": {"type": _ERRORS.get(status, "api_error"), "message": message}}


def _blocks(item: JsonObject) -> Iterator[JsonObject]:
    kind = item.get("type", "message")
    if kind == "reasoning":
        signature = item.get("encrypted_content") or ""
        texts = reasoning_texts(item)
        yield from ({"type": "thinking", "thinking": text, "signature": signature} for text in texts)
        if signature and not texts:
            yield {"type": "redacted_thinking", "data": signature}
    elif kind == "function_call":
        tool_input = arguments_to_input(item["arguments"])
        yield {"type": "tool_use", "id": item["call_id"], "name": item["name"], "input": tool_input}
    elif kind == "message":
        content = item["content"]
        texts = [content] if isinstance(content, str) else [part.get("text") or part.get("refusal") for part in content]
        yield from ({"type": "text", "text": text} for text in texts if text)


def arguments_to_input(arguments: str) -> JsonObject:
    """The arguments as an object; anything else is kept verbatim, for the tool to reject."""
    try:
        value: Any = orjson.loads(arguments)
    except orjson.JSONDecodeError:
        return {INVALID_JSON: arguments}
    return value if isinstance(value, dict) else {INVALID_JSON: arguments}


def _stop_reason(response: JsonObject) -> str:
    reason = (response.get("incomplete_details") or {}).get("reason")
    if reason == "max_output_tokens":
        return "max_tokens"
    if reason == "content_filter" or any(_is_refusal(item) for item in response["output"]):
        return "refusal"
    has_calls = any(item.get("type") == "function_call" for item in response["output"])
    return "tool_use" if has_calls else "end_turn"


def _is_refusal(item: JsonObject) -> bool:
    content = item.get("content")
    return isinstance(content, list) and any(part.get("type") == "refusal" for part in content)


def _events(message: JsonObject) -> Iterator[JsonObject]:
    start = {**message, "content": [], "stop_reason": None, "usage": {**message["usage"], "output_tokens": 0}}
    yield {"type": "message_start", "message": start}
    for index, block in enumerate(message["content"]):
        empty, deltas = _parts(block)
        yield {"type": "content_block_start", "index": index, "content_block": empty}
        for delta in deltas:
            yield {"type": "content_block_delta", "index": index, "delta": delta}
        yield {"type": "content_block_stop", "index": index}
    stop = {"stop_reason": message["stop_reason"], "stop_sequence": message["stop_sequence"]}
    yield {"type": "message_delta", "delta": stop, "usage": message["usage"]}
    yield {"type": "message_stop"}


def _parts(block: JsonObject) -> tuple[JsonObject, list[JsonObject]]:
    """An empty block, and the deltas that fill it."""
    if block["type"] == "text":
        return {**block, "text": ""}, [{"type": "text_delta", "text": block["text"]}]
    if block["type"] == "thinking":
        deltas = [{"type": "thinking_delta", "thinking": block["thinking"]}]
        if block["signature"]:
            deltas.append({"type": "signature_delta", "signature": block["signature"]})
        return {**block, "thinking": "", "signature": ""}, deltas
    if block["type"] == "tool_use":
        text = orjson.dumps(block["input"]).decode()
        return {**block, "input": {}}, [{"type": "input_json_delta", "partial_json": text}]
    return block, []
