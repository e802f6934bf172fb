"""Replies: a chat completion to a Responses object, and back, also as chunks of a stream. Pure; ids are passed in."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from gymnast.types.items import ROUTED_EXPERTS, TRAINING_FIELDS
from gymnast.types.responses import make_response
from gymnast.wire.dialects.chat_requests import assistant_message
from gymnast.wire.dialects.events import encode_unnamed_events

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from gymnast.types.items import CreateParams, Item, Response, Usage
    from gymnast.types.json import JsonObject
    from gymnast.wire.message import EventStream

_INCOMPLETE: Final = {"length": "max_output_tokens", "content_filter": "content_filter"}


class BadCompletion(ValueError):  # noqa: N818 - the endpoint's mistake
    """The reply is not a valid chat completion."""


def split_thinking(content: str) -> tuple[list[str], str]:
    """Split a text into the reasoning in its `<think>` blocks and the rest."""
    if "<think>" not in content:
        return [], content
    thoughts: list[str] = []
    texts: list[str] = []
    position = 0
    # Not a regular expression: that takes ten times as long, and reasoning is long.
    while (start := content.find("<think>", position)) >= 0 and (end := content.find("</think>", start)) >= 0:
        texts.append(content[position:start])
        thoughts.append(content[start + len("<think>") : end])
        position = end + len("</think>")
    return thoughts, "".join(texts) + content[position:]


def completion_to_response(
    completion: JsonObject, params: CreateParams, *, model: str, new_id: Callable[[str], str], parse_thinking: bool
) -> Response:
    """The first choice of a chat completion as a response object."""
    try:
        choice = completion["choices"][0]
        message = choice["message"]
    except (KeyError, IndexError, TypeError) as error:
        raise BadCompletion("the reply has no choices[0].message") from error
    try:
        reason = _INCOMPLETE.get(choice.get("finish_reason") or "")
        return make_response(
            params,
            message_to_items(message, new_id=new_id, parse_thinking=parse_thinking),
            response_id=new_id("resp_"),
            created_at=float(completion.get("created") or 0),
            model=model,
            usage=convert_chat_usage(completion.get("usage")),
            incomplete={"reason": reason} if reason else None,
        )
    except BadCompletion:
        raise
    except (AttributeError, TypeError, ValueError) as error:  # fields of the wrong type
        raise BadCompletion(f"the reply is not a chat completion: {error}") from error


def message_to_items(message: JsonObject, *, new_id: Callable[[str], str], parse_thinking: bool) -> list[Item]:
    """Convert an assistant message to output items."""
    content = _content_text(message.get("content"))
    thoughts, text = split_thinking(content) if parse_thinking else ([], content)
    return make_output_items(thoughts, text, message.get("tool_calls") or [], new_id)


def make_output_items(
    thoughts: list[str], text: str, calls: list[JsonObject], new_id: Callable[[str], str]
) -> list[Item]:
    """The items of one turn: reasoning, a message, calls. A turn without any of them is an empty message."""
    output: list[Item] = []
    if thoughts:
        summary = [{"type": "summary_text", "text": thought} for thought in thoughts]
        output.append({"id": new_id("rs_"), "summary": summary, "type": "reasoning", "encrypted_content": None})
    if text or not (thoughts or calls):
        part: JsonObject = {"annotations": [], "text": text, "type": "output_text", "logprobs": None}
        output.append(
            {"id": new_id("msg_"), "content": [part], "role": "assistant", "status": "completed", "type": "message"}
        )
    output += [_function_call(call, new_id) for call in calls]
    return output


def convert_chat_usage(usage: JsonObject | None) -> Usage | None:
    """Convert chat usage to Responses usage; details that are not reported are None, not zero."""
    if not usage:
        return None
    prompt, output = int(usage.get("prompt_tokens") or 0), int(usage.get("completion_tokens") or 0)
    cached = _detail(usage, "prompt_tokens_details", "cached_tokens", "cached_input_tokens", "cache_read_input_tokens")
    reasoning = _detail(usage, "completion_tokens_details", "reasoning_tokens", "reasoning_output_tokens")
    return {
        "input_tokens": prompt,
        "input_tokens_details": {"cached_tokens": cached},
        "output_tokens": output,
        "output_tokens_details": {"reasoning_tokens": reasoning},
        "total_tokens": usage.get("total_tokens") or prompt + output,
    }


def response_to_completion(response: JsonObject, *, new_id: Callable[[str], str]) -> JsonObject:
    message: JsonObject = {"role": "assistant", "content": None, "refusal": None}
    message |= assistant_message(response["output"])
    if response["output"]:
        message |= {
            key: value for key, value in response["output"][-1].items() if key in (*TRAINING_FIELDS, ROUTED_EXPERTS)
        }
    reason = (response.get("incomplete_details") or {}).get("reason")
    finish = {"max_output_tokens": "length", "content_filter": "content_filter"}.get(reason or "")
    return {
        "id": new_id("chatcmpl-"),
        "object": "chat.completion",
        "created": int(response["created_at"]),
        "model": response["model"],
        "choices": [
            {
                "index": 0,
                "message": message,
                "finish_reason": finish or ("tool_calls" if "tool_calls" in message else "stop"),
                "logprobs": None,
            }
        ],
        "usage": _chat_usage(response.get("usage")),
    }


def _function_call(call: JsonObject, new_id: Callable[[str], str]) -> Item:
    function = call.get("function") or {}
    call_id = call.get("id") or new_id("call_")
    arguments = function.get("arguments")
    return {
        "arguments": arguments if isinstance(arguments, str) else "{}",
        "call_id": call_id,
        "name": function.get("name") or "",
        "type": "function_call",
        "id": call_id,
        "status": "completed",
    }


def _content_text(content: Any) -> str:
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if not isinstance(content, list) or not all(isinstance(part, dict) for part in content):
        raise BadCompletion(f"message content: expected a string or a list of parts, got {type(content).__name__}")
    return "".join(part.get("text") or "" for part in content)


def _detail(usage: JsonObject, group: str, name: str, *aliases: str) -> int | None:
    details = usage.get(group)
    if isinstance(details, dict) and details.get(name) is not None:
        return int(details[name])
    for alias in aliases:
        if alias in usage and usage[alias] is not None:
            return int(usage[alias])
    return None


def _chat_usage(usage: JsonObject | None) -> JsonObject | None:
    if not usage:
        return None
    body = {
        "prompt_tokens": usage["input_tokens"],
        "completion_tokens": usage["output_tokens"],
        "total_tokens": usage["total_tokens"],
    }
    cached = usage["input_tokens_details"]["cached_tokens"]
    if cached is not None:
        body["prompt_tokens_details"] = {"cached_tokens": cached}
    reasoning = usage["output_tokens_details"]["reasoning_tokens"]
    if reasoning is not None:
        body["completion_tokens_details"] = {"reasoning_tokens": reasoning}
    return body


def make_chat_stream(completion: JsonObject, *, include_usage: bool) -> EventStream:
    """Role, reasoning, text, calls and finish of each choice; then usage, if requested."""
    try:
        return encode_unnamed_events(_chunks(completion, include_usage=include_usage))
    except (KeyError, TypeError, AttributeError) as error:
        raise BadCompletion(f"the reply is not a chat completion: {error!r}") from error


def _chunks(completion: JsonObject, *, include_usage: bool) -> Iterator[JsonObject]:
    head = {
        "id": completion.get("id"),
        "object": "chat.completion.chunk",
        "created": completion.get("created") or 0,
        "model": completion.get("model"),
    }
    for choice in completion["choices"]:
        for part in _parts(choice):
            yield {**head, "choices": [{"index": choice.get("index") or 0, **part}]}
    if include_usage:
        yield {**head, "choices": [], "usage": completion.get("usage")}


def _parts(choice: JsonObject) -> Iterator[JsonObject]:
    message = choice["message"]
    yield _part({"role": message.get("role") or "assistant"})
    for name in ("reasoning_content", "content", "refusal"):
        if message.get(name):
            yield _part({name: message[name]}, logprobs=choice.get("logprobs") if name == "content" else None)
    calls = message.get("tool_calls")
    if calls:
        yield _part({"tool_calls": [{"index": index, **call} for index, call in enumerate(calls)]})
    yield _part({}, finish_reason=choice.get("finish_reason"))


def _part(delta: JsonObject, *, logprobs: Any = None, finish_reason: str | None = None) -> JsonObject:
    return {"delta": delta, "logprobs": logprobs, "finish_reason": finish_reason}
