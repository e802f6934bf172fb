"""Server-sent events: how the streams of all dialects are written. The whole stream is one text."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import orjson

from gymnast.wire.message import EventStream

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gymnast.types.json import JsonObject

DONE: Final = "data: [DONE]\n\n"
# JSON leaves these as they are, and some clients take them for the end of a line.
_BREAKS: Final = str.maketrans({sign: f"\\u{ord(sign):04x}" for sign in "\x85\u2028\u2029"})


def named_events(events: Iterable[JsonObject]) -> EventStream:
    """Events that carry their name in `type`, as Responses and Messages send them."""
    return EventStream("".join(f"event: {event['type']}\n{_data(event)}" for event in events))


def bare_events(events: Iterable[JsonObject]) -> EventStream:
    """Events without a name, ended by `[DONE]`, as Chat Completions sends them."""
    return EventStream("".join(_data(event) for event in events) + DONE)


def _data(event: JsonObject) -> str:
    return f"data: {orjson.dumps(event).decode().translate(_BREAKS)}\n\n"
