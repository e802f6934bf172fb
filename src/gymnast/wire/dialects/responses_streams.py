"""A complete response object as the events of a Responses stream. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gymnast.wire.dialects.events import encode_named_events
from gymnast.wire.dialects.responses_deltas import item_events

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gymnast.types.json import JsonObject
    from gymnast.wire.message import EventStream

Namespaces = dict[str, tuple[str, str]]
"""Flattened tool names, and the namespace and name of each."""


def make_response_stream(response: JsonObject, namespaces: Mapping[str, tuple[str, str]]) -> EventStream:
    """`response.created`, the events of each item, `response.completed`."""
    output = [_with_namespace(item, namespaces) for item in response["output"]]
    items = [event for index, item in enumerate(output) for event in item_events(index, item)]
    created = _created(response)
    last = {"type": "response.completed", "response": {**response, "output": output}}
    return _numbered(created, {**created, "type": "response.in_progress"}, *items, last)


def make_failed_stream(response: JsonObject, message: str) -> EventStream:
    """A valid stream that reports a failed model call."""
    failed = {**response, "output": [], "status": "failed", "error": {"code": "server_error", "message": message}}
    return _numbered(_created(response), {"type": "response.failed", "response": failed})


def _created(response: JsonObject) -> JsonObject:
    empty = {**response, "output": [], "status": "in_progress", "usage": None, "incomplete_details": None}
    return {"type": "response.created", "response": empty}


def _numbered(*events: JsonObject) -> EventStream:
    return encode_named_events({**event, "sequence_number": number} for number, event in enumerate(events))


def _with_namespace(item: JsonObject, namespaces: Mapping[str, tuple[str, str]]) -> JsonObject:
    if item.get("type") != "function_call" or item["name"] not in namespaces:
        return item
    namespace, name = namespaces[item["name"]]
    return {**item, "namespace": namespace, "name": name}
