"""Reassembles a streamed chat completion into exactly what the same reply would be without streaming.

Pure: bytes of server-sent events in, one completion out. Texts and lists (tool calls by index, logprobs, token ids) are
joined in order; for anything else the last value wins. A truncated stream is an error.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import orjson

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from gymnast.types.json import JsonObject


class BrokenStream(ValueError):  # noqa: N818 - names what came back
    """The stream is not a complete chat completion."""


class StreamedError(ValueError):
    """The endpoint reported an error inside the stream."""

    def __init__(self, body: str, status: int | None) -> None:
        super().__init__(body)
        self.body = body
        self.status = status


_GENERATED: Final = ("content", "reasoning_content", "reasoning", "tool_calls", "refusal")
"""Fields of a delta that carry tokens."""


def parse_completion_stream(raw: bytes) -> tuple[JsonObject, int | None]:
    """The completion, and the number of bytes up to its first token (None without one)."""
    completion: JsonObject = {}
    choices: dict[int, JsonObject] = {}
    first: int | None = None
    done = False
    for data, end in iter_events(raw):
        if data == b"[DONE]":
            done = True
            break
        chunk = _chunk(data)
        try:
            _add_chunk(completion, choices, chunk)
            has_token = first is None and _has_token(chunk)
        except (AttributeError, LookupError, TypeError, OverflowError) as error:  # fields of the wrong type
            text = data[:200].decode(errors="replace")
            raise BrokenStream(f"an event is not a chunk of a completion ({error}): {text}") from error
        if has_token:
            first = end
    if not choices or not (done or all(choice.get("finish_reason") for choice in choices.values())):
        raise BrokenStream(f"the stream ended after {len(raw)} bytes, before the reply was complete")
    completion["object"] = "chat.completion"
    completion["choices"] = [_join_texts(choices[index]) for index in sorted(choices)]
    return completion, first


def arrival_ms(arrivals: Sequence[tuple[float, int]], offset: int) -> float | None:
    """When the first `offset` bytes of the body had arrived, in milliseconds."""
    total = 0
    for at_s, size in arrivals:
        total += size
        if total >= offset:
            return at_s * 1000
    return None


def iter_events(raw: bytes) -> Iterator[tuple[bytes, int]]:
    """The data of each server-sent event, and the offset where its last line ends."""
    position, lines = 0, []
    for line in raw.splitlines(keepends=True):
        position += len(line)
        text = line.rstrip(b"\r\n")
        if text.startswith(b"data:"):
            lines.append(text[5:].removeprefix(b" "))
        elif not text and lines:
            yield b"\n".join(lines), position
            lines = []
    if lines:
        yield b"\n".join(lines), position


def _chunk(data: bytes) -> JsonObject:
    try:
        chunk: Any = orjson.loads(data)
    except orjson.JSONDecodeError as error:
        raise BrokenStream(f"an event is not JSON ({error}): {data[:200].decode(errors='replace')}") from error
    if not isinstance(chunk, dict):
        raise BrokenStream(f"an event is not an object: {data[:200].decode(errors='replace')}")
    if detail := chunk.get("error"):
        code = detail.get("code") if isinstance(detail, dict) else None
        raise StreamedError(data.decode(errors="replace"), code if isinstance(code, int) else None)
    return chunk


def _has_token(chunk: JsonObject) -> bool:
    return any((choice.get("delta") or {}).get(name) for choice in chunk.get("choices") or () for name in _GENERATED)


def _add_chunk(completion: JsonObject, choices: dict[int, JsonObject], chunk: JsonObject) -> None:
    for name, value in chunk.items():
        if name == "choices":
            for part in value or ():
                index = part.get("index", 0)
                if not isinstance(index, int):
                    raise TypeError(f"the index of a choice is {index!r}")
                _add_choice(choices.setdefault(index, {"index": index}), part)
        elif value is not None or name not in completion:
            completion[name] = value


def _add_choice(choice: JsonObject, part: JsonObject) -> None:
    message = choice.setdefault("message", {"role": "assistant", "content": None})
    for name, value in part.items():
        if name == "delta":
            _add_delta(message, value or {})
        elif isinstance(value, (list, dict)):
            _append(choice, name, value)
        elif value is not None or name not in choice:
            choice[name] = value


def _add_delta(message: JsonObject, delta: JsonObject) -> None:
    for name, value in delta.items():
        if name == "tool_calls":
            for part in value or ():
                _add_call(message.setdefault("tool_calls", []), part)
        elif name == "role":
            message[name] = value or message[name]
        else:
            _append(message, name, value)


def _add_call(calls: list[JsonObject], part: JsonObject) -> None:
    """Add a piece of a tool call, found by its index: the first piece has the name, the others arguments."""
    index = part.get("index")
    if not isinstance(index, int):
        index = len(calls)
    if not 0 <= index <= len(calls):
        raise BrokenStream(f"tool call {index} starts before tool call {len(calls)}")
    if index == len(calls):
        calls.append({"id": None, "type": "function", "function": {"name": "", "arguments": ""}})
    call, function = calls[index], part.get("function") or {}
    call["id"] = part.get("id") or call["id"]
    call["type"] = part.get("type") or call["type"]
    for name in ("name", "arguments"):
        _append(call["function"], name, function.get(name) or "")


class _Text(list[str]):
    """A text in pieces, because repeated string concatenation is quadratic."""


def _join_texts(choice: JsonObject) -> JsonObject:
    """Join the texts of a choice. The content of a turn that only calls tools is null, not empty."""
    message = choice["message"]
    for owner in (choice, message, *(call["function"] for call in message.get("tool_calls") or ())):
        owner.update({name: "".join(value) for name, value in owner.items() if isinstance(value, _Text)})
    if message.get("tool_calls") and not message["content"]:
        message["content"] = None
    return choice


def _append(target: JsonObject, name: str, value: Any) -> None:
    """Append a piece to the current value of a field."""
    current = target.get(name)
    if isinstance(current, _Text) and isinstance(value, str):
        current.append(value)
    elif isinstance(current, str) and isinstance(value, str):
        target[name] = _Text((current, value))
    elif isinstance(current, list) and isinstance(value, list):
        current += value
    elif isinstance(current, dict) and isinstance(value, dict):
        for key, piece in value.items():
            _append(current, key, piece)
    elif value is not None or name not in target:
        target[name] = value
