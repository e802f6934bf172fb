"""Requests: Responses create params to Chat Completions, and back. Pure functions over data."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final, cast

import orjson

from gymnast.types.items import ROUTED_EXPERTS, TRAINING_FIELDS
from gymnast.types.responses import is_model_turn, message_text, reasoning_texts

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from gymnast.types.items import CreateParams, Item
    from gymnast.types.json import JsonObject

# Create params with the same name in Chat Completions.
_SAME_NAME: Final = ("metadata", "model", "service_tier", "store", "temperature", "top_logprobs", "top_p", "user")
# Create params without a chat counterpart, and the values that have no effect.
_NEUTRAL: Final[dict[str, tuple[Any, ...]]] = {
    "truncation": (None, "disabled"),
    "include": (None, []),
    "background": (None, False),
    "max_tool_calls": (None,),
}
# Create params that cannot be dropped without changing the meaning of the request.
_UNSUPPORTED: Final = ("previous_response_id", "prompt")

_THINK: Final = re.compile(r"<think>(.*?)</think>", re.DOTALL)
"""Reasoning within assistant text."""


class NotConvertible(ValueError):  # noqa: N818 - a rejection that names the part without a counterpart
    """The request has no counterpart in the other dialect."""


def wrap_thinking(text: str) -> str:
    """Reasoning in the form it has inside assistant text."""
    return f"<think>{text}</think>"


def params_to_chat(params: CreateParams) -> tuple[JsonObject, list[str]]:
    """The equivalent chat body, and the names of parameters that chat cannot express."""
    request: JsonObject = dict(params)
    for name in _UNSUPPORTED:
        if name in request and request[name] is not None:
            raise NotConvertible(f"'{name}' has no counterpart in Chat Completions")
    body: JsonObject = {"messages": _messages(request["input"], request.get("instructions"))}
    for name in _SAME_NAME:
        if name in request and request[name] is not None:
            body[name] = request[name]
    if request.get("max_output_tokens") is not None:
        body["max_tokens"] = request["max_output_tokens"]
    dropped = [name for name, neutral in _NEUTRAL.items() if name in request and request[name] not in neutral]
    _put_tools(body, request)
    dropped += _put_reasoning(body, request.get("reasoning"))
    dropped += _put_text(body, request.get("text"))
    return body, dropped


def _put_tools(body: JsonObject, request: JsonObject) -> None:
    tools = request.get("tools") or []
    choice = request.get("tool_choice", "auto")
    if not tools:
        if choice == "required" or isinstance(choice, dict):
            raise NotConvertible(f"tool_choice is {choice!r} but the request has no tools")
        return
    body["tools"] = [_chat_tool(tool) for tool in tools]
    if "tool_choice" in request:
        body["tool_choice"] = _chat_tool_choice(choice)
    if "parallel_tool_calls" in request:
        body["parallel_tool_calls"] = request["parallel_tool_calls"]


def _chat_tool(tool: JsonObject) -> JsonObject:
    if tool["type"] != "function":
        raise NotConvertible(f"hosted tools such as '{tool['type']}' have no counterpart in Chat Completions")
    function = {key: value for key, value in tool.items() if key not in {"type", "strict"} and value is not None}
    return {"type": "function", "function": function}


def _chat_tool_choice(choice: Any) -> Any:
    if isinstance(choice, dict) and choice.get("type") == "function":
        return {"type": "function", "function": {"name": choice["name"]}}
    return choice


def _put_reasoning(body: JsonObject, reasoning: JsonObject | None) -> list[str]:
    if not reasoning:
        return []
    if reasoning.get("effort") is not None:
        body["reasoning_effort"] = reasoning["effort"]
    return [f"reasoning.{key}" for key, value in reasoning.items() if key != "effort" and value is not None]


def _put_text(body: JsonObject, text: JsonObject | None) -> list[str]:
    if not text:
        return []
    output_format = text.get("format") or {}
    if output_format.get("type") == "json_schema":
        schema = {key: value for key, value in output_format.items() if key != "type" and value is not None}
        body["response_format"] = {"type": "json_schema", "json_schema": schema}
    elif output_format.get("type") == "json_object":
        body["response_format"] = {"type": "json_object"}
    return [f"text.{key}" for key, value in text.items() if key != "format" and value is not None]


# --- messages --------------------------------------------------------------------------------------------------------


def _messages(items: str | Sequence[Item], instructions: str | None) -> list[JsonObject]:
    if isinstance(items, str):
        items = [{"role": "user", "content": [{"type": "input_text", "text": items}]}]
    messages: list[JsonObject] = []
    turn: list[JsonObject] = []
    for item in cast("Sequence[JsonObject]", items):
        if is_model_turn(item):
            turn.append(item)
            continue
        if turn:
            messages.append(assistant_message(turn))
            turn = []
        messages.append(_other_message(item))
    if turn:
        messages.append(assistant_message(turn))
    return _with_instructions(messages, instructions)


def _with_instructions(messages: list[JsonObject], instructions: str | None) -> list[JsonObject]:
    if instructions is None:
        return messages
    texts = [instructions]
    rest = list(messages)
    while rest and rest[0]["role"] in {"system", "developer"}:
        texts.append(_chat_text(rest.pop(0)["content"]))
    return [{"role": "system", "content": "\n\n".join(texts)}, *rest]


def assistant_message(items: Iterable[JsonObject]) -> JsonObject:
    """The items of one model turn as an assistant message."""
    content = ""
    calls: list[JsonObject] = []
    for item in items:
        kind = item.get("type", "message")
        if kind == "reasoning":
            content += "".join(wrap_thinking(text) for text in reasoning_texts(item))
        elif kind == "function_call":
            function = {"name": item["name"], "arguments": item["arguments"]}
            calls.append({"id": item["call_id"], "type": "function", "function": function})
        elif kind == "message":
            content += message_text(item)
    message: JsonObject = {"role": "assistant", "content": content or None}
    if calls:
        message["tool_calls"] = calls
    return message


def _other_message(item: JsonObject) -> JsonObject:
    kind = item.get("type", "message")
    if kind == "message":
        return {"role": item["role"], "content": _chat_content(item["content"])}
    if kind == "function_call_output":
        output = item["output"]
        if isinstance(output, list):
            if any(part["type"] != "input_text" for part in output):
                raise NotConvertible("a tool output with images or files has no counterpart in Chat Completions")
            output = [{"type": "text", "text": part["text"]} for part in output]
        return {"role": "tool", "tool_call_id": item["call_id"], "content": output}
    raise NotConvertible(f"items of type '{kind}' have no counterpart in Chat Completions")


def _chat_content(content: Any) -> Any:
    return content if isinstance(content, str) else [_chat_part(part) for part in content]


def _chat_part(part: JsonObject) -> JsonObject:
    kind = part["type"]
    if kind == "input_text":
        return {"type": "text", "text": part["text"]}
    if kind == "input_image" and part.get("image_url") is not None:
        return {"type": "image_url", "image_url": {"url": part["image_url"], "detail": part.get("detail") or "auto"}}
    if kind == "input_video":
        source = part.get("video_url") if part.get("video_url") is not None else part.get("video")
        return {"type": "video_url", "video_url": {"url": source["url"] if isinstance(source, dict) else source}}
    raise NotConvertible(f"content parts of type '{kind}' have no counterpart in Chat Completions")


def _chat_text(content: Any) -> str:
    return content if isinstance(content, str) else "".join(part.get("text", "") for part in content or ())


# --- and back --------------------------------------------------------------------------------------------------------

# Keys of chat messages with a counterpart in items.
_MESSAGE_KEYS: Final = frozenset(
    {"role", "content", "tool_calls", "tool_call_id", "reasoning_content", "reasoning", "refusal", *TRAINING_FIELDS}
    | {ROUTED_EXPERTS}
)
_TRANSLATED: Final = frozenset(
    {"messages", "max_completion_tokens", "max_tokens", "tools", "tool_choice", "parallel_tool_calls"}
    | {"reasoning_effort", "response_format", "verbosity", "stream", "stream_options", "n", *_SAME_NAME}
)
# Come with null content or from an older API: dropping them would change the conversation.
_REJECTED_IN_MESSAGES: Final = ("function_call", "audio")


def chat_to_params(body: JsonObject) -> JsonObject:
    """The create params equivalent to a chat body; parameters without a counterpart go to `metadata.extra_body`."""
    if body.get("n") not in {None, 1}:
        raise NotConvertible("'n' other than 1 has no counterpart in Responses: send several requests")
    items = [item for message in body["messages"] for item in _items(message)]
    params: JsonObject = {"input": number_reasoning_items(items)}
    params |= {name: body[name] for name in _SAME_NAME if body.get(name) is not None}
    limit = body.get("max_completion_tokens") or body.get("max_tokens")
    if limit is not None:
        params["max_output_tokens"] = limit
    _put_chat_tools(params, body)
    if body.get("reasoning_effort") is not None:
        params["reasoning"] = {"effort": body["reasoning_effort"]}
    text = _text_of_chat(body)
    if text:
        params["text"] = text
    rest = {key: value for key, value in body.items() if key not in _TRANSLATED and value is not None}
    if body.get("response_format") and "format" not in text:
        rest["response_format"] = body["response_format"]
    return with_extra_body(params, rest)


def with_extra_body(params: JsonObject, extra: JsonObject) -> JsonObject:
    """Add parameters without a name in create params, as the JSON text that model servers read."""
    if not extra:
        return params
    metadata = params.get("metadata") or {}
    if not isinstance(metadata, dict):
        raise NotConvertible("'metadata' is not an object")
    own = read_metadata_json(metadata, "extra_body")
    return {**params, "metadata": {**metadata, "extra_body": orjson.dumps({**extra, **own}).decode()}}


def read_metadata_json(metadata: Mapping[str, Any], key: str) -> JsonObject:
    """Parse JSON text in metadata (`extra_body`, `chat_template_kwargs`); empty if there is none."""
    if key not in metadata:
        return {}
    try:
        value: Any = orjson.loads(metadata[key])
    except (orjson.JSONDecodeError, TypeError) as error:
        raise NotConvertible(f"metadata.{key} is not JSON text: {error}") from error
    if not isinstance(value, dict):
        raise NotConvertible(f"metadata.{key} is not a JSON object")
    return value


def unsupported_chat_keys(body: JsonObject) -> list[str]:
    """The keys of a chat body's messages that create params cannot express."""
    keys = {key for message in body["messages"] for key, value in message.items() if value is not None}
    return [f"messages.{key}" for key in sorted(keys - _MESSAGE_KEYS)]


