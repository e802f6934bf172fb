"""Where the records of a chunk are, by their position in the plan.

Every line is checked before it is merged: storage may have damaged what its holder wrote correctly. A damaged line is
no record, so its rollout is missing, and a merge that is not partial refuses.
"""

from __future__ import annotations

import mmap
from contextlib import ExitStack
from typing import IO, TYPE_CHECKING, Final, Self

import numpy as np

from gymnast.chunks.settlement import Settlement
from gymnast.errors import DataError
from gymnast.store.keys import key_of_record
from gymnast.types.task import NO_PERSIST, RolloutKey

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from gymnast.store.chunk_records import FilePrefix

_PLACEHOLDER: Final = f'"{NO_PERSIST}":true'.encode()
_MAX_PLACEHOLDER_BYTES: Final = 200


class RecordIndex:
    """The records of one chunk and of everything ceded from it. Use as `with RecordIndex(positions) as index`."""

    def __init__(self, positions: dict[int, int]) -> None:
        """`positions`: of each rollout's row in the chunk, by packed key."""
        self._positions = positions
        self._maps: list[mmap.mmap] = []
        self._paths: list[Path] = []
        self._scored: dict[int, tuple[int, int, int]] = {}
        """Position -> map, start and end."""
        self._failures: list[tuple[int, int, int, int]] = []
        self._placeholders: set[int] = set()
        self._open = ExitStack()
        self.settlement = Settlement()
        """Of failures; of scored rollouts, only the keys are known."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    def add_scored(self, piece: FilePrefix) -> None:
        """Add scored records. Raises DataError for a record of another chunk, or a second one of a rollout."""
        number, data = self._map(piece)
        for packed, start, end in _find_records(data, piece.size_bytes, scored=True):
            position = self._position(packed, piece)
            before = self._scored.setdefault(position, (number, start, end))
            if before != (number, start, end):
                raise DataError(
                    f"rollout {_format_key(packed)} has two scored records: {self._paths[before[0]]} and {piece.path}",
                    where=str(piece.path),
                    next="nothing was merged; the files were changed by another program, or this is a bug",
                )
            self.settlement.scored.add(packed)
            if end - start < _MAX_PLACEHOLDER_BYTES and _PLACEHOLDER in data[start:end]:
                self._placeholders.add(position)

    def add_failures(self, piece: FilePrefix) -> None:
        """Add records of failed attempts, after all scored records were added."""
        number, data = self._map(piece)
        for packed, start, end in _find_records(data, piece.size_bytes, scored=False):
            self._failures.append((self._position(packed, piece), number, start, end))
            self.settlement.add_failure(data[start:end], reopened=piece.is_reopened)

    def write(self, scored: IO[bytes], failures: IO[bytes]) -> int:
        """Write everything in plan order. Returns the number of scored records."""
        records = sorted(item for item in self._scored.items() if item[0] not in self._placeholders)
        self._copy([span for _, span in records], scored)
        self._copy([failure[1:] for failure in sorted(self._failures)], failures)
        return len(self._scored)

    def _copy(self, spans: list[tuple[int, int, int]], out: IO[bytes]) -> None:
        """Copy lines; those that follow each other in their file in one piece."""
        run: tuple[int, int, int] | None = None
        for number, start, end in spans:
            if run is not None and (run[0], run[2]) == (number, start):
                run = (number, run[1], end)
                continue
            if run is not None:
                out.write(self._maps[run[0]][run[1] : run[2]])
            run = (number, start, end)
        if run is not None:
            out.write(self._maps[run[0]][run[1] : run[2]])

    def _map(self, piece: FilePrefix) -> tuple[int, mmap.mmap]:
        data = self._open.enter_context(map_piece(piece))
        self._maps.append(data)
        self._paths.append(piece.path)
        return len(self._maps) - 1, data

    def _position(self, packed: int, piece: FilePrefix) -> int:
        position = self._positions.get(packed)
        if position is None:
            raise DataError(
                f"a record belongs to rollout {_format_key(packed)}, which is not in this chunk", where=str(piece.path)
            )
        return position


def map_piece(piece: FilePrefix) -> mmap.mmap:
    """Map a piece into memory. Raises DataError if the file is shorter than what counts of it."""
    with piece.path.open("rb", buffering=0) as stream:
        try:
            return mmap.mmap(stream.fileno(), piece.size_bytes, access=mmap.ACCESS_READ)
        except ValueError as error:
            raise DataError(
                f"the file is shorter than the {piece.size_bytes} bytes that its lease counts", where=str(piece.path)
            ) from error


def lines_in_plan_order(data: mmap.mmap, index: bytes, first_row: int, rows: int) -> list[memoryview] | None:
    """The lines of a shard in plan order, by its holder's index; None if the two do not match or a line is damaged."""
    numbers, lengths = np.frombuffer(index, "<u4").astype(np.int64).reshape(-1, 2).T
    ends, order = np.cumsum(lengths), np.argsort(numbers)
    positions = numbers[order] - first_row
    if not len(ends) or ends[-1] != len(data) or positions[0] < 0 or positions[-1] >= rows:
        return None
    if not np.diff(positions).all() or not (np.frombuffer(data, np.uint8)[ends - 1] == ord("\n")).all():
        return None
    view, starts = memoryview(data), (ends - lengths)[order].tolist()
    lines = [view[start:end] for start, end in zip(starts, ends[order].tolist(), strict=True)]
    return lines if all(key_of_record(bytes(line), scored=True) is not None for line in lines) else None


def _find_records(data: mmap.mmap | bytes, size: int, *, scored: bool) -> Iterator[tuple[int, int, int]]:
    """Packed key, start and end of each record. Other lines are skipped."""
    find = data.find
    start = 0
    while start < size:
        end = find(b"\n", start, size) + 1
        if not end:
            return
        key = key_of_record(data[start:end], scored=scored)
        if key is not None:
            yield key.packed, start, end
        start = end


def _format_key(packed: int) -> str:
    return str(RolloutKey(packed >> 32, packed & 0xFFFFFFFF))
