"""Server-sent events: the encoding of all dialects' streams. A whole stream is one text."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import orjson

from gymnast.wire.message import EventStream

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gymnast.types.json import JsonObject

DONE: Final = "data: [DONE]\n\n"
# JSON does not escape these, and some clients treat them as line breaks.
_LINE_BREAKS: Final = str.maketrans({char: f"\\u{ord(char):04x}" for char in "\x85\u2028\u2029"})


def encode_named_events(events: Iterable[JsonObject]) -> EventStream:
    """Encode events named by their `type`, as in Responses and Messages."""
    return EventStream("".join(f"event: {event['type']}\n{_data(event)}" for event in events))


def encode_unnamed_events(events: Iterable[JsonObject]) -> EventStream:
    """Encode events without a name, ended by `[DONE]`, as in Chat Completions."""
    return EventStream("".join(_data(event) for event in events) + DONE)


def _data(event: JsonObject) -> str:
    return f"data: {orjson.dumps(event).decode().translate(_LINE_BREAKS)}\n\n"
