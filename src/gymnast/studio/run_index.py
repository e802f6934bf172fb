"""The index of a run: its lines in columns, kept up to date as the files grow.

Lines are only ever appended to the files of a run. A file that became shorter, was replaced or is no longer part of the
run (after a merge, a resume from scratch) makes the index start over. The last line counts once it is complete.
"""

from __future__ import annotations

import hashlib
import os
import sqlite3
import threading
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from gymnast.errors import DataError, UserError
from gymnast.store.records import record_file
from gymnast.studio.index_file import FIXED, IndexFile, Position
from gymnast.studio.line_columns import FAILED, LineReader, Lines
from gymnast.studio.text_signature import match_parts, query_bits

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from gymnast.store.paths import RunPaths
    from gymnast.studio.text_signature import Alternatives

BLOCK_LINES: Final = 2048
_BATCH_LINES: Final = 256
"""Decoded at once: about as much as the processor's cache holds."""
_BUFFER: Final = 1 << 18
_MAX_LINE: Final = 1 << 28
_TAIL: Final = 256
_MAX_DISTINCT: Final = 50_000
"""Texts with more distinct values are no column: each page reads them from its records."""


@dataclass(frozen=True, slots=True)
class Progress:
    """How far an index is."""

    state: str = "none"
    """none, building, ready or failed."""
    done_bytes: int = 0
    total_bytes: int = 0
    lines: int = 0
    problem: str | None = None


@dataclass(frozen=True, slots=True)
class Source:
    """A file with records, as far as it belongs to the run."""

    path: Path
    size_bytes: int
    failures: bool


class TextColumn:
    """Texts as numbers of a dictionary; -1 for none."""

    def __init__(self) -> None:
        self.numbers: dict[str, int] = {}
        self.codes = _Growing(np.int32, -1)

    @property
    def is_full(self) -> bool:
        return len(self.numbers) > _MAX_DISTINCT

    def add(self, start: int, values: Sequence[str | None]) -> None:
        numbers = self.numbers
        if values and values.count(values[0]) == len(values):  # most columns are the same in many records
            first = values[0]
            code = -1 if first is None else numbers.setdefault(first, len(numbers))
            self.codes.put(start, np.full(len(values), code, np.int32))
            return
        codes = [-1 if value is None else numbers.setdefault(value, len(numbers)) for value in values]
        self.codes.put(start, np.array(codes, np.int32))


