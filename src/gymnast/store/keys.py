"""Which rollout a line of a run's files belongs to, found at the line's end without parsing the whole line."""

from __future__ import annotations

import re
from typing import Any, Final

import msgspec
import orjson

from gymnast.types.task import ROLLOUT_INDEX, TASK_INDEX, RolloutKey, key_of

_TASK: Final = f'"{TASK_INDEX}":'.encode()
_LONGEST_TAIL: Final = 4096
_LONGEST_END: Final = 100
INDEXES_AT_END: Final = re.compile(
    rb',\s?"%b":\s?(\d+),\s?"%b":\s?(\d+)\}\s*$' % (TASK_INDEX.encode(), ROLLOUT_INDEX.encode())
)
"""How a planned row ends."""


def key_of_line(line: bytes) -> RolloutKey | None:
    """The key of a record or of a materialized input, or None if the line has none or is not JSON.

    Our writers put the identity last, so what follows the task index is short. It is parsed as the rest of an object,
    which also proves that the index stands at the top level. Any other line is parsed whole.
    """
    end = INDEXES_AT_END.search(line, max(0, len(line) - _LONGEST_END))
    if end is not None:
        return RolloutKey(int(end[1]), int(end[2]))
    start = line.rfind(_TASK)
    if start > 0 and len(line) - start < _LONGEST_TAIL and line[start - 1 : start] in (b",", b"{", b" "):
        try:
            rest = orjson.loads(b"{" + line[start:])
        except orjson.JSONDecodeError:
            return _parsed(line)
        found = key_of(rest)
        return found if found is not None else _parsed(line)
    return _parsed(line)


class _Scored(msgspec.Struct):
    """What makes a line a scored record."""

    reward: float
    task: int = msgspec.field(name=TASK_INDEX)
    rollout: int = msgspec.field(name=ROLLOUT_INDEX)


class _Attempt(msgspec.Struct):
    """What makes a line the record of a failed attempt."""

    task: int = msgspec.field(name=TASK_INDEX)
    rollout: int = msgspec.field(name=ROLLOUT_INDEX)
    failure: dict[str, Any] | None = None


_SCORED: Final = msgspec.json.Decoder(_Scored)
_ATTEMPT: Final = msgspec.json.Decoder(_Attempt)


def key_of_record(line: bytes, *, scored: bool) -> RolloutKey | None:
    """The key of a line that is a record from its first byte to its last; None for any other.

    Reading a file that a crash may have damaged is no place for shortcuts: an end that looks right may follow anything.
    Fields that nobody asks for are checked and skipped, at more than a gigabyte a second.
    """
    try:
        if not line.isascii():
            line.decode()  # text that is skipped is not decoded
        found: _Scored | _Attempt = (_SCORED if scored else _ATTEMPT).decode(line)
    except (ValueError, RecursionError):
        return None
    return RolloutKey(found.task, found.rollout)


def _parsed(line: bytes) -> RolloutKey | None:
    try:
        row = orjson.loads(line)
    except orjson.JSONDecodeError:
        return None
    return key_of(row) if isinstance(row, dict) else None
