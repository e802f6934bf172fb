"""Bounded excerpts of files of any size: the head and tail of a log, the first and last lines of a JSONL file."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, Final

import orjson

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from gymnast.types.json import JsonObject

_MAX_LINE: Final = 4000
_BLOCK: Final = 1 << 20


def head_and_tail(path: Path, *, head_bytes: int, tail_bytes: int) -> str:
    """A small file completely, else its beginning and its end, in complete lines if possible."""
    size = path.stat().st_size
    with path.open("rb") as stream:
        if size <= head_bytes + tail_bytes:
            return _lines(stream.read())
        first = stream.read(head_bytes)
        stream.seek(size - tail_bytes)
        last = stream.read(tail_bytes)
    first = first[: first.rfind(b"\n") + 1] or first
    last = last[last.find(b"\n") + 1 :] or last
    omitted = size - len(first) - len(last)
    return f"{_lines(first)}\n… {omitted} bytes left out …\n{_lines(last)}"


def count_lines(path: Path) -> int:
    """The number of lines of a file, read in blocks."""
    with path.open("rb") as stream:
        return sum(block.count(b"\n") for block in iter(lambda: stream.read(_BLOCK), b""))


def first_and_last(path: Path, number: int) -> tuple[list[JsonObject], list[JsonObject], int]:
    """The first and last objects of a JSONL file, and its number of lines. Invalid lines are skipped."""
    first: list[JsonObject] = []
    last: deque[bytes] = deque(maxlen=number)
    count = 0
    with path.open("rb") as stream:
        for line in stream:
            count += 1
            if len(first) < number:
                first.extend(_objects([line]))
            else:
                last.append(line)
    return first, list(_objects(last)), count


def truncate_texts(value: Any, max_length: int) -> Any:
    """A copy with texts of at most `max_length` characters and lists of at most 50 entries."""
    if isinstance(value, dict):
        return {name: truncate_texts(child, max_length) for name, child in value.items()}
    if isinstance(value, list):
        entries = [truncate_texts(child, max_length) for child in value[:50]]
        return [*entries, f"… {len(value) - 50} more"] if len(value) > 50 else entries
    if isinstance(value, str) and len(value) > max_length:
        return f"{value[:max_length]}… ({len(value)} characters)"
    return value


def _objects(lines: Any) -> Iterator[JsonObject]:
    for line in lines:
        try:
            row = orjson.loads(line)
        except orjson.JSONDecodeError:
            continue
        if isinstance(row, dict):
            yield row


def _lines(data: bytes) -> str:
    lines = data.decode("utf-8", errors="replace").split("\n")
    return "\n".join(line if len(line) <= _MAX_LINE else f"{line[:_MAX_LINE]}…" for line in lines)
