"""A complete response object as the events of a Responses stream. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from gymnast.wire.dialects.events import encode_named_events

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from gymnast.types.json import JsonObject
    from gymnast.wire.message import EventStream


Namespaces = dict[str, tuple[str, str]]
"""Flattened tool names, and the namespace and name of each."""


def make_response_stream(response: JsonObject, namespaces: Mapping[str, tuple[str, str]]) -> EventStream:
    """`response.created`, the events of each item, `response.completed`."""
    output = [_with_namespace(item, namespaces) for item in response["output"]]
    items = [event for index, item in enumerate(output) for event in item_events(index, item)]
    created = _created_event(response)
    last = {"type": "response.completed", "response": {**response, "output": output}}
    return _encode_numbered(created, {**created, "type": "response.in_progress"}, *items, last)


def make_failed_stream(response: JsonObject, message: str) -> EventStream:
    """A valid stream that reports a failed model call."""
    failed = {**response, "output": [], "status": "failed", "error": {"code": "server_error", "message": message}}
    return _encode_numbered(_created_event(response), {"type": "response.failed", "response": failed})


def _created_event(response: JsonObject) -> JsonObject:
    empty = {**response, "output": [], "status": "in_progress", "usage": None, "incomplete_details": None}
    return {"type": "response.created", "response": empty}


def _encode_numbered(*events: JsonObject) -> EventStream:
    return encode_named_events({**event, "sequence_number": number} for number, event in enumerate(events))


def _with_namespace(item: JsonObject, namespaces: Mapping[str, tuple[str, str]]) -> JsonObject:
    if item.get("type") != "function_call" or item["name"] not in namespaces:
        return item
    namespace, name = namespaces[item["name"]]
    return {**item, "namespace": namespace, "name": name}


def item_events(index: int, item: JsonObject) -> Iterator[JsonObject]:
    position = {"output_index": index}
    empty, deltas = _parts(item, {**position, "item_id": item.get("id") or item.get("call_id") or ""})
    yield {"type": "response.output_item.added", **position, "item": empty}
    yield from deltas
    yield {"type": "response.output_item.done", **position, "item": item}


def _parts(item: JsonObject, position: JsonObject) -> tuple[JsonObject, list[JsonObject]]:
    """An empty item, and the events that fill it."""
    match item.get("type"):
        case "message" if isinstance(item["content"], list):
            events = [event for index, part in enumerate(item["content"]) for event in _content(part, index, position)]
            return {**item, "content": [], "status": "in_progress"}, events
        case "function_call":
            text = item["arguments"]
            kind = "response.function_call_arguments"
            deltas = [_event(f"{kind}.delta", position, delta=text)] if text else []
            done = _event(f"{kind}.done", position, arguments=text, name=item["name"])
            return {**item, "arguments": "", "status": "in_progress"}, [*deltas, done]
        case "reasoning":
            events = [event for index, part in enumerate(item["summary"]) for event in _summary(part, index, position)]
            return {**item, "summary": []}, events
        case _:
            return item, []


def _content(part: JsonObject, index: int, item_position: JsonObject) -> Iterator[JsonObject]:
    position = {**item_position, "content_index": index}
    field, kind, extra = (
        ("refusal", "refusal", {}) if part["type"] == "refusal" else ("text", "output_text", _NO_LOGPROBS)
    )
    yield _event("response.content_part.added", position, part={**part, field: ""})
    if part[field]:
        yield _event(f"response.{kind}.delta", position, delta=part[field], **extra)
    yield _event(f"response.{kind}.done", position, **{field: part[field]}, **extra)
    yield _event("response.content_part.done", position, part=part)


def _summary(part: JsonObject, index: int, item_position: JsonObject) -> Iterator[JsonObject]:
    position = {**item_position, "summary_index": index}
    yield _event("response.reasoning_summary_part.added", position, part={**part, "text": ""})
    if part["text"]:
        yield _event("response.reasoning_summary_text.delta", position, delta=part["text"])
    yield _event("response.reasoning_summary_text.done", position, text=part["text"])
    yield _event("response.reasoning_summary_part.done", position, part=part)


_NO_LOGPROBS: Final[JsonObject] = {"logprobs": []}


def _event(kind: str, position: JsonObject, **fields: Any) -> JsonObject:
    return {"type": kind, **position, **fields}
