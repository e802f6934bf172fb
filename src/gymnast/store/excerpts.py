"""Bounded looks at files of any size: the head and tail of a log, the first and last lines of a JSONL file."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, Final

import orjson

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from gymnast.types.json import JsonObject

_LONGEST_LINE: Final = 4000
_BLOCK: Final = 1 << 20


def head_and_tail(path: Path, *, head_bytes: int, tail_bytes: int) -> str:
    """The whole of a small file, or its beginning and its end, in whole lines where there are any."""
    size = path.stat().st_size
    with path.open("rb") as stream:
        if size <= head_bytes + tail_bytes:
            return _lines(stream.read())
        first = stream.read(head_bytes)
        stream.seek(size - tail_bytes)
        last = stream.read(tail_bytes)
    first = first[: first.rfind(b"\n") + 1] or first
    last = last[last.find(b"\n") + 1 :] or last
    left_out = size - len(first) - len(last)
    return f"{_lines(first)}\n… {left_out} bytes left out …\n{_lines(last)}"


def count_lines(path: Path) -> int:
    """Lines of a file, read in blocks."""
    with path.open("rb") as stream:
        return sum(block.count(b"\n") for block in iter(lambda: stream.read(_BLOCK), b""))


def first_and_last(path: Path, number: int) -> tuple[list[JsonObject], list[JsonObject], int]:
    """The first and last objects of a JSONL file, and how many lines it has. Lines that are none are skipped."""
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


def shortened(value: Any, longest: int) -> Any:
    """A copy in which no text is longer than that, and no list has more than 50 entries."""
    if isinstance(value, dict):
        return {name: shortened(child, longest) for name, child in value.items()}
    if isinstance(value, list):
        kept = [shortened(child, longest) for child in value[:50]]
        return [*kept, f"… {len(value) - 50} more"] if len(value) > 50 else kept
    if isinstance(value, str) and len(value) > longest:
        return f"{value[:longest]}… ({len(value)} characters)"
    return value


def _objects(lines: Any) -> Iterator[JsonObject]:
    for line in lines:
        try:
            found = orjson.loads(line)
        except orjson.JSONDecodeError:
            continue
        if isinstance(found, dict):
            yield found


def _lines(data: bytes) -> str:
    lines = data.decode("utf-8", errors="replace").split("\n")
    return "\n".join(line if len(line) <= _LONGEST_LINE else f"{line[:_LONGEST_LINE]}…" for line in lines)