def _put_chat_tools(params: JsonObject, body: JsonObject) -> None:
    if not body.get("tools"):
        return
    params["tools"] = [
        {"strict": None, "parameters": None, **tool["function"], "type": "function"} for tool in body["tools"]
    ]
    choice = body.get("tool_choice")
    if choice is not None:
        is_function = isinstance(choice, dict) and choice.get("type") == "function"
        params["tool_choice"] = {"type": "function", "name": choice["function"]["name"]} if is_function else choice
    if body.get("parallel_tool_calls") is not None:
        params["parallel_tool_calls"] = body["parallel_tool_calls"]


def _text_of_chat(body: JsonObject) -> JsonObject:
    text: JsonObject = {}
    output_format = body.get("response_format") or {}
    if output_format.get("type") == "json_schema":
        text["format"] = {**output_format["json_schema"], "type": "json_schema"}
    elif output_format.get("type") in {"json_object", "text"}:
        text["format"] = {"type": output_format["type"]}
    if body.get("verbosity") is not None:
        text["verbosity"] = body["verbosity"]
    return text


def _items(message: JsonObject) -> list[JsonObject]:
    for name in _REJECTED_IN_MESSAGES:
        if message.get(name) is not None:
            raise NotConvertible(f"'{name}' of a chat message has no counterpart in Responses")
    role = message["role"]
    if role == "tool":
        output = _input_content(message.get("content"))
        if not isinstance(output, str) and any(part["type"] != "input_text" for part in output):
            raise NotConvertible("a tool message with anything but text has no counterpart in Responses")
        return [{"type": "function_call_output", "call_id": message["tool_call_id"], "output": output}]
    if role != "assistant":
        return [{"type": "message", "role": role, "content": _input_content(message.get("content"))}]
    reasoning = message.get("reasoning_content") or message.get("reasoning")
    items = [make_reasoning_item(reasoning)] if reasoning else []
    items += _text_items(_assistant_text(message.get("content")) or message.get("refusal") or "")
    items += [_call_item(call) for call in message.get("tool_calls") or ()]
    tokens = {key: message[key] for key in TRAINING_FIELDS if message.get(key) is not None}
    if items and len(tokens) == len(TRAINING_FIELDS):
        items[-1] |= tokens
    return items


