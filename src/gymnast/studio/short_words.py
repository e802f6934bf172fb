"""Finds lines with a word of up to three bytes, which signatures cannot tell: reads all of them, some at a time.

Pairs of bytes are compared, in upper and lower case at once, which takes about a fifth of a second for a gigabyte in
memory. Threads share the work: reading and comparing release the interpreter's lock.
"""

from __future__ import annotations

import os
import time
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise, product
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np

from gymnast.errors import NotFoundError
from gymnast.studio.line_columns import ESCAPED
from gymnast.studio.query_bits import word_parts

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from gymnast.studio.column_store import Snapshot

    Ints = NDArray[np.int64]
    Part = Sequence[frozenset[int]]

_FOLD: Final = 0xDF
"""Removes the bit in which upper and lower case differ."""
_PAIR: Final = 2
_MAX_PART: Final = 3
_SAMPLE: Final = 1 << 16
_CHUNK: Final = 1 << 20
_OVERLAP: Final = 2
"""Bytes of the next chunk, for words across the border."""
_MAX_THREADS: Final = 4


def short_part(words: Sequence[str]) -> Part | None:
    """The longest part of some words, if none has more than three bytes."""
    parts = [part for word in words for part in word_parts(word, _FOLD) if part]
    longest = max(parts, key=len, default=None)
    return longest if longest is not None and len(longest) <= _MAX_PART else None


def find_lines(snapshot: Snapshot, part: Part, stop_at: float) -> NDArray[np.bool_]:
    """Which lines may have a part of a word. When the time is over, the rest may have it, too."""
    matches: NDArray[np.bool_] = (snapshot.fixed["flags"] & ESCAPED) != 0  # an escaped character may be any
    threads = min(_MAX_THREADS, os.cpu_count() or 1)
    with ThreadPoolExecutor(threads) as pool:
        for source, path in enumerate(snapshot.paths):
            lines = np.flatnonzero(snapshot.fixed["sources"] == source)
            if not len(lines):
                continue
            starts = snapshot.fixed["offsets"][lines]
            end = int(starts[-1] + snapshot.fixed["sizes"][lines[-1]])
            borders = [*(int(own[0]) for own in np.array_split(starts, threads) if len(own)), end]
            for scan in [pool.submit(_scan, path, *ends, part, stop_at) for ends in pairwise(borders)]:
                positions, rest = scan.result()
                matches[lines[np.searchsorted(starts, positions, side="right") - 1]] = True
                matches[lines[(starts >= rest.start) & (starts < rest.stop)]] = True
    return matches


def _scan(path: str, start: int, end: int, part: Part, stop_at: float) -> tuple[Ints, range]:
    """Where a part of a word may be in this range of a file, and what of the range was not read."""
    hits: list[Ints] = []
    finder = _Finder(part)
    try:
        with Path(path).open("rb", buffering=0) as stream:
            for position in range(start, end, _CHUNK):
                if time.monotonic() > stop_at:
                    return _join(hits), range(position, end)
                size = min(_CHUNK + _OVERLAP, end - position)
                if os.preadv(stream.fileno(), [finder.data[:size]], position) < size:
                    raise NotFoundError("the run's file became shorter", where=path)
                hits += [own + position for own in finder.find(size)]
    except OSError as error:
        raise NotFoundError("the run's file is gone", where=path) from error
    return _join(hits), range(end, end)


class _Finder:
    """Looks for a part of a word in a chunk of a file. Its arrays are used again, and stay in the processor's cache."""

    def __init__(self, part: Part) -> None:
        self.data = memoryview(bytearray(_CHUNK + _OVERLAP))
        """To be filled before each search."""
        self._folded = [np.empty(_CHUNK + _OVERLAP, np.uint8) for _ in range(_PAIR)]
        """From the first and from the second byte on: numpy compares pairs at even addresses much faster."""
        self._is_same = np.empty(_CHUNK // _PAIR + 1, np.bool_)
        self._part = part
        self._start: int | None = None

    def find(self, size: int) -> Iterator[Ints]:
        """Where the part begins in the first `size` bytes of the data."""
        folded = np.bitwise_and(np.frombuffer(self.data[:size], np.uint8), _FOLD, out=self._folded[0][:size])
        if len(self._part) == 1:
            for value in self._part[0]:
                yield np.flatnonzero(folded == value)
            return
        self._folded[1][: size - 1] = folded[1:]
        if self._start is None:
            self._start = self._rarest_pair(min(size, _SAMPLE))
        others = [number for number in range(len(self._part)) if number not in (self._start, self._start + 1)]
        for hits in self._find_pairs(self._start, size):
            positions = hits - self._start
            for number in others:
                positions = positions[(positions >= 0) & (positions + number < size)]
                positions = positions[np.isin(folded[positions + number], list(self._part[number]))]
            yield positions

    def _rarest_pair(self, size: int) -> int:
        """Which two of the bytes to look for first, as the beginning of the data suggests: few positions are left."""
        starts = range(len(self._part) - 1)
        return min(starts, key=lambda start: sum(map(len, self._find_pairs(start, size))))

    def _find_pairs(self, start: int, size: int) -> Iterator[Ints]:
        """Where these two bytes of the part follow each other."""
        first_bytes, second_bytes = self._part[start : start + _PAIR]
        for offset, first, second in product(range(_PAIR), first_bytes, second_bytes):
            pairs = self._folded[offset][: (size - offset) // _PAIR * _PAIR].view("<u2")
            is_same = np.equal(pairs, np.uint16(first | second << 8), out=self._is_same[: len(pairs)])
            if is_same.any():
                yield np.flatnonzero(is_same) * _PAIR + offset


def _join(hits: list[Ints]) -> Ints:
    return np.concatenate(hits) if hits else np.zeros(0, np.int64)
