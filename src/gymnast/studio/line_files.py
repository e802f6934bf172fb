"""The files with the records of a run, and their lines.

The last line of a file counts once it is complete.
"""

from __future__ import annotations

import hashlib
import os
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Self

import numpy as np

from gymnast.errors import DataError
from gymnast.store.records import record_file

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from gymnast.store.paths import RunPaths

BATCH_BYTES: Final = 1 << 21
"""Decoded at once: enough that what each array costs does not count, and little memory."""
_MAX_LINE: Final = 1 << 28
TAIL_BYTES: Final = 256
_PART: Final = 1 << 16
_NEWLINE: Final = ord("\n")
_OPEN, _CLOSE = b"{}"
_ZERO: Final = np.zeros(1, np.int64)


@dataclass(frozen=True, slots=True)
class Source:
    """A file with records, as far as it belongs to the run."""

    path: Path
    size_bytes: int
    failures: bool


def read_sources(paths: RunPaths) -> list[Source]:
    """The files with the records of a run, merged or not, as far as they belong to it."""
    sources = []
    for path, failures in ((paths.output, False), (paths.failures, True)):
        records = record_file(path)
        if records.shards is not None:
            sources += [Source(shard.path, shard.size_bytes, failures) for shard in records.shards]
            continue
        with suppress(FileNotFoundError, NotADirectoryError):
            sources.append(Source(path, path.stat().st_size, failures))
    return sources


@dataclass(frozen=True, slots=True)
class Batch:
    """Whole lines, one after the other."""

    data: bytes
    """These lines, and perhaps a part of the next."""
    ends: NDArray[np.int64]
    """The end of each line in the data."""
    offset: int = 0
    """Where the data starts in its file."""

    @classmethod
    def of(cls, lines: Sequence[bytes]) -> Self:
        return cls(b"".join(lines), np.cumsum([len(line) for line in lines], dtype=np.int64))

    @property
    def size_bytes(self) -> int:
        return int(self.ends[-1]) if len(self.ends) else 0

    @property
    def text(self) -> memoryview:
        """The lines without a copy."""
        return memoryview(self.data)[: self.size_bytes]

    @property
    def starts(self) -> NDArray[np.int64]:
        return np.concatenate((_ZERO, self.ends[:-1]))

    @property
    def lines(self) -> list[bytes]:
        return [self.data[start:end] for start, end in zip(self.starts.tolist(), self.ends.tolist(), strict=True)]

    @property
    def has_objects(self) -> bool:
        """Whether each line starts and ends as an object does. If so, no JSON value is on more than one line."""
        characters = np.frombuffer(self.data, np.uint8)
        is_start, is_end = characters[self.starts] == _OPEN, characters[np.maximum(self.ends - 2, 0)] == _CLOSE
        return bool(is_start.all() and is_end.all())


def read_lines(source: Source, start: int) -> Iterator[Batch]:
    """Whole lines from an offset on, some at a time. The last one counts once it ends."""
    size = BATCH_BYTES
    with source.path.open("rb", buffering=0) as stream:
        while start < source.size_bytes:
            data = os.pread(stream.fileno(), min(size, source.size_bytes - start), start)
            ends = _find_newlines(data) + 1
            if len(ends):
                batch = Batch(data, ends, start)
                yield batch
                start, size = start + batch.size_bytes, BATCH_BYTES
            elif len(data) < size:
                return
            elif size >= _MAX_LINE:
                raise DataError(f"a line is longer than {_MAX_LINE >> 20} MiB", where=str(source.path))
            else:
                size = min(2 * size, _MAX_LINE)


def _find_newlines(data: bytes) -> NDArray[np.int64]:
    """Where lines end; a part at a time, so that what is compared stays in the processor's cache."""
    characters = np.frombuffer(data, np.uint8)
    parts = [
        np.flatnonzero(characters[start : start + _PART] == _NEWLINE) + start for start in range(0, len(data), _PART)
    ]
    return np.concatenate(parts) if parts else np.zeros(0, np.int64)


def tail_digest(path: Path, end: int, last: bytes = b"") -> bytes:
    """Of the last bytes before an offset: if they differ, the file is another one. `last`: the line that ends there."""
    size = min(TAIL_BYTES, end)
    tail = last[-size:]
    if len(tail) < size:
        with path.open("rb", buffering=0) as stream:
            tail = os.pread(stream.fileno(), size, end - size)
    return hashlib.blake2b(tail, digest_size=8).digest()
