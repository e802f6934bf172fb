"""A complete chat completion as the chunks that a client of `stream: true` expects. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gymnast.wire.dialects.chat_replies import BadCompletion
from gymnast.wire.dialects.events import encode_unnamed_events

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gymnast.types.json import JsonObject
    from gymnast.wire.message import EventStream


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
