"""Requests to Anthropic's Messages API from create params, and its replies as response objects. Pure; ids come in.

The order of blocks within a turn is kept, and thinking goes back exactly as it came, with its signature. What the API
cannot take is refused, or named in `lost`.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from gymnast.types.responses import make_response, make_usage, reasoning_texts
from gymnast.wire.dialects.chat_requests import NotConvertible, read_metadata_json
from gymnast.wire.dialects.messages_replies import arguments_to_input
from gymnast.wire.dialects.messages_requests import input_to_arguments

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from gymnast.types.items import CreateParams, Item, Response, Usage
    from gymnast.types.json import JsonObject

REDACTED_PREFIX: Final = "rs_redacted_"
"""The id of a reasoning item starts with this if its content is encrypted thinking, not a signature."""
_DATA_URL: Final = re.compile(r"data:([\w.+/-]+);base64,(.*)", re.DOTALL)
_TOOL_CHOICES: Final = {"auto": "auto", "required": "any", "none": "none"}
_SERVICE_TIERS: Final = {"auto": "auto", "default": "standard_only"}
_SAMPLING: Final = ("temperature", "top_p")
_UNSUPPORTED: Final = (
    *("background", "include", "max_tool_calls", "previous_response_id", "prompt", "store", "top_logprobs"),
    "truncation",
)
_RENAMED: Final = {"stop": "stop_sequences"}
_INCOMPLETE: Final = {
    "max_tokens": "max_output_tokens",
    "model_context_window_exceeded": "max_output_tokens",
    "refusal": "content_filter",
}
_NO_PARAMETERS: Final = {"type": "object", "properties": {}}


class BadMessage(ValueError):  # noqa: N818 - the endpoint's mistake
    """The reply is not a message."""


def params_to_messages(params: CreateParams, *, model: str, default_max_tokens: int) -> tuple[JsonObject, list[str]]:
    """The body of a Messages request, and the names of parameters that the API does not have."""
    lost = [name for name in _UNSUPPORTED if params.get(name) not in {None, False}]
    system, messages = _split_input(params, lost)
    if not messages or messages[0]["role"] != "user":
        raise NotConvertible("the Messages API needs a conversation that starts with a user message")
    body: JsonObject = {
        "model": model,
        "max_tokens": params.get("max_output_tokens") or default_max_tokens,
        "messages": messages,
    }
    if system:
        body["system"] = system
    body |= {name: params[name] for name in _SAMPLING if params.get(name) is not None}
    _put_tools(body, params)
    _put_output_config(body, params, lost)
    if params.get("user") is not None:
        body["metadata"] = {"user_id": params["user"]}
    tier = params.get("service_tier")
    if tier is not None and tier not in _SERVICE_TIERS:
        lost.append("service_tier")
    elif tier is not None:
        body["service_tier"] = _SERVICE_TIERS[tier]
    extra = read_metadata_json(params.get("metadata") or {}, "extra_body")
    return body | {_RENAMED.get(name, name): value for name, value in extra.items()}, list(dict.fromkeys(lost))


def message_to_response(
    message: JsonObject, params: CreateParams, *, model: str, created_at: float, new_id: Callable[[str], str]
) -> Response:
    try:
        reason = _INCOMPLETE.get(message.get("stop_reason") or "")
        output = [item for block in message["content"] for item in _block_items(block, new_id)]
        return make_response(
            params,
            output or [_text_item(_EMPTY_TEXT, new_id)],
            response_id=new_id("resp_"),
            created_at=created_at,
            model=model,
            usage=convert_usage(message.get("usage")),
            incomplete={"reason": reason} if reason else None,
        )
    except (KeyError, AttributeError, TypeError, ValueError) as error:
        raise BadMessage(f"the reply is not a message: {type(error).__name__}: {error}") from error


def convert_usage(usage: JsonObject | None) -> Usage | None:
    """Usage as Responses reports it: input includes what was read from the cache and written to it."""
    if not usage:
        return None
    read, written = (int(usage.get(f"cache_{name}_input_tokens") or 0) for name in ("read", "creation"))
    thinking = (usage.get("output_tokens_details") or {}).get("thinking_tokens")
    return make_usage(
        int(usage["input_tokens"]) + read + written,
        int(usage["output_tokens"]),
        cached=read,
        reasoning=int(thinking) if thinking is not None else None,
    )


# --- requests --------------------------------------------------------------------------------------------------------


def _put_tools(body: JsonObject, params: CreateParams) -> None:
    tools: list[Any] = list(params.get("tools") or ())
    if not tools:
        return
    body["tools"] = [_tool(tool) for tool in tools]
    choice = params.get("tool_choice") or "auto"
    if isinstance(choice, str):
        body["tool_choice"] = {"type": _TOOL_CHOICES[choice]}
    elif choice.get("type") == "function":
        body["tool_choice"] = {"type": "tool", "name": choice["name"]}
    else:
        raise NotConvertible(f"tool_choice of type '{choice.get('type')}' has no counterpart in the Messages API")
    if params.get("parallel_tool_calls") is False and body["tool_choice"]["type"] != "none":
        body["tool_choice"]["disable_parallel_tool_use"] = True
    elif body["tool_choice"] == {"type": "auto"}:
        del body["tool_choice"]


def _tool(tool: JsonObject) -> JsonObject:
    if tool.get("type") != "function":
        raise NotConvertible(f"tools of type '{tool.get('type')}' have no counterpart in the Messages API")
    spec: JsonObject = {"name": tool["name"], "input_schema": tool.get("parameters") or _NO_PARAMETERS}
    if tool.get("description"):
        spec["description"] = tool["description"]
    return {**spec, "strict": True} if tool.get("strict") is True else spec


def _put_output_config(body: JsonObject, params: CreateParams, lost: list[str]) -> None:
    config: JsonObject = {}
    reasoning = params.get("reasoning") or {}
    if reasoning.get("effort") is not None:
        config["effort"] = reasoning["effort"]
    lost += [f"reasoning.{name}" for name, value in reasoning.items() if name != "effort" and value is not None]
    text = params.get("text") or {}
    output_format = text.get("format") or {"type": "text"}
    if output_format["type"] == "json_schema":
        config["format"] = {"type": "json_schema", "schema": output_format["schema"]}
    elif output_format["type"] != "text":
        raise NotConvertible(f"text.format of type '{output_format['type']}' has no counterpart in the Messages API")
    if text.get("verbosity") is not None:
        lost.append("text.verbosity")
    if config:
        body["output_config"] = config


def _split_input(params: CreateParams, lost: list[str]) -> tuple[str, list[JsonObject]]:
    """The system prompt, and the turns. The API has one system prompt: later ones are moved to its end."""
    texts = [params["instructions"]] if params.get("instructions") else []
    source: Any = params["input"]
    items: list[JsonObject] = [{"role": "user", "content": source}] if isinstance(source, str) else list(source)
    conversation: list[JsonObject] = []
    for item in items:
        if item.get("role") in {"system", "developer"} and item.get("type", "message") == "message":
            texts.append(_plain_text(item["content"]))
            if conversation:
                lost.append("the position of a system message")
        else:
            conversation.append(item)
    return "\n\n".join(text for text in texts if text), _turns(conversation, lost)


def _turns(items: Iterable[JsonObject], lost: list[str]) -> list[JsonObject]:
    """Alternating turns: what follows each other from one side becomes one message, as the API wants it."""
    turns: list[JsonObject] = []
    for item in items:
        role, blocks = _item_blocks(item, lost)
        if not blocks:
            continue
        if turns and turns[-1]["role"] == role:
            turns[-1]["content"] += blocks
        else:
            turns.append({"role": role, "content": blocks})
    for turn in turns:
        if turn["role"] == "user":  # results come first in the turn after the calls
            turn["content"].sort(key=lambda block: block["type"] != "tool_result")
    _strip_prefill(turns)
    return turns


def _strip_prefill(turns: list[JsonObject]) -> None:
    """The API refuses a last assistant turn that ends in blanks."""
    if turns and turns[-1]["role"] == "assistant" and turns[-1]["content"][-1]["type"] == "text":
        last = turns[-1]["content"][-1]
        last["text"] = last["text"].rstrip()


def _item_blocks(item: JsonObject, lost: list[str]) -> tuple[str, list[JsonObject]]:
    kind = item.get("type", "message")
    if kind == "message":
        role = "assistant" if item["role"] == "assistant" else "user"
        return role, list(_content_blocks(item["content"]))
    if kind == "reasoning":
        return "assistant", list(_thinking_blocks(item, lost))
    if kind == "function_call":
        call = {"id": _call_id(item["call_id"]), "name": item["name"], "input": arguments_to_input(item["arguments"])}
        return "assistant", [{"type": "tool_use", **call}]
    if kind == "function_call_output":
        result: JsonObject = {"type": "tool_result", "tool_use_id": _call_id(item["call_id"])}
        content = list(_content_blocks(item["output"]))
        return "user", [{**result, "content": content} if content else result]
    raise NotConvertible(f"items of type '{kind}' have no counterpart in the Messages API")


def _thinking_blocks(item: JsonObject, lost: list[str]) -> Iterator[JsonObject]:
    """Thinking as it came. The API accepts only thinking that it signed itself."""
    signature = item.get("encrypted_content")
    if not signature:
        lost.append("reasoning without a signature")
    elif str(item.get("id") or "").startswith(REDACTED_PREFIX):
        yield {"type": "redacted_thinking", "data": signature}
    else:
        yield {"type": "thinking", "thinking": "".join(reasoning_texts(item)), "signature": signature}


def _content_blocks(content: Any) -> Iterator[JsonObject]:
    """Texts, images and documents. Empty texts are left out: the API refuses them."""
    if isinstance(content, str):
        content = [{"type": "input_text", "text": content}]
    for part in content:
        kind = part.get("type")
        if kind in {"input_text", "output_text", "refusal"}:
            text = part.get("text") or part.get("refusal") or ""
            if text.strip():
                yield {"type": "text", "text": text}
        elif kind == "input_image" and part.get("image_url"):
            yield {"type": "image", "source": _source(part["image_url"])}
        elif kind == "input_file" and (part.get("file_data") or part.get("file_url")):
            yield {"type": "document", "source": _source(part.get("file_data") or part["file_url"])}
        else:
            raise NotConvertible(f"content of type '{kind}' in this form has no counterpart in the Messages API")


def _source(url: str) -> JsonObject:
    match = _DATA_URL.fullmatch(url)
    if match is not None:
        return {"type": "base64", "media_type": match[1], "data": match[2]}
    if url.startswith(("http://", "https://")):
        return {"type": "url", "url": url}
    raise NotConvertible("expected an image or file as a data: URL with base64, or as an http(s):// address")


def _call_id(call_id: str) -> str:
    """Ids of calls that other servers made may have signs that the API refuses."""
    return re.sub(r"[^a-zA-Z0-9_-]", "_", call_id) or "call"


def _plain_text(content: Any) -> str:
    if isinstance(content, str):
        return content
    if any(part.get("type") not in {"input_text", "output_text"} for part in content):
        raise NotConvertible("a system message may contain only text")
    return "\n\n".join(part["text"] for part in content)


# --- replies ---------------------------------------------------------------------------------------------------------

_EMPTY_TEXT: Final = {"text": ""}


def _block_items(block: JsonObject, new_id: Callable[[str], str]) -> Iterator[Item]:
    match block["type"]:
        case "text":
            yield _text_item(block, new_id)
        case "thinking":
            summary: Any = [{"type": "summary_text", "text": block["thinking"]}] if block["thinking"] else []
            signature = block.get("signature") or None
            yield {"id": new_id("rs_"), "summary": summary, "type": "reasoning", "encrypted_content": signature}
        case "redacted_thinking":
            data = block["data"]
            yield {"id": new_id(REDACTED_PREFIX), "summary": [], "type": "reasoning", "encrypted_content": data}
        case "tool_use":
            arguments = input_to_arguments(block["input"])
            call_id = str(block["id"])
            yield {
                "arguments": arguments,
                "call_id": call_id,
                "name": str(block["name"]),
                "type": "function_call",
                "id": call_id,
                "status": "completed",
            }
        case kind:
            raise BadMessage(f"unknown content block '{kind}'")


def _text_item(block: JsonObject, new_id: Callable[[str], str]) -> Item:
    part: JsonObject = {"annotations": [], "text": str(block["text"]), "type": "output_text", "logprobs": None}
    item: JsonObject = {"id": new_id("msg_"), "content": [part], "role": "assistant", "status": "completed"}
    return {**item, "type": "message"}
