"""Create params as chat messages for renderers and ledgers, and generations as output items."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import orjson

from gymnast.wire.dialects.chat_replies import make_output_items, split_thinking
from gymnast.wire.dialects.chat_requests import NotConvertible, params_to_chat, read_metadata_json

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from gymnast.tokens.rendering import ParsedTurn
    from gymnast.types.items import CreateParams, Item
    from gymnast.types.json import JsonObject

# Parameters of a chat body outside the conversation: sampling, which is read elsewhere, or without effect here.
_HANDLED: Final = frozenset(
    {"messages", "tools", "metadata", "model", "max_tokens", "temperature", "top_p", "parallel_tool_calls"}
    | {"user", "store", "service_tier", "tool_choice", "top_logprobs"}
)


@dataclass(frozen=True, slots=True)
class RenderRequest:
    """A request in the form that renderers take."""

    messages: list[JsonObject]
    tools: list[JsonObject]
    args: JsonObject
    """Arguments of the chat template."""
    extra: JsonObject
    """Sampling parameters without a name in create params."""
    dropped: list[str]
    """Names of parameters that a token backend cannot express."""


def make_render_request(params: CreateParams, template_args: Mapping[str, Any], *, developer: str) -> RenderRequest:
    """Raises NotConvertible for what a prompt of ids cannot express. Developer messages get the role `developer`."""
    body, dropped = params_to_chat(params)
    if body.get("tools") and body.get("tool_choice") not in {None, "auto", "none"}:
        raise NotConvertible(f"tool_choice {body['tool_choice']!r} cannot be enforced on a prompt of ids")
    tools = [] if body.get("tool_choice") == "none" else [_tool(tool) for tool in body.get("tools") or ()]
    metadata = body.get("metadata") or {}
    args = {**template_args, **read_metadata_json(metadata, "chat_template_kwargs")}
    if "reasoning_effort" in body:
        args["reasoning_effort"] = body["reasoning_effort"]
    rest = sorted(set(body) - _HANDLED - {"reasoning_effort"})
    messages = [_message(message, developer) for message in body["messages"]]
    return RenderRequest(messages, tools, args, read_metadata_json(metadata, "extra_body"), dropped + rest)


def make_history(params: CreateParams) -> tuple[list[JsonObject], list[JsonObject]]:
    """The messages and tools of a request that a server renders, to compare with others. Images become text."""
    body, _ = params_to_chat(params)
    messages = [{**message, "content": _describe(message.get("content"))} for message in body["messages"]]
    return [_message(message, "developer") for message in messages], body.get("tools") or []


def turn_to_message(turn: ParsedTurn, call_ids: list[str]) -> JsonObject:
    """A generation as the assistant message for the history."""
    message: JsonObject = {"role": "assistant", "content": turn.content or None}
    if turn.reasoning:
        message["reasoning_content"] = turn.reasoning
    if turn.tool_calls:
        message["tool_calls"] = [
            {"id": call_id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
            for call, call_id in zip(turn.tool_calls, call_ids, strict=True)
        ]
    return message


def turn_to_items(turn: ParsedTurn, message: JsonObject, new_id: Callable[[str], str]) -> list[Item]:
    """A generation as output items. `message` is its assistant message, whose calls have ids."""
    thoughts = [turn.reasoning] if turn.reasoning else []
    return make_output_items(thoughts, turn.content, message.get("tool_calls") or [], new_id)


def _tool(tool: JsonObject) -> JsonObject:
    """A tool as vLLM passes it to chat templates: these keys in this order, null where the request has no value.

    Templates write tools as JSON, so that a policy that is trained and served must see the same keys everywhere.
    """
    function = tool["function"]
    return {"type": "function", "function": {key: function.get(key) for key in ("name", "description", "parameters")}}


def _message(message: JsonObject, developer: str) -> JsonObject:
    """Normalise a message: text content, reasoning in a separate field."""
    role, text = message["role"], _text(message.get("content"))
    if role != "assistant":
        extra: JsonObject = {key: message[key] for key in ("tool_call_id", "name") if key in message}
        return {"role": developer if role == "developer" else role, "content": text, **extra}
    thoughts, content = split_thinking(text)
    normalised: JsonObject = {"role": role, "content": content or None}
    if thoughts:
        normalised["reasoning_content"] = "\n".join(thoughts)
    if message.get("tool_calls"):
        normalised["tool_calls"] = message["tool_calls"]
    return normalised


def _describe(content: Any) -> str:
    if content is None or isinstance(content, str):
        return content or ""
    return "".join(part["text"] if part["type"] == "text" else orjson.dumps(part).decode() for part in content)


def _text(content: Any) -> str:
    if content is None or isinstance(content, str):
        return content or ""
    for part in content:
        if part["type"] != "text":
            raise NotConvertible(f"content of type '{part['type']}' cannot be part of a prompt of ids")
    return "".join(part["text"] for part in content)
