"""A whole response object as the events a client of streamed Responses reads. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gymnast.wire.dialects.events import named_events
from gymnast.wire.dialects.responses_deltas import item_events

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gymnast.types.json import JsonObject
    from gymnast.wire.message import EventStream

Namespaces = dict[str, tuple[str, str]]
"""Flattened tool names, and the group and name each stands for."""


def response_stream(response: JsonObject, namespaces: Mapping[str, tuple[str, str]]) -> EventStream:
    """`response.created`, each item from its beginning to `response.output_item.done`, `response.completed`."""
    output = [_with_namespace(item, namespaces) for item in response["output"]]
    items = [event for index, item in enumerate(output) for event in item_events(index, item)]
    created = _created(response)
    last = {"type": "response.completed", "response": {**response, "output": output}}
    return _numbered(created, {**created, "type": "response.in_progress"}, *items, last)


def failed_stream(response: JsonObject, said: str) -> EventStream:
    """A call that failed behind us: the stream is good and says so."""
    failed = {**response, "output": [], "status": "failed", "error": {"code": "server_error", "message": said}}
    return _numbered(_created(response), {"type": "response.failed", "response": failed})


def _created(response: JsonObject) -> JsonObject:
    begun = {**response, "output": [], "status": "in_progress", "usage": None, "incomplete_details": None}
    return {"type": "response.created", "response": begun}


def _numbered(*events: JsonObject) -> EventStream:
    return named_events({**event, "sequence_number": number} for number, event in enumerate(events))


def _with_namespace(item: JsonObject, namespaces: Mapping[str, tuple[str, str]]) -> JsonObject:
    if item.get("type") != "function_call" or item["name"] not in namespaces:
        return item
    namespace, name = namespaces[item["name"]]
    return {**item, "namespace": namespace, "name": name}
