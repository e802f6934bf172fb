"""A run's records wherever they lie: in its own file, or in the shards of a run in chunks that is not merged yet.

Shards are read as if they were one file: in plan order of the chunks, with offsets that stay true as long as the
`RecordFile` is kept. What lies beyond a seal is not there.
"""

from __future__ import annotations

import io
import os
from bisect import bisect_right
from dataclasses import dataclass
from itertools import accumulate
from typing import IO, TYPE_CHECKING, BinaryIO

from gymnast.store.chunk_layout import ChunkLayout
from gymnast.store.chunk_records import pieces_of_run
from gymnast.store.paths import RunPaths

if TYPE_CHECKING:
    from pathlib import Path

    from gymnast.store.chunk_records import Piece

_BUFFER = 1 << 20
_FAILURES = "_failures.jsonl"


@dataclass(frozen=True, slots=True)
class RecordFile:
    """A file of records, as it was when this was made."""

    path: Path
    """What it is, or will be, called."""
    pieces: tuple[Piece, ...] | None = None
    """Of shards; None for a file of its own."""

    def exists(self) -> bool:
        return self.pieces is not None or self.path.is_file()

    def open(self) -> BinaryIO | io.BufferedReader:
        if self.pieces is None:
            return self.path.open("rb", buffering=_BUFFER)
        return io.BufferedReader(_Pieces(self.pieces), _BUFFER)

    def modified_at(self) -> float:
        """When something was last written to it."""
        paths = [self.path] if self.pieces is None else [piece.path for piece in self.pieces]
        return max((path.stat().st_mtime for path in paths), default=0.0)


def is_in_chunks(output: Path) -> bool:
    """Whether the records of a run are in shards: it is worked on in chunks, and not all of it was merged."""
    paths = RunPaths(output)
    return ChunkLayout.of(paths).is_planned and not paths.done.exists()


def record_file(given: Path | RecordFile) -> RecordFile:
    """The records that a run's output file or failures file holds, or will hold."""
    if isinstance(given, RecordFile):
        return given
    if is_in_chunks(given):
        return RecordFile(given, pieces_of_run(ChunkLayout.of(RunPaths(given))).scored)
    output = given.with_name(given.name.removesuffix(_FAILURES) + ".jsonl")
    if given.name.endswith(_FAILURES) and is_in_chunks(output):
        return RecordFile(given, pieces_of_run(ChunkLayout.of(RunPaths(output))).failures)
    return RecordFile(given)


class _Pieces(io.RawIOBase):
    """The beginnings of files, one after the other."""

    def __init__(self, pieces: tuple[Piece, ...]) -> None:
        super().__init__()
        self._pieces = pieces
        self._starts = [0, *accumulate(piece.size_bytes for piece in pieces)]
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
            self._stream(number).fileno(), min(len(buffer), self._pieces[number].size_bytes - within), within
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
            self._open = (number, self._pieces[number].path.open("rb", buffering=0))
        return self._open[1]
