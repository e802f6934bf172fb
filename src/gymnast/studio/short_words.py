"""Finds lines with a word of up to three bytes, which signatures cannot tell: reads all of them, some at a time.

Pairs of bytes are compared, in upper and lower case at once, which takes about a third of a second for a gigabyte in
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
_SAMPLE: Final = 1 << 13
_CHUNK: Final = 1 << 18
_OVERLAP: Final = 2
_MAX_THREADS: Final = 4
_ESCAPE: Final = (frozenset({ord("\\") & _FOLD}), frozenset({ord("u") & _FOLD}))


def short_part(words: Sequence[str]) -> Part | None:
    """The longest part of some words, if none has more than three bytes."""
    parts = [part for word in words for part in word_parts(word, _FOLD) if part]
    longest = max(parts, key=len, default=None)
    return longest if longest is not None and len(longest) <= _MAX_PART else None


def find_lines(snapshot: Snapshot, part: Part, stop_at: float) -> NDArray[np.bool_]:
    """Which lines may have a part of a word. When the time is over, the rest may have it, too."""
    matches = np.zeros(len(snapshot), np.bool_)
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
    found: list[Ints] = []
    try:
        with Path(path).open("rb", buffering=0) as stream:
            for position in range(start, end, _CHUNK):
                if time.monotonic() > stop_at:
                    return _join(found), range(position, end)
                size = min(_CHUNK + _OVERLAP, end - position)
                data = os.pread(stream.fileno(), size, position)
                if len(data) < size:
                    raise NotFoundError("the run's file became shorter", where=path)
                found += [own + position for own in _find(data, part)]
    except OSError as error:
        raise NotFoundError("the run's file is gone", where=path) from error
    return _join(found), range(end, end)


def _find(data: bytes, part: Part) -> Iterator[Ints]:
    """Where a part may be, or an escaped character, which may be any."""
    folded = np.bitwise_and(np.frombuffer(data, np.uint8), _FOLD)
    yield from _find_folded(folded, part)
    if b"\\" in data:
        yield from _find_folded(folded, _ESCAPE)


def _find_folded(folded: NDArray[np.uint8], part: Part) -> Iterator[Ints]:
    if len(part) == 1:
        for value in part[0]:
            yield np.flatnonzero(folded == value)
        return
    # The rarer pair of three bytes, as the beginning of the chunk suggests, leaves fewer positions to look at.
    starts = range(len(part) - 1)
    start = min(starts, key=lambda own: sum(map(len, _find_pairs(folded[:_SAMPLE], part[own : own + _PAIR]))))
    others = [number for number in range(len(part)) if number not in (start, start + 1)]
    for found in _find_pairs(folded, part[start : start + _PAIR]):
        positions = found - start
        for number in others:
            positions = positions[(positions >= 0) & (positions + number < len(folded))]
            positions = positions[np.isin(folded[positions + number], list(part[number]))]
        yield positions


def _find_pairs(folded: NDArray[np.uint8], pair: Part) -> Iterator[Ints]:
    """Where two bytes follow each other."""
    for offset, (first, second) in product((0, 1), product(*pair)):
        pairs = folded[offset:][: (len(folded) - offset) // 2 * 2].view("<u2")
        is_same = pairs == np.uint16(first | second << 8)
        if is_same.any():
            yield np.flatnonzero(is_same) * 2 + offset


def _join(found: list[Ints]) -> Ints:
    return np.concatenate(found) if found else np.zeros(0, np.int64)
