"""The records of a file without a last line that is still being written, or was cut off by a crash."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

import orjson

from gymnast.store.chunk_records import FilePrefix
from gymnast.store.records import RecordFile, record_file

if TYPE_CHECKING:
    from pathlib import Path

_BLOCK: Final = 1 << 16


def complete_records(path: Path) -> RecordFile:
    """The records of a run's file that are complete."""
    records = record_file(path)
    if records.shards is not None:
        return RecordFile(path, tuple(map(_without_tail, records.shards)))
    if not records.exists():
        return records
    whole = FilePrefix(path, path.stat().st_size)
    tail = _tail(whole)
    return RecordFile(path, (_shorten(whole, tail),)) if tail and not _is_json(tail) else records


def _without_tail(shard: FilePrefix) -> FilePrefix:
    return shard if shard.is_verified else _shorten(shard, _tail(shard))


def _shorten(piece: FilePrefix, tail: bytes) -> FilePrefix:
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
