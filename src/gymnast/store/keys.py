"""Rollout keys: read from the end of a line of a run's files without parsing all of it, and compact sets of them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

import msgspec
import orjson

from gymnast.errors import DataError
from gymnast.types.task import ROLLOUT_INDEX, TASK_INDEX, RolloutKey, key_of

if TYPE_CHECKING:
    from pathlib import Path

_TASK: Final = f'"{TASK_INDEX}":'.encode()
_MAX_TAIL: Final = 4096
_MAX_END: Final = 100
INDEXES_AT_END: Final = re.compile(
    rb',\s?"%b":\s?(\d+),\s?"%b":\s?(\d+)\}\s*$' % (TASK_INDEX.encode(), ROLLOUT_INDEX.encode())
)
"""How a planned row ends."""


def key_of_line(line: bytes) -> RolloutKey | None:
    """The key of a record or of a materialized input, or None if the line has none or is not JSON.

    Gymnast writes the identity last, so what follows the task index is short. It is parsed as the rest of an object,
    which also proves that the index is at the top level. Any other line is parsed completely.
    """
    end = INDEXES_AT_END.search(line, max(0, len(line) - _MAX_END))
    if end is not None:
        return RolloutKey(int(end[1]), int(end[2]))
    start = line.rfind(_TASK)
    if start > 0 and len(line) - start < _MAX_TAIL and line[start - 1 : start] in (b",", b"{", b" "):
        try:
            rest = orjson.loads(b"{" + line[start:])
        except orjson.JSONDecodeError:
            return _parse_key(line)
        key = key_of(rest)
        return key if key is not None else _parse_key(line)
    return _parse_key(line)


def require_key(line: bytes, path: Path, number: int | None = None) -> RolloutKey:
    """The key of a materialized input. Raises DataError if it has none; `number` is the line's in its file."""
    key = key_of_line(line)
    if key is None:
        where = str(path) if number is None else f"{path} line {number}"
        raise DataError("a materialized input has no task and rollout index", where=where)
    return key


class ScoredKey(msgspec.Struct, gc=False):
    """The fields that make a line a scored record."""

    reward: float
    task: int = msgspec.field(name=TASK_INDEX)
    rollout: int = msgspec.field(name=ROLLOUT_INDEX)


class _Attempt(msgspec.Struct):
    """The fields that make a line the record of a failed attempt."""

    task: int = msgspec.field(name=TASK_INDEX)
    rollout: int = msgspec.field(name=ROLLOUT_INDEX)
    failure: dict[str, Any] | None = None


_SCORED: Final = msgspec.json.Decoder(ScoredKey)
_ATTEMPT: Final = msgspec.json.Decoder(_Attempt)


def key_of_record(line: bytes, *, scored: bool) -> RolloutKey | None:
    """The key of a line that is a valid record from its first byte to its last; None for any other.

    For files that a crash may have damaged, where a valid end may follow garbage. Other fields are validated and
    skipped, at more than a gigabyte per second.
    """
    try:
        if not line.isascii():
            line.decode()  # the decoder does not validate text that it skips
        record: ScoredKey | _Attempt = (_SCORED if scored else _ATTEMPT).decode(line)
    except (ValueError, RecursionError):
        return None
    return RolloutKey(record.task, record.rollout)


def _parse_key(line: bytes) -> RolloutKey | None:
    try:
        row = orjson.loads(line)
    except orjson.JSONDecodeError:
        return None
    return key_of(row) if isinstance(row, dict) else None


_BITS: Final = 6
_LAST: Final = (1 << _BITS) - 1
_ROLLOUT: Final = (1 << 32) - 1


class KeySet:
    """A set of packed keys. A set of Python integers would take 60 to 100 bytes per key."""

    __slots__ = ("_count", "_pages")

    def __init__(self) -> None:
        self._pages: dict[int, int] = {}
        self._count = 0

    def add(self, packed: int) -> None:
        # Tasks with the same rollout index are adjacent, so that pages fill up whatever the number of repeats.
        position = ((packed & _ROLLOUT) << 64) + (packed >> 32)
        page, bit = position >> _BITS, 1 << (position & _LAST)
        before = self._pages.get(page, 0)
        if not before & bit:
            self._pages[page] = before | bit
            self._count += 1

    def __contains__(self, packed: object) -> bool:
        if not isinstance(packed, int):
            return False
        position = ((packed & _ROLLOUT) << 64) + (packed >> 32)
        return bool(self._pages.get(position >> _BITS, 0) >> (position & _LAST) & 1)

    def __len__(self) -> int:
        return self._count
