"""Requests of Anthropic's Messages API as Responses create params. Pure functions over data.

Sampling parameters without a name in create params go to `metadata.extra_body`, like those of chat. Parameters that no
model server supports are reported to the caller, and anything that would change the conversation is rejected.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import orjson

from gymnast.wire.dialects.chat_requests import (
    NotConvertible,
    make_reasoning_item,
    number_reasoning_items,
    with_extra_body,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gymnast.types.json import JsonObject

INVALID_JSON: Final = "_invalid_json"
"""The only key of a tool input whose original arguments are not a JSON object."""
_SAME_NAME: Final = ("model", "temperature", "top_p")
_TRANSLATED: Final = frozenset(
    {"messages", "system", "max_tokens", "tools", "tool_choice", "metadata", "output_config", "service_tier"}
    | {"top_k", "stop_sequences", "thinking", "stream", *_SAME_NAME}
)
# Hints that do not affect the response.
_NEUTRAL: Final = frozenset({"cache_control", "diagnostics"})
_TOOL_CHOICES: Final = {"auto": "auto", "any": "required", "none": "none"}
_SERVICE_TIERS: Final = {"auto": "auto", "standard_only": "default"}


@dataclass(slots=True)
class MessagesRequest:
    """Create params, not validated yet, and the names of dropped parameters."""

    params: JsonObject
    ignored: list[str]


def messages_to_params(body: JsonObject) -> MessagesRequest:
    """Convert a Messages request to create params."""
    ignored = sorted(name for name in body.keys() - _TRANSLATED - _NEUTRAL if body[name] is not None)
    items = (item for message in body["messages"] for item in _items(message, ignored))
    params: JsonObject = {"input": number_reasoning_items(items)}
    params |= {name: body[name] for name in _SAME_NAME if body.get(name) is not None}
    if body.get("system"):
        params["instructions"] = _system_text(body["system"])
    if body.get("max_tokens") is not None:
        params["max_output_tokens"] = body["max_tokens"]
    if body.get("service_tier") is not None:
        params["service_tier"] = _SERVICE_TIERS.get(body["service_tier"], body["service_tier"])
    _put_tools(params, body)
    _put_output_config(params, body.get("output_config") or {}, ignored)
    _put_metadata(params, body.get("metadata") or {}, ignored)
    if (body.get("thinking") or {}).get("type", "disabled") != "disabled":
        ignored.append("thinking")  # thinking and its budget are configured at the model server
    sampling = {"top_k": body.get("top_k"), "stop": body.get("stop_sequences")}
    extra = {name: value for name, value in sampling.items() if value is not None}
    return MessagesRequest(with_extra_body(params, extra), list(dict.fromkeys(ignored)))


def _put_tools(params: JsonObject, body: JsonObject) -> None:
    if body.get("tools"):
        params["tools"] = [_function_tool(tool) for tool in body["tools"]]
    choice = body.get("tool_choice")
    if choice is None:
        return
    if choice["type"] == "tool":
        params["tool_choice"] = {"type": "function", "name": choice["name"]}
    elif choice["type"] in _TOOL_CHOICES:
        params["tool_choice"] = _TOOL_CHOICES[choice["type"]]
    else:
        raise NotConvertible(f"tool_choice of type '{choice['type']}' has no counterpart in Responses")
    if choice.get("disable_parallel_tool_use") is not None:
        params["parallel_tool_calls"] = not choice["disable_parallel_tool_use"]


def _function_tool(tool: JsonObject) -> JsonObject:
    kind = tool.get("type") or "custom"
    if kind != "custom":
        raise NotConvertible(f"Anthropic's server-side tools such as '{kind}' are not supported")
    function = {"type": "function", "name": tool["name"], "parameters": tool["input_schema"]}
    description = {"description": tool["description"]} if tool.get("description") is not None else {}
    return {**function, "strict": tool.get("strict"), **description}


def _put_output_config(params: JsonObject, config: JsonObject, ignored: list[str]) -> None:
    if config.get("effort") is not None:
        params["reasoning"] = {"effort": config["effort"]}
    output_format = config.get("format")
    if output_format is not None:
        params["text"] = {"format": {"name": "output", **output_format}}
    ignored += [f"output_config.{key}" for key in sorted(config.keys() - {"effort", "format"})]


def _put_metadata(params: JsonObject, metadata: JsonObject, ignored: list[str]) -> None:
    if metadata.get("user_id") is not None:
        params["user"] = metadata["user_id"]
    ignored += [f"metadata.{key}" for key in sorted(metadata.keys() - {"user_id"})]


# --- messages --------------------------------------------------------------------------------------------------------


def _items(message: JsonObject, ignored: list[str]) -> Iterator[JsonObject]:
    role, content = message["role"], message["content"]
    if isinstance(content, str):
        yield {"type": "message", "role": role, "content": content}
    elif role == "assistant":
        for block in content:
            yield _assistant_item(block)
    else:
        yield from _user_items(role, content, ignored)


def _assistant_item(block: JsonObject) -> JsonObject:
    kind = block["type"]
    if kind == "text":
        return {"type": "message", "role": "assistant", "content": block["text"]}
    if kind == "thinking":
        return {**make_reasoning_item(block["thinking"]), "encrypted_content": block.get("signature") or None}
    if kind == "redacted_thinking":
        return {"type": "reasoning", "summary": [], "encrypted_content": block["data"]}
    if kind == "tool_use":
        arguments = input_to_arguments(block["input"])
        return {"type": "function_call", "call_id": block["id"], "name": block["name"], "arguments": arguments}
    raise NotConvertible(f"assistant blocks of type '{kind}' have no counterpart in Responses")


def input_to_arguments(tool_input: JsonObject) -> str:
    """The arguments of a call as the model wrote them, except for the formatting of the JSON."""
    if tool_input.keys() == {INVALID_JSON}:
        return str(tool_input[INVALID_JSON])
    return orjson.dumps(tool_input).decode()


def _user_items(role: str, content: list[JsonObject], ignored: list[str]) -> Iterator[JsonObject]:
    """Adjacent texts and images become one message; each tool result becomes an item."""
    parts: list[JsonObject] = []
    for block in content:
        if block["type"] != "tool_result":
            parts.append(_input_part(block))
            continue
        if parts:
            yield {"type": "message", "role": role, "content": parts}
            parts = []
        if block.get("is_error"):
            ignored.append("tool_result.is_error")
        output = _tool_output(block.get("content"))
        yield {"type": "function_call_output", "call_id": block["tool_use_id"], "output": output}
    if parts:
        yield {"type": "message", "role": role, "content": parts}


def _input_part(block: JsonObject) -> JsonObject:
    if block["type"] == "text":
        return {"type": "input_text", "text": block["text"]}
    source = block.get("source") or {}
    if block["type"] == "image" and source.get("type") == "base64":
        url = f"data:{source['media_type']};base64,{source['data']}"
        return {"type": "input_image", "image_url": url, "detail": "auto"}
    if block["type"] == "image" and source.get("type") == "url":
        return {"type": "input_image", "image_url": source["url"], "detail": "auto"}
    raise NotConvertible(f"blocks of type '{block['type']}' from '{source.get('type')}' have no counterpart")


def _tool_output(content: Any) -> Any:
    if content is None or isinstance(content, str):
        return content or ""
    if any(block["type"] != "text" for block in content):
        raise NotConvertible("tool results other than text have no counterpart in Responses")
    return [{"type": "input_text", "text": block["text"]} for block in content]


def _system_text(system: Any) -> str:
    return system if isinstance(system, str) else "\n\n".join(block["text"] for block in system)
