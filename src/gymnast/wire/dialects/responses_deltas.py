"""A stream of whole Responses items as the stream of parts and deltas that many clients build their answer from.

Our model servers send each item once, when it is done, as the contract says. Programs of others often listen to the
deltas only; for them each item is also begun, said and ended. Pure.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import orjson

from gymnast.wire.dialects.events import named_events

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gymnast.types.json import JsonObject
    from gymnast.wire.message import EventStream

_DONE: Final = "response.output_item.done"


def with_deltas(stream: EventStream) -> EventStream:
    """The same stream with every item also in parts."""
    lines = (line for line in str(stream).split("\n") if line.startswith("data: "))
    events = (event for line in lines for event in _expanded(orjson.loads(line[6:])))
    return named_events({**event, "sequence_number": number} for number, event in enumerate(events))


def _expanded(event: JsonObject) -> Iterator[JsonObject]:
    if event["type"] == _DONE:
        item, at = event["item"], {"output_index": event["output_index"]}
        begun, parts = _parts(item, {**at, "item_id": item.get("id") or item.get("call_id") or ""})
        yield {"type": "response.output_item.added", **at, "item": begun}
        yield from parts
    yield event
    if event["type"] == "response.created":
        yield {**event, "type": "response.in_progress"}


def _parts(item: JsonObject, at: JsonObject) -> tuple[JsonObject, list[JsonObject]]:
    """How an item begins, and the events that say the rest of it."""
    match item.get("type"):
        case "message" if isinstance(item["content"], list):
            said = [event for index, part in enumerate(item["content"]) for event in _content(part, index, at)]
            return {**item, "content": [], "status": "in_progress"}, said
        case "function_call":
            text = item["arguments"]
            kind = "response.function_call_arguments"
            told = [_event(f"{kind}.delta", at, delta=text)] if text else []
            ended = _event(f"{kind}.done", at, arguments=text, name=item["name"])
            return {**item, "arguments": "", "status": "in_progress"}, [*told, ended]
        case "reasoning":
            said = [event for index, part in enumerate(item["summary"]) for event in _summary(part, index, at)]
            return {**item, "summary": []}, said
        case _:
            return item, []


def _content(part: JsonObject, index: int, at: JsonObject) -> Iterator[JsonObject]:
    here = {**at, "content_index": index}
    field, kind, more = (
        ("refusal", "refusal", {}) if part["type"] == "refusal" else ("text", "output_text", _NO_LOGPROBS)
    )
    yield _event("response.content_part.added", here, part={**part, field: ""})
    if part[field]:
        yield _event(f"response.{kind}.delta", here, delta=part[field], **more)
    yield _event(f"response.{kind}.done", here, **{field: part[field]}, **more)
    yield _event("response.content_part.done", here, part=part)


def _summary(part: JsonObject, index: int, at: JsonObject) -> Iterator[JsonObject]:
    here = {**at, "summary_index": index}
    yield _event("response.reasoning_summary_part.added", here, part={**part, "text": ""})
    if part["text"]:
        yield _event("response.reasoning_summary_text.delta", here, delta=part["text"])
    yield _event("response.reasoning_summary_text.done", here, text=part["text"])
    yield _event("response.reasoning_summary_part.done", here, part=part)


_NO_LOGPROBS: Final[JsonObject] = {"logprobs": []}


def _event(kind: str, where: JsonObject, **more: Any) -> JsonObject:
    return {"type": kind, **where, **more}
