"""Requests: Responses create params to Chat Completions, and back. Pure functions over data."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import orjson

from gymnast.types.responses import is_model_turn, message_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from gymnast.types.items import CreateParams, Item
    from gymnast.types.json import JsonObject

# Create params that Chat Completions knows under the same name.
_SAME_NAME: Final = ("metadata", "model", "service_tier", "store", "temperature", "top_logprobs", "top_p", "user")
# Create params without a chat counterpart that change nothing when they have these values.
_NEUTRAL: Final[dict[str, tuple[Any, ...]]] = {
    "truncation": (None, "disabled"),
    "include": (None, []),
    "background": (None, False),
    "max_tool_calls": (None,),
}
# Create params that would change the meaning of the request if they were left out.
_UNSUPPORTED: Final = ("previous_response_id", "prompt")


class NotConvertible(ValueError):  # noqa: N818 - a refusal that names what cannot be said in the other dialect
    """The request has no counterpart in the other dialect."""


def think_block(text: str) -> str:
    """Reasoning as it stands in assistant text."""
    return f"<think>{text}</think>"


def chat_request(params: CreateParams) -> tuple[JsonObject, list[str]]:
    """The chat body that asks for the same, and the names of set parameters that chat cannot express."""
    asked: JsonObject = dict(params)
    for name in _UNSUPPORTED:
        if asked.get(name) is not None:
            raise NotConvertible(f"'{name}' has no counterpart in Chat Completions")
    body: JsonObject = {"messages": _messages(asked["input"], asked.get("instructions"))}
    for name in _SAME_NAME:
        if asked.get(name) is not None:
            body[name] = asked[name]
    if asked.get("max_output_tokens") is not None:
        body["max_tokens"] = asked["max_output_tokens"]
    lost = [name for name, neutral in _NEUTRAL.items() if asked.get(name) not in neutral]
    _put_tools(body, asked)
    lost += _put_reasoning(body, asked.get("reasoning"))
    lost += _put_text(body, asked.get("text"))
    return body, lost


def _put_tools(body: JsonObject, asked: JsonObject) -> None:
    tools = asked.get("tools") or []
    choice = asked.get("tool_choice", "auto")
    if not tools:
        if choice == "required":
            raise NotConvertible("tool_choice is 'required' but the request has no tools")
        return
    body["tools"] = [_chat_tool(tool) for tool in tools]
    if "tool_choice" in asked:
        body["tool_choice"] = _chat_tool_choice(choice)
    if "parallel_tool_calls" in asked:
        body["parallel_tool_calls"] = asked["parallel_tool_calls"]


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
    shape = text.get("format") or {}
    if shape.get("type") == "json_schema":
        schema = {key: value for key, value in shape.items() if key != "type" and value is not None}
        body["response_format"] = {"type": "json_schema", "json_schema": schema}
    elif shape.get("type") == "json_object":
        body["response_format"] = {"type": "json_object"}
    return [f"text.{key}" for key, value in text.items() if key != "format" and value is not None]


# --- messages --------------------------------------------------------------------------------------------------------


def _messages(given: str | Sequence[Item], instructions: str | None) -> list[JsonObject]:
    if isinstance(given, str):
        given = [{"role": "user", "content": [{"type": "input_text", "text": given}]}]
    messages: list[JsonObject] = []
    run: list[JsonObject] = []
    for item in given:
        entry: JsonObject = dict(item)
        if is_model_turn(entry):
            run.append(entry)
            continue
        if run:
            messages.append(_assistant_message(run))
            run = []
        messages.append(_other_message(entry))
    if run:
        messages.append(_assistant_message(run))
    return _with_instructions(messages, instructions)


def _with_instructions(messages: list[JsonObject], instructions: str | None) -> list[JsonObject]:
    if instructions is None:
        return messages
    texts = [instructions]
    rest = list(messages)
    while rest and rest[0]["role"] in {"system", "developer"}:
        texts.append(_chat_text(rest.pop(0)["content"]))
    return [{"role": "system", "content": "\n\n".join(texts)}, *rest]


def _assistant_message(run: Iterable[JsonObject]) -> JsonObject:
    """Consecutive items of one model turn as one assistant message."""
    content = ""
    calls: list[JsonObject] = []
    for item in run:
        kind = item.get("type", "message")
        if kind == "reasoning":
            content += "".join(think_block(part["text"]) for part in item["summary"])
        elif kind == "function_call":
            function = {"name": item["name"], "arguments": item["arguments"]}
            calls.append({"id": item["call_id"], "type": "function", "function": function})
        else:
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


def params_of_chat(body: JsonObject) -> JsonObject:
    """Create params that ask for the same as a chat body; what they cannot say travels in `metadata.extra_body`."""
    params: JsonObject = {"input": [item for message in body["messages"] for item in _items(message)]}
    params |= {name: body[name] for name in _SAME_NAME if body.get(name) is not None}
    limit = body.get("max_completion_tokens") or body.get("max_tokens")
    if limit is not None:
        params["max_output_tokens"] = limit
    if body.get("tools"):
        params["tools"] = [
            {"strict": None, "parameters": None, **tool["function"], "type": "function"} for tool in body["tools"]
        ]
        choice = body.get("tool_choice")
        if choice is not None:
            named = isinstance(choice, dict) and choice.get("type") == "function"
            params["tool_choice"] = {"type": "function", "name": choice["function"]["name"]} if named else choice
        if body.get("parallel_tool_calls") is not None:
            params["parallel_tool_calls"] = body["parallel_tool_calls"]
    if body.get("reasoning_effort") is not None:
        params["reasoning"] = {"effort": body["reasoning_effort"]}
    rest = {key: value for key, value in body.items() if key not in _TRANSLATED and value is not None}
    if rest:
        metadata = dict(params.get("metadata") or {})
        metadata["extra_body"] = orjson.dumps({**rest, **orjson.loads(metadata.get("extra_body", "{}"))}).decode()
        params["metadata"] = metadata
    return params


_TRANSLATED: Final = frozenset(
    {
        "messages",
        "max_completion_tokens",
        "max_tokens",
        "tools",
        "tool_choice",
        "parallel_tool_calls",
        "reasoning_effort",
    }
    | {"stream", "stream_options", "n", *_SAME_NAME}
)


def _items(message: JsonObject) -> list[JsonObject]:
    role = message["role"]
    if role == "tool":
        output = _chat_text(message.get("content"))
        return [{"type": "function_call_output", "call_id": message["tool_call_id"], "output": output}]
    if role != "assistant":
        return [{"type": "message", "role": role, "content": _input_content(message.get("content"))}]
    items: list[JsonObject] = []
    text = _chat_text(message.get("content"))
    if text:
        items.append({"type": "message", "role": "assistant", "content": text})
    for call in message.get("tool_calls") or ():
        function = call["function"]
        items.append(
            {
                "type": "function_call",
                "call_id": call["id"],
                "name": function["name"],
                "arguments": function["arguments"],
            }
        )
    return items


def _input_content(content: Any) -> Any:
    if content is None or isinstance(content, str):
        return content or ""
    parts: list[JsonObject] = []
    for part in content:
        if part["type"] == "text":
            parts.append({"type": "input_text", "text": part["text"]})
        elif part["type"] == "image_url":
            image = part["image_url"]
            parts.append({"type": "input_image", "image_url": image["url"], "detail": image.get("detail", "auto")})
        else:
            raise NotConvertible(f"content parts of type '{part['type']}' have no counterpart in Responses")
    return parts
