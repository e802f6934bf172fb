"""Full-text search: compares the records that signatures let through, in the order of the table, for a limited time."""

from __future__ import annotations

import os
import time
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Final, Self

import numpy as np

from gymnast.errors import NotFoundError
from gymnast.studio.query import escape_words, has_all
from gymnast.studio.rollout_page import record_text
from gymnast.studio.searched_text import searched_of
from gymnast.studio.short_words import find_lines, short_part

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from numpy.typing import NDArray

    from gymnast.studio.run_index import RunIndex
    from gymnast.studio.run_table import RunTable

    Ints = NDArray[np.int64] | NDArray[np.int32]

_SEARCH_S: Final = 0.15
"""After this time, texts are compared only as far as the page needs; the number of matches is an estimate."""
_MAX_SEARCH_S: Final = 5.0
"""And after this time not even that: the page shows what was found."""
FIRST_LINES: Final = 2048
"""A multiple of the batch. If these have less than a few rows of the page, all others are scanned for a short word."""
_MIN_PAGES: Final = 8
_MIN_REST: Final = 8
"""The part of a run from which on a scan is faster than a comparison line by line."""
_BATCH: Final = 64
_MAX_READ: Final = 4 << 20
"""Records and bytes that are read at once."""
_STRUCTURE: Final = (
    "annotations arguments assistant call_id completed content created_at developer encrypted_content function_call "
    "function_call_output generation_log_probs generation_token_ids id image_url input_image input_text logprobs "
    "message name null output output_text prompt_token_ids reasoning refusal role status summary summary_text system "
    "text token_call tool true type user false"
)
"""Words of the JSON around texts: records that have one of these are compared with their texts alone."""


@dataclass(frozen=True, slots=True)
class Matches:
    """Rows whose text has all words, as far as they were compared."""

    rows: list[int]
    """In the order of the table, enough for the page."""
    total: int
    is_exact: bool


def search_rows(
    index: RunIndex, table: RunTable, rows: Ints, words: Sequence[str], needed: int, *, seconds: float = _SEARCH_S
) -> Matches:
    """The first `needed` of these rows with all words, and how many there are. Late, the rest is estimated."""
    return _compare(_Search(index, table, rows, words), rows, needed, seconds)


def search_tasks(
    index: RunIndex, table: RunTable, tasks: Ints, words: Sequence[str], needed: int, *, seconds: float = _SEARCH_S
) -> Matches:
    """The first `needed` of these tasks with a rollout that has all words; `rows` are positions in `tasks`."""
    starts = np.searchsorted(table.keys, tasks << 32)
    ends = np.searchsorted(table.keys, (tasks + 1) << 32)
    counts = ends - starts
    positions = np.repeat(np.arange(len(tasks), dtype=np.int32), counts)
    rows = np.arange(len(positions), dtype=np.int32)
    rows += np.repeat((starts - (np.cumsum(counts) - counts)).astype(np.int32), counts)
    matches = _compare(_Search(index, table, rows, words), positions, needed, seconds)
    return replace(matches, total=min(matches.total, len(tasks)))


def _compare(search: _Search, groups: Ints, needed: int, seconds: float) -> Matches:
    """Compare candidates in order. Of each group one match is enough; its rows follow each other."""
    deadline = search.started + seconds
    hits: list[int] = []
    seen = 0
    with search:
        for group, line in search.records(groups):
            seen += 1
            if seen == FIRST_LINES and len(hits) * _MIN_PAGES < needed:
                search.narrow(seen, deadline + _MAX_SEARCH_S)
            if line is not None and not (hits and hits[-1] == group) and search.has_words(line()):
                hits.append(group)
            now = time.monotonic()
            if now > deadline and (len(hits) >= needed or now > deadline + _MAX_SEARCH_S):
                break
    total = len(search.candidates)
    if seen >= total:
        return Matches(hits, len(hits), is_exact=True)
    return Matches(hits, round(len(hits) * total / seen), is_exact=False)


class _Search:
    """The rows that may have some words. As a context it keeps the files of the run open."""

    def __init__(self, index: RunIndex, table: RunTable, rows: Ints, words: Sequence[str]) -> None:
        self.started = time.monotonic()
        self._rows = rows
        self._table = table
        self._forms = escape_words(words)
        self._short = short_part(words)
        self._structural = [word for word in words if word in _STRUCTURE]
        may_match = index.match(words, len(table.snapshot))
        self.candidates: Ints = np.flatnonzero(may_match[table.lines[rows]])
        """Positions in `rows`."""
        self._files: dict[int, int] = {}
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def records(self, groups: Ints) -> Iterator[tuple[int, Callable[[], bytes] | None]]:
        """The candidates: the group of each, and what reads its line. None if it is known not to have the words."""
        fixed = self._table.snapshot.fixed
        start = -_BATCH
        while (start := start + _BATCH) < len(self.candidates):
            own = self.candidates[start : start + _BATCH]
            lines = self._table.lines[self._rows[own]]
            sources, offsets, sizes = (fixed[name][lines] for name in ("sources", "offsets", "sizes"))
            read = self._reader(sources, offsets, sizes)
            places = zip(sources.tolist(), offsets.tolist(), sizes.tolist(), strict=True)
            for group, place in zip(groups[own].tolist(), places, strict=True):
                yield group, None if read is None else partial(read, *place)

    def narrow(self, seen: int, stop_at: float) -> None:
        """If the words are short, leave out the lines after the first `seen` that do not have them."""
        is_rest_large = len(self.candidates) - seen > len(self._table.snapshot) // _MIN_REST
        if self._short is None or not is_rest_large:
            return
        lines = self._table.lines[self._rows[self.candidates]]
        may_match = find_lines(self._table.snapshot, self._short, stop_at)[lines]
        may_match[:seen] = True
        self.candidates = self.candidates[may_match]

    def _reader(self, sources: Ints, offsets: Ints, sizes: Ints) -> Callable[[int, int, int], bytes] | None:
        """What reads these lines: at once if they are close together, since each read waits for other threads.

        None if the words are not in any of them.
        """
        first, last = int(offsets.min()), int((offsets + sizes).max())
        if (sources != sources[0]).any() or last - first > min(_MAX_READ, 2 * int(sizes.sum())):
            return self._read
        data = self._read(int(sources[0]), first, last - first)
        if self._cannot_have_words(data):
            return None
        return lambda _, offset, size: data[offset - first : offset - first + size]

    def has_words(self, line: bytes) -> bool:
        """Whether a record has all words."""
        if self._cannot_have_words(line) or not has_all(searched_of(line), self._forms):
            return False
        text = record_text(line).lower() if self._structural else ""
        return all(word in text for word in self._structural)

    def _cannot_have_words(self, lines: bytes) -> bool:
        """Whether a word is missing, even in what a search does not cover."""
        return _is_plain(lines) and not has_all(lines.lower(), self._forms)

    def _read(self, source: int, offset: int, size: int) -> bytes:
        path = self._table.snapshot.paths[source]
        try:
            if source not in self._files:
                self._files[source] = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
                self._stack.callback(os.close, self._files[source])
            data = os.pread(self._files[source], size, offset)
        except OSError as error:
            raise NotFoundError("the run's file is gone", where=path) from error
        if len(data) < size:
            raise NotFoundError("the run's file became shorter", where=path)
        return data


def _is_plain(line: bytes) -> bool:
    """Whether lower case is a matter of ASCII, and no character is escaped as a number."""
    return line.isascii() and (b"\\" not in line or b"\\u" not in line)
