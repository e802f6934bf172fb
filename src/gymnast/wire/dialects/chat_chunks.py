"""A streamed chat completion put together again: exactly what the same reply would be without streaming.

Pure: bytes of server-sent events in, one completion out. Texts and lists (tool calls by index, logprobs, token ids) are
joined in order; of anything else the last value that was said counts. A stream that breaks off is not a reply.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import orjson

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from gymnast.types.json import JsonObject


class BrokenStream(ValueError):  # noqa: N818 - named by what it is
    """The stream does not amount to a completion."""


class StreamedError(ValueError):
    """The endpoint says inside the stream that it failed."""

    def __init__(self, body: str, status: int | None) -> None:
        super().__init__(body)
        self.body = body
        self.status = status


_GENERATED: Final = ("content", "reasoning_content", "reasoning", "tool_calls", "refusal")
"""What a delta holds once there is a token."""


def completion_of_stream(raw: bytes) -> tuple[JsonObject, int | None]:
    """The completion, and how many bytes had come when its first token was there (None without one)."""
    completion: JsonObject = {}
    choices: dict[int, JsonObject] = {}
    first: int | None = None
    done = False
    for data, end in events(raw):
        if data == b"[DONE]":
            done = True
            break
        chunk = _chunk(data)
        _take_chunk(completion, choices, chunk)
        if first is None and _has_token(chunk):
            first = end
    if not choices or not (done or all(choice.get("finish_reason") for choice in choices.values())):
        raise BrokenStream(f"the stream ended after {len(raw)} bytes, before the reply did")
    completion["object"] = "chat.completion"
    completion["choices"] = [_whole(choices[index]) for index in sorted(choices)]
    return completion, first


def arrived_ms(arrivals: Sequence[tuple[float, int]], offset: int) -> float | None:
    """When the body's first `offset` bytes were there, in milliseconds."""
    seen = 0
    for at_s, size in arrivals:
        seen += size
        if seen >= offset:
            return at_s * 1000
    return None


def events(raw: bytes) -> Iterator[tuple[bytes, int]]:
    """The data of each server-sent event, and where in the stream its last line ends."""
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
        raise BrokenStream(f"an event is no object: {data[:200].decode(errors='replace')}")
    if chunk.get("error"):
        said = chunk["error"]
        code = said.get("code") if isinstance(said, dict) else None
        raise StreamedError(data.decode(errors="replace"), code if isinstance(code, int) else None)
    return chunk


def _has_token(chunk: JsonObject) -> bool:
    return any((choice.get("delta") or {}).get(name) for choice in chunk.get("choices") or () for name in _GENERATED)


def _take_chunk(completion: JsonObject, choices: dict[int, JsonObject], chunk: JsonObject) -> None:
    for name, value in chunk.items():
        if name == "choices":
            for part in value or ():
                _take_choice(choices.setdefault(part.get("index", 0), {"index": part.get("index", 0)}), part)
        elif value is not None or name not in completion:
            completion[name] = value


def _take_choice(choice: JsonObject, part: JsonObject) -> None:
    message = choice.setdefault("message", {"role": "assistant", "content": None})
    for name, value in part.items():
        if name == "delta":
            _take_delta(message, value or {})
        elif isinstance(value, (list, dict)):
            _join(choice, name, value)
        elif value is not None or name not in choice:
            choice[name] = value


def _take_delta(message: JsonObject, delta: JsonObject) -> None:
    for name, value in delta.items():
        if name == "tool_calls":
            for part in value or ():
                _take_call(message.setdefault("tool_calls", []), part)
        elif name == "role":
            message[name] = value or message[name]
        else:
            _join(message, name, value)


def _take_call(calls: list[JsonObject], part: JsonObject) -> None:
    """Calls come in pieces: the first names it, the others carry arguments. The index says which is meant."""
    index = part.get("index")
    place = index if isinstance(index, int) else len(calls)
    if place > len(calls):
        raise BrokenStream(f"tool call {place} begins before tool call {len(calls)}")
    if place == len(calls):
        calls.append({"id": None, "type": "function", "function": {"name": "", "arguments": ""}})
    call, function = calls[place], part.get("function") or {}
    call["id"] = part.get("id") or call["id"]
    call["type"] = part.get("type") or call["type"]
    for name in ("name", "arguments"):
        _join(call["function"], name, function.get(name) or "")


class _Text(list[str]):
    """A text in pieces: adding to a string ten thousand times copies it ten thousand times."""


def _whole(choice: JsonObject) -> JsonObject:
    """The choice with its texts joined. A turn that only calls tools has no content, not an empty one."""
    message = choice["message"]
    for holder in (choice, message, *(call["function"] for call in message.get("tool_calls") or ())):
        holder.update({name: "".join(value) for name, value in holder.items() if isinstance(value, _Text)})
    if message.get("tool_calls") and not message["content"]:
        message["content"] = None
    return choice


def _join(target: JsonObject, name: str, value: Any) -> None:
    """Put a piece behind what is there."""
    known = target.get(name)
    if isinstance(known, _Text) and isinstance(value, str):
        known.append(value)
    elif isinstance(known, str) and isinstance(value, str):
        target[name] = _Text((known, value))
    elif isinstance(known, list) and isinstance(value, list):
        known += value
    elif isinstance(known, dict) and isinstance(value, dict):
        for inner, piece in value.items():
            _join(known, inner, piece)
    elif value is not None or name not in target:
        target[name] = value