def make_reasoning_item(text: str) -> JsonObject:
    """A reasoning item without an id."""
    return {"type": "reasoning", "summary": [{"type": "summary_text", "text": text}]}


def number_reasoning_items(items: Iterable[JsonObject]) -> list[JsonObject]:
    """Add the ids that reasoning items require, from their index: other dialects have none."""
    return [{**item, "id": f"rs_{index}"} if item["type"] == "reasoning" else item for index, item in enumerate(items)]


def _text_items(content: str) -> list[JsonObject]:
    """Assistant text and its `<think>` blocks as items, in their order."""
    items: list[JsonObject] = []
    for index, piece in enumerate(_THINK.split(content)):
        if index % 2:
            items.append(make_reasoning_item(piece))
        elif piece:
            items.append({"type": "message", "role": "assistant", "content": piece})
    return items


def _call_item(call: JsonObject) -> JsonObject:
    function = call["function"]
    return {
        "type": "function_call",
        "call_id": call["id"],
        "name": function["name"],
        "arguments": function["arguments"],
    }


def _assistant_text(content: Any) -> str:
    if content is None or isinstance(content, str):
        return content or ""
    for part in content:
        if part["type"] not in {"text", "refusal"}:
            raise NotConvertible(f"assistant content of type '{part['type']}' has no counterpart in Responses")
    return "".join(part[part["type"]] for part in content)


def _input_content(content: Any) -> Any:
    if content is None or isinstance(content, str):
        return content or ""
    return [_input_part(part) for part in content]


def _input_part(part: JsonObject) -> JsonObject:
    kind = part["type"]
    if kind == "text":
        return {"type": "input_text", "text": part["text"]}
    if kind == "image_url":
        image = part["image_url"]
        return {"type": "input_image", "image_url": image["url"], "detail": image.get("detail") or "auto"}
    if kind == "video_url":
        return {"type": "input_video", "video_url": part["video_url"]["url"]}
    raise NotConvertible(f"content parts of type '{kind}' have no counterpart in Responses")
