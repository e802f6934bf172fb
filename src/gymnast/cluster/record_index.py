"""Where the records of a chunk lie, by their place in the plan. Lines are found and identified, not decoded.

A writer's last word vouches for what it wrote; what was sealed after a death is checked line by line.
"""

from __future__ import annotations

import mmap
import re
from contextlib import ExitStack
from typing import IO, TYPE_CHECKING, Final, Self

import numpy as np

from gymnast.cluster.settling import Settlement
from gymnast.errors import DataError
from gymnast.store.keys import key_of_line, key_of_record
from gymnast.types.task import AGENT_REF, NO_PERSIST, ROLLOUT_INDEX, TASK_INDEX, RolloutKey

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from types import TracebackType

    from gymnast.store.chunk_records import Piece

_TASK: Final = f'"{TASK_INDEX}":'.encode()
_IDENTITY: Final = rb'"%b":(\d+),"%b":(\d+)(?:,"%b":\{"name":"[^"\\{}\n]*"\})?\}' % (
    TASK_INDEX.encode(),
    ROLLOUT_INDEX.encode(),
    AGENT_REF.encode(),
)
_END: Final = re.compile(_IDENTITY + rb"\n")
"""How our records end. Nothing can follow, so the indexes stand at the top level."""
_LONGEST_END: Final = 512
_UNKEPT: Final = f'"{NO_PERSIST}":true'.encode()
_LONGEST_MARKER: Final = 200


class RecordIndex:
    """The records of one chunk and of all that was ceded from it. Use as `with RecordIndex(places) as index`."""

    def __init__(self, places: dict[int, int]) -> None:
        """`places`: the place of each rollout's row, by packed key."""
        self._places = places
        self._maps: list[mmap.mmap] = []
        self._paths: list[Path] = []
        self._scored: dict[int, tuple[int, int, int]] = {}
        """Place -> map, start and end."""
        self._failures: list[tuple[int, int, int, int]] = []
        self._unkept: set[int] = set()
        self._open = ExitStack()
        self.settled = Settlement()
        """Of failures; scored rollouts are only known by their keys."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._open.close()

    def take_scored(self, piece: Piece) -> None:
        """Scored records. Raises DataError for one that is not of this chunk, or a second one of a rollout."""
        number, data = self._map(piece)
        for packed, start, end in _records(data, piece.size_bytes, scored=True, is_vouched=piece.is_vouched):
            place = self._place(packed, piece)
            before = self._scored.setdefault(place, (number, start, end))
            if before != (number, start, end):
                raise DataError(
                    f"rollout {_shown(packed)} has two scored records: {self._paths[before[0]]} and {piece.path}",
                    where=str(piece.path),
                    next="nothing was merged; this is damage by other hands, or a bug",
                )
            self.settled.scored.add(packed)
            if end - start < _LONGEST_MARKER and _UNKEPT in data[start:end]:
                self._unkept.add(place)

    def take_failures(self, piece: Piece) -> None:
        """Records of failed attempts; those of scored rollouts must have been taken before."""
        number, data = self._map(piece)
        for packed, start, end in _records(data, piece.size_bytes, scored=False, is_vouched=False):
            self._failures.append((self._place(packed, piece), number, start, end))
            self.settled.take_failure(data[start:end], forgiven=piece.is_forgiven)

    def write(self, scored: IO[bytes], failures: IO[bytes]) -> int:
        """Everything in plan order. Returns the number of scored records."""
        kept = sorted(item for item in self._scored.items() if item[0] not in self._unkept)
        self._copy([where for _, where in kept], scored)
        self._copy([where[1:] for where in sorted(self._failures)], failures)
        return len(self._scored)

    def _copy(self, wheres: list[tuple[int, int, int]], out: IO[bytes]) -> None:
        """Lines that follow each other in their file are copied at once."""
        run: tuple[int, int, int] | None = None
        for number, start, end in wheres:
            if run is not None and (run[0], run[2]) == (number, start):
                run = (number, run[1], end)
                continue
            if run is not None:
                out.write(self._maps[run[0]][run[1] : run[2]])
            run = (number, start, end)
        if run is not None:
            out.write(self._maps[run[0]][run[1] : run[2]])

    def _map(self, piece: Piece) -> tuple[int, mmap.mmap]:
        found = self._open.enter_context(mapped(piece))
        self._maps.append(found)
        self._paths.append(piece.path)
        return len(self._maps) - 1, found

    def _place(self, packed: int, piece: Piece) -> int:
        found = self._places.get(packed)
        if found is None:
            raise DataError(f"a record is of rollout {_shown(packed)}, which this chunk has not", where=str(piece.path))
        return found


def mapped(piece: Piece) -> mmap.mmap:
    """A piece as it lies on disk. Raises DataError if there is less than counts."""
    with piece.path.open("rb", buffering=0) as stream:
        try:
            return mmap.mmap(stream.fileno(), piece.size_bytes, access=mmap.ACCESS_READ)
        except ValueError as error:
            raise DataError(
                f"the file is shorter than the {piece.size_bytes} bytes that count of it", where=str(piece.path)
            ) from error


def in_plan_order(data: mmap.mmap, index: bytes, first_row: int, rows: int) -> list[memoryview] | None:
    """The lines of a shard in plan order, as its writer's index says; None if the two do not belong together."""
    numbers, lengths = np.frombuffer(index, "<u4").astype(np.int64).reshape(-1, 2).T
    ends, order = np.cumsum(lengths), np.argsort(numbers)
    places = numbers[order] - first_row
    if not len(ends) or ends[-1] != len(data) or places[0] < 0 or places[-1] >= rows or not np.diff(places).all():
        return None
    if not (np.frombuffer(data, np.uint8)[ends - 1] == ord("\n")).all():
        return None
    view, starts = memoryview(data), (ends - lengths)[order].tolist()
    return [view[start:end] for start, end in zip(starts, ends[order].tolist(), strict=True)]


def _records(data: mmap.mmap | bytes, size: int, *, scored: bool, is_vouched: bool) -> Iterator[tuple[int, int, int]]:
    """Packed key, start and end of each record. Lines that are none are passed over."""
    find, rfind, ending = data.find, data.rfind, _END.fullmatch
    start = 0
    while start < size:
        end = find(b"\n", start, size) + 1
        if not end:
            return
        if is_vouched:
            at = rfind(_TASK, max(start, end - _LONGEST_END), end)
            found = ending(data, at, end) if at >= 0 else None
            key = None if found is not None else key_of_line(data[start:end])
            if found is not None:
                yield (int(found[1]) << 32) | int(found[2]), start, end
        else:
            key = key_of_record(data[start:end], scored=scored)
        if key is not None:
            yield key.packed, start, end
        start = end


def _shown(packed: int) -> str:
    return str(RolloutKey(packed >> 32, packed & 0xFFFFFFFF))
