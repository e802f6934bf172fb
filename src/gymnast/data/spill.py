"""Sets of fixed-size records that may outgrow memory: spilled in sorted runs to one temporary file."""

from __future__ import annotations

import heapq
import os
import tempfile
from contextlib import ExitStack
from itertools import groupby
from typing import TYPE_CHECKING, Final, Self

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_IN_MEMORY: Final = 1 << 17  # records per set: about 10 MB
_READ_RECORDS: Final = 1 << 11


class ScratchFile:
    """A temporary file shared by several sets; created when the first of them outgrows memory."""

    def __init__(self) -> None:
        self._stack = ExitStack()
        self._descriptor: int | None = None
        self._end = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def append(self, data: bytes) -> int:
        """Append bytes; returns their offset."""
        if self._descriptor is None:
            self._descriptor = self._stack.enter_context(tempfile.TemporaryFile()).fileno()  # noqa: SIM115 - the stack closes it
        offset = self._end
        while data:
            written = os.pwrite(self._descriptor, data, self._end)
            self._end += written
            data = data[written:]
        return offset

    def read(self, offset: int, size: int) -> bytes:
        """Read bytes back."""
        assert self._descriptor is not None
        return os.pread(self._descriptor, size, offset)


class SpillSet:
    """A set of records of `width` bytes each. Iterates in sorted order."""

    def __init__(self, scratch: ScratchFile, width: int, *, in_memory: int = _IN_MEMORY) -> None:
        self._scratch = scratch
        self._width = width
        self._in_memory = in_memory
        self._recent: set[bytes] = set()
        self._runs: list[range] = []

    def add(self, record: bytes) -> None:
        self._recent.add(record)
        if len(self._recent) >= self._in_memory:
            data = b"".join(sorted(self._recent))
            offset = self._scratch.append(data)
            self._runs.append(range(offset, offset + len(data), _READ_RECORDS * self._width))
            self._recent.clear()

    def update(self, records: Iterable[bytes]) -> None:
        for record in records:
            self.add(record)

    def __iter__(self) -> Iterator[bytes]:
        if not self._runs:
            yield from sorted(self._recent)
            return
        for record, _ in groupby(heapq.merge(sorted(self._recent), *(self._read_run(run) for run in self._runs))):
            yield record

    def count(self) -> int:
        """The number of distinct records. Reads them all if they outgrew memory."""
        return sum(1 for _ in self) if self._runs else len(self._recent)

    def _read_run(self, offsets: range) -> Iterator[bytes]:
        for offset in offsets:
            data = self._scratch.read(offset, min(offsets.step, offsets.stop - offset))
            for start in range(0, len(data), self._width):
                yield data[start : start + self._width]
