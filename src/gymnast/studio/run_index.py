"""The index of a run: its lines in columns, kept up to date as the files grow.

Lines are only ever appended to the files of a run. A file that became shorter, was replaced or is no longer part of the
run (after a merge, a resume from scratch) makes the index start over. The last line counts once it is complete.
"""

from __future__ import annotations

import sqlite3
import threading
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from gymnast.errors import UserError
from gymnast.studio.column_store import Columns, Snapshot
from gymnast.studio.index_file import IndexFile, Position
from gymnast.studio.line_columns import join_lines
from gymnast.studio.line_files import TAIL_BYTES, read_lines, read_sources, tail_digest
from gymnast.studio.line_reader import LineReader
from gymnast.studio.query_bits import match_parts, query_bits

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from gymnast.store.paths import RunPaths
    from gymnast.studio.line_columns import Lines
    from gymnast.studio.line_files import Batch, Source
    from gymnast.studio.query_bits import Alternatives

BLOCK_LINES: Final = 2048


@dataclass(frozen=True, slots=True)
class Progress:
    """How far an index is."""

    state: str = "none"
    """none, building, ready or failed."""
    done_bytes: int = 0
    total_bytes: int = 0
    lines: int = 0
    problem: str | None = None


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
            if position.end and tail_digest(source.path, position.end) != position.digest:
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
        for batch in read_lines(source, start):
            if should_stop():
                return
            self._add(number, batch, source, total)
            self._set_progress("building", total)
            report()

    def _add(self, number: int, batch: Batch, source: Source, total: int) -> None:
        rows = self._reader.read(number, batch, failures=source.failures)
        end = batch.offset + batch.size_bytes
        digest = tail_digest(source.path, end, bytes(batch.text[-TAIL_BYTES:]))
        position = Position(str(source.path), end, digest, source.failures)
        with self._lock:
            self._positions = [*self._positions[:number], position, *self._positions[number + 1 :]]
            done = sum(position.end for position in self._positions)
            self._columns.add(rows, (self._columns.count + len(rows)) * total // max(1, done))
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


def match_lines(lines: Lines, parts: Sequence[Alternatives]) -> NDArray[np.bool_]:
    """Which lines may have the words with these bits."""
    return match_parts(lambda byte: lines.signatures[:, byte].tobytes(), parts, len(lines))
