"""A run's records, whether in its own file or in the shards of a chunked run that is not merged yet.

Shards are read as one file: in plan order of the chunks, with offsets that stay valid as long as the `RecordFile` is
used. Bytes beyond a seal are not visible.
"""

from __future__ import annotations

import io
import os
from bisect import bisect_right
from dataclasses import dataclass
from itertools import accumulate
from typing import IO, TYPE_CHECKING, BinaryIO

from gymnast.store.chunk_layout import ChunkLayout
from gymnast.store.chunk_records import run_record_files
from gymnast.store.paths import RunPaths

if TYPE_CHECKING:
    from pathlib import Path

    from gymnast.store.chunk_records import FilePrefix

_BUFFER = 1 << 20
_FAILURES = "_failures.jsonl"


@dataclass(frozen=True, slots=True)
class RecordFile:
    """A file of records, as it was when this object was made."""

    path: Path
    """Its name, or the name it will have once merged."""
    shards: tuple[FilePrefix, ...] | None = None
    """The shards; None for a single file."""

    def exists(self) -> bool:
        return self.shards is not None or self.path.is_file()

    def open(self) -> BinaryIO | io.BufferedReader:
        if self.shards is None:
            return self.path.open("rb", buffering=_BUFFER)
        return io.BufferedReader(_ShardReader(self.shards), _BUFFER)

    def modified_at(self) -> float:
        """When it was last written to."""
        paths = [self.path] if self.shards is None else [piece.path for piece in self.shards]
        return max((path.stat().st_mtime for path in paths), default=0.0)


def is_in_chunks(output: Path) -> bool:
    """Whether the records of a run are in shards: it is chunked and not completely merged."""
    paths = RunPaths(output)
    return ChunkLayout.of(paths).is_planned and not paths.done.exists()


def record_file(path: Path | RecordFile) -> RecordFile:
    """The records of a run's output file or failures file, merged or not."""
    if isinstance(path, RecordFile):
        return path
    if is_in_chunks(path):
        return RecordFile(path, run_record_files(ChunkLayout.of(RunPaths(path))).scored)
    output = path.with_name(path.name.removesuffix(_FAILURES) + ".jsonl")
    if path.name.endswith(_FAILURES) and is_in_chunks(output):
        return RecordFile(path, run_record_files(ChunkLayout.of(RunPaths(output))).failures)
    return RecordFile(path)


class _ShardReader(io.RawIOBase):
    """Prefixes of files, concatenated."""

    def __init__(self, shards: tuple[FilePrefix, ...]) -> None:
        super().__init__()
        self._shards = shards
        self._starts = [0, *accumulate(piece.size_bytes for piece in shards)]
        self._position = 0
        self._open: tuple[int, IO[bytes]] | None = None

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._position, os.SEEK_END: self._starts[-1]}[whence]
        self._position = max(0, base + offset)
        return self._position

    def tell(self) -> int:
        return self._position

    def readinto(self, buffer: bytearray | memoryview) -> int:  # type: ignore[override]
        if self._position >= self._starts[-1]:
            return 0
        number = bisect_right(self._starts, self._position) - 1
        within = self._position - self._starts[number]
        data = os.pread(
            self._stream(number).fileno(), min(len(buffer), self._shards[number].size_bytes - within), within
        )
        buffer[: len(data)] = data
        self._position += len(data)
        return len(data)

    def close(self) -> None:
        if self._open is not None:
            self._open[1].close()
            self._open = None
        super().close()

    def _stream(self, number: int) -> IO[bytes]:
        if self._open is None or self._open[0] != number:
            if self._open is not None:
                self._open[1].close()
            self._open = (number, self._shards[number].path.open("rb", buffering=0))
        return self._open[1]
