"""Makes and reads Responses objects: the full object around some output, usage over turns, the text of items."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gymnast.types.items import CREATE_PARAMS_DEFAULTS
from gymnast.types.usage import add_known

if TYPE_CHECKING:
    from gymnast.types.items import CreateParams, Item, Response, Usage
    from gymnast.types.json import JsonObject

_RESPONSE_DEFAULTS: dict[str, Any] = {
    "id": None,
    "created_at": None,
    "error": None,
    "incomplete_details": None,
    "instructions": None,
    "metadata": None,
    "model": None,
    "object": "response",
    "output": None,
    "parallel_tool_calls": True,
    "temperature": None,
    "tool_choice": "auto",
    "tools": [],
    "top_p": None,
    "background": None,
    "conversation": None,
    "max_output_tokens": None,
    "max_tool_calls": None,
    "previous_response_id": None,
    "prompt": None,
    "prompt_cache_key": None,
    "reasoning": None,
    "safety_identifier": None,
    "service_tier": None,
    "status": None,
    "text": None,
    "top_logprobs": None,
    "truncation": None,
    "usage": None,
    "user": None,
}
"""Every field of a response object, in the order in which they are sent."""

_ECHOED = (frozenset(CREATE_PARAMS_DEFAULTS) & frozenset(_RESPONSE_DEFAULTS)) - {"model"}


def make_response(
    params: CreateParams,
    output: list[Item],
    *,
    response_id: str,
    created_at: float,
    model: str,
    usage: Usage | None,
    incomplete: JsonObject | None = None,
) -> Response:
    """A full response object in the contract's field order, echoing the request's parameters."""
    response: dict[str, Any] = {
        **_RESPONSE_DEFAULTS,
        "id": response_id,
        "created_at": created_at,
        "incomplete_details": incomplete,
        "model": model,
        "output": output,
        "status": "incomplete" if incomplete else "completed",
        "usage": usage,
    }
    response.update({name: value for name, value in params.items() if name in _ECHOED})
    return response  # type: ignore[return-value] # built key by key in the contract's order


def make_usage(
    input_tokens: int, output_tokens: int, *, cached: int | None = None, reasoning: int | None = None
) -> Usage:
    """The `usage` object of one call; unknown details are null."""
    return {
        "input_tokens": input_tokens,
        "input_tokens_details": {"cached_tokens": cached},
        "output_tokens": output_tokens,
        "output_tokens_details": {"reasoning_tokens": reasoning},
        "total_tokens": input_tokens + output_tokens,
    }


def sum_usage(total: Usage | None, more: Usage | None) -> Usage | None:
    """Usage over turns. A detail that any turn lacks is unknown in the sum."""
    if total is None or more is None:
        return total or more
    cached = (total["input_tokens_details"]["cached_tokens"], more["input_tokens_details"]["cached_tokens"])
    reasoning = (total["output_tokens_details"]["reasoning_tokens"], more["output_tokens_details"]["reasoning_tokens"])
    return {
        "input_tokens": total["input_tokens"] + more["input_tokens"],
        "input_tokens_details": {"cached_tokens": add_known(*cached)},
        "output_tokens": total["output_tokens"] + more["output_tokens"],
        "output_tokens_details": {"reasoning_tokens": add_known(*reasoning)},
        "total_tokens": total["total_tokens"] + more["total_tokens"],
    }


def with_defaults(params: JsonObject) -> JsonObject:
    """Create params with every unset field explicit, as in verify rows."""
    return {**CREATE_PARAMS_DEFAULTS, **params}


def output_items(record: JsonObject) -> list[JsonObject]:
    """The output items of a record, whatever form its response has: agents of others may reply anything."""
    response = record.get("response")
    output = response.get("output") if isinstance(response, dict) else None
    return [item for item in output if isinstance(item, dict)] if isinstance(output, list) else []


def message_text(item: JsonObject) -> str:
    """All text of a message item, whatever form its content has."""
    content = item.get("content")
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else ()  # a server may send anything
    return "".join([part["text"] for part in parts if isinstance(part, dict) and isinstance(part.get("text"), str)])


def reasoning_texts(item: JsonObject) -> list[str]:
    """The texts of a reasoning item: its summary, or the `content` that inference servers use instead."""
    return [part["text"] for part in item["summary"] or item.get("content") or () if isinstance(part.get("text"), str)]


def is_model_turn(item: JsonObject) -> bool:
    """Whether the policy produced this item (an assistant message, a call, reasoning)."""
    kind = item.get("type", "message")
    return kind in {"function_call", "reasoning"} or (kind == "message" and item.get("role") == "assistant")
