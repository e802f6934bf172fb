"""Create params as the chat messages that renderers and ledgers read, and generations as output items."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from gymnast.wire.dialects.chat_reply import output_items, split_thinking
from gymnast.wire.dialects.chat_request import NotConvertible, chat_request, json_in_metadata

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from gymnast.tokens.rendering import Said
    from gymnast.types.items import CreateParams, Item
    from gymnast.types.json import JsonObject

# What a chat body says that is not the conversation: sampling, which is read elsewhere, or of no effect here.
_HANDLED: Final = frozenset(
    {"messages", "tools", "metadata", "model", "max_tokens", "temperature", "top_p", "parallel_tool_calls"}
    | {"user", "store", "service_tier", "tool_choice", "top_logprobs"}
)


@dataclass(frozen=True, slots=True)
class Conversation:
    """What a request says, for a renderer."""

    messages: list[JsonObject]
    tools: list[JsonObject]
    args: JsonObject
    """Arguments of the chat template."""
    extra: JsonObject
    """Sampling parameters that create params have no name for."""
    lost: list[str]
    """Names of what cannot be expressed to an engine that is given ids."""


def conversation_of(params: CreateParams, template_args: Mapping[str, Any], *, developer: str) -> Conversation:
    """Raises NotConvertible for what has no place in a prompt of ids. Developer messages get the role `developer`."""
    body, lost = chat_request(params)
    if body.get("tools") and body.get("tool_choice") not in {None, "auto", "none"}:
        raise NotConvertible(f"tool_choice {body['tool_choice']!r} cannot be enforced on a prompt of ids")
    tools = [] if body.get("tool_choice") == "none" else body.get("tools") or []
    metadata = body.get("metadata") or {}
    args = {**template_args, **json_in_metadata(metadata, "chat_template_kwargs")}
    if "reasoning_effort" in body:
        args["reasoning_effort"] = body["reasoning_effort"]
    rest = sorted(set(body) - _HANDLED - {"reasoning_effort"})
    messages = [_message(message, developer) for message in body["messages"]]
    return Conversation(messages, tools, args, json_in_metadata(metadata, "extra_body"), lost + rest)


def message_of_said(said: Said, call_ids: list[str]) -> JsonObject:
    """A generation as the assistant message that will be in the history."""
    message: JsonObject = {"role": "assistant", "content": said.content or None}
    if said.reasoning:
        message["reasoning_content"] = said.reasoning
    if said.tool_calls:
        message["tool_calls"] = [
            {"id": call_id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
            for call, call_id in zip(said.tool_calls, call_ids, strict=True)
        ]
    return message


def items_of_said(said: Said, message: JsonObject, new_id: Callable[[str], str]) -> list[Item]:
    """A generation as output items; `message` is its message, whose calls have ids."""
    thoughts = [said.reasoning] if said.reasoning else []
    return output_items(thoughts, said.content, message.get("tool_calls") or [], new_id)


def _message(message: JsonObject, developer: str) -> JsonObject:
    """One form for every message: text content, reasoning apart."""
    role, text = message["role"], _text(message.get("content"))
    if role != "assistant":
        kept: JsonObject = {key: message[key] for key in ("tool_call_id", "name") if key in message}
        return {"role": developer if role == "developer" else role, "content": text, **kept}
    thoughts, words = split_thinking(text)
    plain: JsonObject = {"role": role, "content": (words if thoughts else text) or None}
    if thoughts:
        plain["reasoning_content"] = "\n".join(thoughts)
    if message.get("tool_calls"):
        plain["tool_calls"] = message["tool_calls"]
    return plain


def _text(content: Any) -> str:
    if content is None or isinstance(content, str):
        return content or ""
    for part in content:
        if part["type"] != "text":
            raise NotConvertible(f"content of type '{part['type']}' has no place in a prompt of ids")
    return "".join(part["text"] for part in content)
