"""A whole output item as the events that clients of streamed Responses build it from: begun, said, ended. Pure.

The contract asks for the last of them only; many clients listen to the deltas alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gymnast.types.json import JsonObject


def item_events(index: int, item: JsonObject) -> Iterator[JsonObject]:
    """The events of the item at this place of the output."""
    at = {"output_index": index}
    begun, parts = _parts(item, {**at, "item_id": item.get("id") or item.get("call_id") or ""})
    yield {"type": "response.output_item.added", **at, "item": begun}
    yield from parts
    yield {"type": "response.output_item.done", **at, "item": item}


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
