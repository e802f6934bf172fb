"""The tool calls, the reasoning and the end of a model's reply, whatever its dialect. Malformed parts are skipped."""

from __future__ import annotations

from typing import Any, NamedTuple

import orjson


class ReplyParts(NamedTuple):
    """What a captured call says of its reply."""

    tool_calls: list[dict[str, Any]]
    """Each with `call_id`, `name` and `arguments` (an object, or `_raw` if they are not JSON)."""
    reasoning: str | None
    finish_reason: str | None


def parse_reply(reply: dict[str, Any]) -> ReplyParts:
    """Parse a reply of the Responses, Chat Completions or Messages API."""
    calls: list[dict[str, Any]] = []
    thoughts: list[Any] = []
    messages = [_dict(choice.get("message")) for choice in _dicts(reply.get("choices"))]
    for item in _dicts(reply.get("output")):
        if item.get("type") == "function_call":
            calls.append(_call(item.get("call_id") or item.get("id"), item.get("name"), item.get("arguments")))
        elif item.get("type") == "reasoning":
            thoughts += [part.get("text") for part in _dicts(item.get("summary"))]
    for message in messages:
        for call in _dicts(message.get("tool_calls")):
            function = _dict(call.get("function"))
            calls.append(_call(call.get("id"), function.get("name"), function.get("arguments")))
        thoughts.append(message.get("reasoning_content") or message.get("reasoning"))
    for block in _dicts(reply.get("content")):
        if block.get("type") == "tool_use":
            calls.append(_call(block.get("id"), block.get("name"), block.get("input")))
        elif block.get("type") in ("thinking", "redacted_thinking"):
            thoughts.append(block.get("thinking"))
    texts = [text for text in thoughts if isinstance(text, str) and text]
    return ReplyParts(calls, "\n".join(texts) or None, _finish_reason(reply))


def _finish_reason(reply: dict[str, Any]) -> str | None:
    choice = next(iter(_dicts(reply.get("choices"))), {})
    details = _dict(reply.get("incomplete_details"))
    reasons = (reply.get("stop_reason"), choice.get("finish_reason"), details.get("reason"))
    return next((reason for reason in reasons if isinstance(reason, str)), None)


def _call(call_id: Any, name: Any, arguments: Any) -> dict[str, Any]:
    return {"call_id": call_id, "name": name, "arguments": _arguments(arguments)}


def _arguments(arguments: Any) -> Any:
    if not isinstance(arguments, str):
        return _dict(arguments)
    try:
        return orjson.loads(arguments)
    except orjson.JSONDecodeError:
        return {"_raw": arguments}


def _dict(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _dicts(value: Any) -> list[dict[str, Any]]:
    return [part for part in value if isinstance(part, dict)] if isinstance(value, list) else []
