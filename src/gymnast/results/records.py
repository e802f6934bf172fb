"""The records, failures and inputs of a run, read lazily, also while the run is being written."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, Generic, TypeVar

import orjson

from gymnast.errors import DataError
from gymnast.profile.failures import decode_failure
from gymnast.rollouts.record import Record
from gymnast.store.chunk_records import FilePrefix
from gymnast.store.keys import key_of_line
from gymnast.store.lines import numbered_lines
from gymnast.store.records import RecordFile, record_file

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from gymnast.types.json import JsonObject

Item = TypeVar("Item")
_BLOCK: Final = 1 << 16


@dataclass(frozen=True, slots=True)
class Lines(Generic[Item]):
    """The items of a JSONL file. Each iteration reads the file again, line by line; nothing is kept in memory."""

    path: Path
    _decode: Callable[[bytes, str], Item]

    def __iter__(self) -> Iterator[Item]:
        records = complete_records(self.path)
        for number, line in numbered_lines(records) if records.exists() else ():
            if line and not line.isspace():
                yield self._decode(line, f"{self.path} line {number}")

    def __repr__(self) -> str:
        return f"<the lines of {self.path}>"


def decode_rollout(line: bytes, where: str) -> Record:
    """A scored record."""
    key = key_of_line(line)
    if key is None:
        raise DataError("not a record: it has no task and rollout index", where=where)
    return Record(key, line)


def decode_failed_attempt(line: bytes, where: str) -> Record:
    """The record of a failed attempt."""
    failure = decode_failure(line, where)
    return Record(failure.key, line, failure.kind)


def decode_row(line: bytes, where: str) -> JsonObject:
    """Any row."""
    try:
        row = orjson.loads(line)
    except orjson.JSONDecodeError as error:
        raise DataError(f"not JSON: {error.msg} at column {error.colno}", where=where) from error
    if not isinstance(row, dict):
        raise DataError("the row is not a JSON object", where=where)
    return row


def complete_records(path: Path) -> RecordFile:
    """The records of a file without a last line that is still being written, or was cut off by a crash."""
    records = record_file(path)
    if records.shards is not None:
        return RecordFile(path, tuple(map(_without_tail, records.shards)))
    if not records.exists():
        return records
    whole = FilePrefix(path, path.stat().st_size)
    tail = _tail(whole)
    return RecordFile(path, (_shortened(whole, tail),)) if tail and not _is_json(tail) else records


def _without_tail(shard: FilePrefix) -> FilePrefix:
    return shard if shard.is_verified else _shortened(shard, _tail(shard))


def _shortened(piece: FilePrefix, tail: bytes) -> FilePrefix:
    return replace(piece, size_bytes=piece.size_bytes - len(tail))


def _tail(piece: FilePrefix) -> bytes:
    """What follows the last newline."""
    tail = b""
    with piece.path.open("rb") as stream:
        for end in range(piece.size_bytes, 0, -_BLOCK):
            start = max(0, end - _BLOCK)
            stream.seek(start)
            block = stream.read(end - start)
            newline = block.rfind(b"\n")
            tail = block[newline + 1 :] + tail
            if newline >= 0:
                break
    return tail


def _is_json(text: bytes) -> bool:
    try:
        orjson.loads(text)
    except orjson.JSONDecodeError:
        return False
    return True
