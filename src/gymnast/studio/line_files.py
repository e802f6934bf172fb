"""The files with the records of a run, and their lines.

The last line of a file counts once it is complete.
"""

from __future__ import annotations

import hashlib
import os
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

from gymnast.errors import DataError
from gymnast.store.records import record_file

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from gymnast.store.paths import RunPaths

BATCH_BYTES: Final = 1 << 20
"""Decoded at once: about as much as the processor's cache holds, and enough that arrays pay."""
_BUFFER: Final = 1 << 17
_MAX_LINE: Final = 1 << 28
_TAIL: Final = 256


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


def read_lines(source: Source, start: int) -> Iterator[tuple[int, list[bytes], int]]:
    """Whole lines from an offset on, some at a time: where they start, and where they end."""
    lines: list[bytes] = []
    end = start
    with source.path.open("rb", buffering=_BUFFER) as stream:
        stream.seek(start)
        for line in iter(partial(stream.readline, _MAX_LINE), b""):
            end += len(line)
            if end > source.size_bytes or not line.endswith(b"\n"):
                if len(line) >= _MAX_LINE:
                    raise DataError(f"a line is longer than {_MAX_LINE >> 20} MiB", where=str(source.path))
                end -= len(line)  # still being written, or beyond what belongs to the run
                break
            lines.append(line)
            if end - start >= BATCH_BYTES:
                yield start, lines, end
                start, lines = end, []
    if lines:
        yield start, lines, end


def tail_digest(path: Path, end: int, last: bytes = b"") -> bytes:
    """Of the last bytes before an offset: if they differ, the file is another one. `last`: the line that ends there."""
    size = min(_TAIL, end)
    tail = last[-size:]
    if len(tail) < size:
        with path.open("rb", buffering=0) as stream:
            tail = os.pread(stream.fileno(), size, end - size)
    return hashlib.blake2b(tail, digest_size=8).digest()