class _Growing:
    """An array that grows by a quarter at a time."""

    def __init__(self, dtype: Any, fill: float) -> None:
        self._data = np.full(0, fill, dtype)
        self._fill = fill

    def put(self, start: int, values: NDArray[Any]) -> None:
        end = start + len(values)
        self._reserve(end)
        self._data[start:end] = values

    def first(self, count: int) -> NDArray[Any]:
        self._reserve(count)
        return self._data[:count]

    def _reserve(self, count: int) -> None:
        if count > len(self._data):
            larger = np.full(max(count, len(self._data) * 5 // 4, BLOCK_LINES), self._fill, self._data.dtype)
            larger[: len(self._data)] = self._data
            self._data = larger


@dataclass(slots=True)
class Columns:
    """All lines of a run in memory."""

    count: int = 0
    fixed: dict[str, _Growing] = field(
        default_factory=lambda: {
            "keys": _Growing(np.int64, 0),
            "sources": _Growing(np.int32, 0),
            "offsets": _Growing(np.int64, 0),
            "sizes": _Growing(np.int32, 0),
            "output_bytes": _Growing(np.int32, 0),
            "flags": _Growing(np.uint8, 0),
        }
    )
    numbers: dict[str, _Growing] = field(default_factory=dict)
    texts: dict[str, TextColumn] = field(default_factory=dict)

    def add(self, lines: Lines) -> None:
        for name, column in self.fixed.items():
            column.put(self.count, getattr(lines, name))
        for name, values in lines.numbers.items():
            if name in self.numbers or not np.isnan(values).all():  # columns without any value take no memory
                self.numbers.setdefault(name, _Growing(np.float64, np.nan)).put(self.count, values)
        for name, texts in lines.texts.items():
            if name not in self.texts and texts.count(None) == len(texts):
                continue
            own = self.texts.setdefault(name, TextColumn())
            if not own.is_full:
                own.add(self.count, texts)
        self.count += len(lines)


class RunIndex:
    """The index of one run. `update` runs in one thread at a time; reading is safe from any."""

    def __init__(self, paths: RunPaths, file: Path | None) -> None:
        self._paths = paths
        self._file_path = file
        self._file: IndexFile | None = None
        self._lock = threading.RLock()
        self._columns = Columns()
        self._starts: list[int] = []
        """The first line of each block in the file."""
        self._tail: list[Lines] = []
        """Lines that do not fill a block yet."""
        self._positions: list[Position] = []
        self._reader = LineReader()
        self._is_loaded = False
        self.progress = Progress()
        self.generation = 0
        """Changes whenever the index starts over."""

    # --- reading the files -------------------------------------------------------------------------------------------

    def update(
        self, should_stop: Callable[[], bool] = lambda: False, report: Callable[[], None] = lambda: None
    ) -> bool:
        """Index what the files have and the index has not. True if lines were added."""
        try:
            before = self._columns.count, self.generation
            sources = read_sources(self._paths)
            total = sum(source.size_bytes for source in sources)
            if not self._is_loaded:
                self._load()
            if not self._continues(sources):
                self._start_over()
            self._set_progress("building", total)
            for number, source in enumerate(sources):
                self._read_source(number, source, total, should_stop, report)
            is_done = all(
                position.end >= source.size_bytes for position, source in zip(self._positions, sources, strict=False)
            )
            self._set_progress("ready" if is_done or not should_stop() else "building", total)
            return (self._columns.count, self.generation) != before
        except (OSError, UserError) as error:
            self.progress = Progress("failed", problem=getattr(error, "what", None) or str(error))
            return False
        except sqlite3.Error:
            self._drop_file()
            return False

    def _set_progress(self, state: str, total: int) -> None:
        done = sum(position.end for position in self._positions)
        self.progress = Progress(state, min(done, total), total, self._columns.count)

    def _load(self) -> None:
        self._is_loaded = True
        if self._file_path is None:
            return
        try:
            self._file = IndexFile(self._file_path)
            for lines, positions in self._file.read():
                with self._lock:
                    self._starts.append(self._columns.count)
                    self._columns.add(lines)
                    self._positions = positions
        except (sqlite3.Error, OSError, ValueError, KeyError, TypeError):
            self._drop_file()
            self._start_over()

    def _drop_file(self) -> None:
        """Go on without a file, or with a new one."""
        if self._file is not None:
            with suppress(sqlite3.Error, OSError):
                self._file.close()
                self._file.delete_files()
        self._file = None
        with suppress(sqlite3.Error, OSError):
            if self._file_path is not None:
                self._file = IndexFile(self._file_path)
        self._start_over()

    def _start_over(self) -> None:
        with self._lock:
            self._columns, self._tail, self._starts, self._positions = Columns(), [], [], []
            self._reader = LineReader()
            self.generation += 1
        if self._file is not None:
            self._file.clear()

    def _continues(self, sources: Sequence[Source]) -> bool:
        """Whether every file that was indexed is still what it was, and perhaps longer."""
        if len(sources) < len(self._positions):
            return False
        for position, source in zip(self._positions, sources, strict=False):
            if position.path != str(source.path) or position.end > source.size_bytes:
                return False
            if position.end and _tail_digest(source.path, position.end) != position.digest:
                return False
        return True

    def _read_source(
        self, number: int, source: Source, total: int, should_stop: Callable[[], bool], report: Callable[[], None]
    ) -> None:
        if number == len(self._positions):
            self._positions = [*self._positions, Position(str(source.path), 0, b"", source.failures)]
        start = self._positions[number].end
        if start >= source.size_bytes:
            return
        for offsets, lines, end in _read_lines(source, start):
            if should_stop():
                return
            self._add(number, offsets, lines, source, end)
            self._set_progress("building", total)
            report()

    def _add(self, number: int, offsets: list[int], lines: list[bytes], source: Source, end: int) -> None:
        rows = self._reader.read(number, offsets, lines, failures=source.failures)
        position = Position(str(source.path), end, _tail_digest(source.path, end), source.failures)
        with self._lock:
            self._positions = [*self._positions[:number], position, *self._positions[number + 1 :]]
            self._columns.add(rows)
            self._tail.append(rows)
        if sum(map(len, self._tail)) >= BLOCK_LINES:
            self._store_tail()

    def _store_tail(self) -> None:
        """Move the tail to a block of the file, so that its signatures leave the memory."""
        if self._file is None:
            return
        self._file.add(len(self._starts), join_lines(self._tail), self._positions)
        with self._lock:
            self._starts.append(self._columns.count - sum(map(len, self._tail)))
            self._tail = []

    def close(self) -> None:
        """Close the file. The index must not be used afterwards."""
        with self._lock:
            if self._file is not None:
                self._file.close()
            self._file = None

    # --- using it ----------------------------------------------------------------------------------------------------

    def snapshot(self) -> Snapshot:
        """The columns as they are now. Later lines do not change it."""
        with self._lock:
            columns, count = self._columns, self._columns.count
            return Snapshot(
                version=(self.generation, count),
                fixed={name: column.first(count) for name, column in columns.fixed.items()},
                numbers={name: column.first(count) for name, column in columns.numbers.items()},
                texts={
                    name: (column.codes.first(count), list(column.numbers))
                    for name, column in columns.texts.items()
                    if not column.is_full
                },
                paths=[position.path for position in self._positions],
            )

    def match(self, words: Sequence[str], count: int) -> NDArray[np.bool_]:
        """Which of the first `count` lines may have these words; all of them if the words are too short to tell."""
        parts = query_bits(words)
        matches = np.ones(count, np.bool_)
        if not parts:
            return matches
        with self._lock:
            file, starts, tail = self._file, list(self._starts), list(self._tail)
            end = self._columns.count - sum(map(len, tail))
        for number, (first, last) in enumerate(zip(starts, [*starts, end][1:], strict=True)):
            if file is not None and first < count:
                with suppress(sqlite3.Error):  # the file was deleted: then every line is compared
                    matches[first:last] = file.match(number, last - first, parts)[: max(0, count - first)]
        for lines in tail:
            size = min(len(lines), count - end)
            if size > 0:
                matches[end : end + size] = match_lines(lines, parts)[:size]
            end += len(lines)
        return matches


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The columns of a run's lines at one moment."""

    version: tuple[int, int]
    fixed: dict[str, NDArray[Any]]
    numbers: dict[str, NDArray[np.float64]]
    texts: dict[str, tuple[NDArray[np.int32], list[str]]]
    """Codes, and the texts they stand for."""
    paths: list[str]
    """The files that `sources` refers to."""

    def __len__(self) -> int:
        return len(self.fixed["keys"])

    @property
    def is_failure(self) -> NDArray[np.bool_]:
        is_failure: NDArray[np.bool_] = (self.fixed["flags"] & FAILED) != 0
        return is_failure


def match_lines(lines: Lines, parts: Sequence[Alternatives]) -> NDArray[np.bool_]:
    """Which lines may have the words with these bits."""
    return match_parts(lambda bit: lines.signatures[:, bit // 8].tobytes(), parts, len(lines))


def join_lines(parts: Sequence[Lines]) -> Lines:
    """Lines one after the other. A field that some parts do not have is empty there."""
    sizes = [len(part) for part in parts]
    numbers = {name: None for part in parts for name in part.numbers}
    texts = {name: None for part in parts for name in part.texts}

    def gaps(size: int) -> NDArray[np.float64]:
        return np.full(size, np.nan)

    return Lines(
        **{name: np.concatenate([getattr(part, name) for part in parts]) for name in FIXED},
        numbers={
            name: np.concatenate([part.numbers.get(name, gaps(size)) for part, size in zip(parts, sizes, strict=True)])
            for name in numbers
        },
        texts={
            name: [
                text for part, size in zip(parts, sizes, strict=True) for text in part.texts.get(name, [None] * size)
            ]
            for name in texts
        },
        signatures=np.concatenate([part.signatures for part in parts]),
    )


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


def _read_lines(source: Source, start: int) -> Iterator[tuple[list[int], list[bytes], int]]:
    """Whole lines from an offset on, some at a time: their offsets, and where they end."""
    offsets: list[int] = []
    lines: list[bytes] = []
    with source.path.open("rb", buffering=_BUFFER) as stream:
        stream.seek(start)
        for line in iter(lambda: stream.readline(_MAX_LINE), b""):
            if not line.endswith(b"\n"):
                if len(line) >= _MAX_LINE:
                    raise DataError(f"a line is longer than {_MAX_LINE >> 20} MiB", where=str(source.path))
                break  # still being written
            if start + len(line) > source.size_bytes:
                break  # beyond what belongs to the run
            offsets.append(start)
            lines.append(line)
            start += len(line)
            if len(lines) == _BATCH_LINES:
                yield offsets, lines, start
                offsets, lines = [], []
    if lines:
        yield offsets, lines, start


def _tail_digest(path: Path, end: int) -> bytes:
    first = max(0, end - _TAIL)
    with path.open("rb", buffering=0) as stream:
        return hashlib.blake2b(os.pread(stream.fileno(), end - first, first), digest_size=8).digest()
