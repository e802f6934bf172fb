"""Reads JSONL files line by line without loading them into memory."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, BinaryIO, Self

from gymnast.errors import DataError
from gymnast.store.records import record_file

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from gymnast.store.records import RecordFile


def numbered_lines(path: Path | RecordFile) -> Iterator[tuple[int, bytes]]:
    """Every line without its newline, numbered from 1. Records of a chunked run are read from its shards."""
    records = record_file(path)
    try:
        with records.open() as stream:
            for number, line in enumerate(stream, 1):
                yield number, line.rstrip(b"\r\n")
    except OSError as error:
        raise DataError(f"cannot read the input file: {error.strerror or error}", where=str(records.path)) from error


class LinesAt:
    """Reads single lines by their offset. Use as `with LinesAt(paths) as lines`."""

    def __init__(self, paths: Sequence[Path]) -> None:
        self._paths = paths
        self._open = ExitStack()
        self._streams: list[BinaryIO] = []

    def __enter__(self) -> Self:
        try:
            self._streams = [self._open.enter_context(path.open("rb")) for path in self._paths]
        except OSError as error:
            self._open.close()
            raise DataError(f"cannot read the file: {error.strerror or error}", where=str(error.filename)) from error
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    def line(self, source: int, offset: int) -> bytes:
        """The line at this offset of the file with this index."""
        stream = self._streams[source]
        stream.seek(offset)
        return stream.readline()
