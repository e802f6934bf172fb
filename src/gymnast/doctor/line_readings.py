"""What single lines of logs say: the signatures they match, and whether they report a failure.

Lines that differ only in numbers have the same shape and are classified once; only shapes that contain a keyword are
classified at all.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import accumulate
from typing import Final

from gymnast.doctor.line_roles import without_bar
from gymnast.doctor.log_lines import Level, hints_at_failure, is_text, level_of, reports_failure
from gymnast.doctor.log_markers import (
    ACCESS,
    BOUNDARY,
    COUNT,
    FAILURE_NOTICE,
    JOB_CANCELLED,
    KEYWORDS,
    REQUEUED,
    RESULT,
    SATURATED,
    SETTINGS,
    SHUTDOWN,
    SOURCE,
    STARTED,
    VERIFY_500,
    ZERO_COUNT,
    without_advice,
    without_hedges,
)
from gymnast.doctor.provenance import own_words
from gymnast.doctor.signatures import BROAD, REFUSALS, SIGNATURES

MAX_LINE: Final = 2000
_MAX_CACHED: Final = 20_000
_RELEVANT_NUMBERS: Final = (b"137", b"code 75", b"422", b"401", b"-9", b"status=4", b"status=5")
SATURATED_ID: Final = "saturated"
BOUNDARY_ID: Final = "boundary"
REQUEUED_ID: Final = "requeued"
JOB_CANCELLED_ID: Final = "whole_job_cancelled"
VERIFY_500_ID: Final = "verify_500"
SHUTDOWN_ID: Final = "shutdown"
STARTED_ID: Final = "started"
SHUTDOWN_MARKS: Final = frozenset({SHUTDOWN_ID, STARTED_ID})
_MIN_OPTIONS: Final = 4
_OPTION: Final = re.compile(rb"[\s'\"\[,(]--[a-z]")
_TRACED: Final = re.compile(rb"\++ \S")
"""A command that a shell repeats (set -x)."""
_MARKERS: Final = (
    *((STARTED, STARTED_ID), (SHUTDOWN, SHUTDOWN_ID), (SATURATED, SATURATED_ID)),
    *((BOUNDARY, BOUNDARY_ID), (REQUEUED, REQUEUED_ID), (JOB_CANCELLED, JOB_CANCELLED_ID)),
    (VERIFY_500, VERIFY_500_ID),
)


@dataclass(frozen=True, slots=True)
class LineReading:
    """What a line says: the signatures it matches, and whether it reports a failure."""

    ids: tuple[str, ...]
    level: Level
    is_failure: bool
    is_hint: bool


class LineReader:
    """Selects the lines that matter, and reads them. `has_records`: skips what failure records say already."""

    def __init__(self, *, has_records: bool) -> None:
        self._has_records = has_records
        self._irrelevant: set[bytes] = set()
        self._relevant: set[bytes] = set()
        self._readings: dict[tuple[bytes, tuple[bool, ...]], LineReading] = {}
        self._has_counts: dict[bytes, bool] = {}

    def select_relevant(self, shapes: set[bytes]) -> set[bytes]:
        """The shapes that contain a keyword. Lines that differ only in numbers have the same shape."""
        known = shapes & self._relevant
        fresh = list(shapes - known - self._irrelevant)
        matching = set(_filter_by_keyword(fresh))
        if self._has_records:
            matching = {shape for shape in matching if FAILURE_NOTICE.search(shape) is None}
        if len(self._relevant) < _MAX_CACHED:
            self._relevant |= matching
        if len(self._irrelevant) < _MAX_CACHED:
            self._irrelevant.update(shape for shape in fresh if shape not in matching and len(shape) <= MAX_LINE)
        return known | matching

    def read(self, shape: bytes, line: bytes) -> LineReading:
        """What a line says: the same for all lines with its shape and its relevant numbers."""
        short = shape[:MAX_LINE]
        has_counts = self._has_counts.get(short)
        if has_counts is None:
            has_counts = COUNT.search(short) is not None
            if len(self._has_counts) < _MAX_CACHED:
                self._has_counts[short] = has_counts
        is_zero = has_counts and ZERO_COUNT.search(line[:MAX_LINE]) is not None
        cache_key = (short, (is_zero, *(number in line for number in _RELEVANT_NUMBERS)))
        known = self._readings.get(cache_key)
        if known is None:
            known = _classify(line[:MAX_LINE])
            if len(self._readings) < _MAX_CACHED:
                self._readings[cache_key] = known
        return known


def _classify(line: bytes) -> LineReading:
    line = without_bar(line)
    level = level_of(line)
    markers = tuple(name for marker, name in _MARKERS if marker.search(line))
    line = without_advice(line)
    if not line.strip() or SOURCE.search(line) or (ACCESS.search(line) and level is Level.NONE):
        return LineReading(markers, level, is_failure=False, is_hint=False)
    own = without_hedges(own_words(line.decode(errors="replace")).encode())
    if level is not Level.ERROR and (SETTINGS.search(own) or _is_command(line)):
        return LineReading(markers, level, is_failure=False, is_hint=False)
    ids = [name for name, known in SIGNATURES.items() if known.pattern.search(own)]
    if level is Level.INFO:
        ids = [name for name in ids if SIGNATURES[name].at_any_level]
    is_failure = reports_failure(own)
    if level is Level.NONE and not is_failure and is_text(own):
        ids = [name for name in ids if name not in BROAD]
    ids = _innermost(ids, own) if len(ids) > 1 and all(name in BROAD for name in ids) else _heaviest(ids)
    if not ids and level is not Level.ERROR and RESULT.search(own):
        return LineReading(markers, level, is_failure=False, is_hint=False)
    return LineReading((*ids, *markers), level, is_failure, hints_at_failure(own))


def _is_command(line: bytes) -> bool:
    """True for a command that a program or a shell repeats before it runs it: its options are no observation."""
    is_echo = _TRACED.match(line) is not None or len(_OPTION.findall(line)) >= _MIN_OPTIONS
    return is_echo and not reports_failure(line)


def _heaviest(ids: list[str]) -> list[str]:
    ids = [name for name in ids if name in REFUSALS] or ids  # says more than that a value is too large
    heaviest = max((SIGNATURES[name].weight for name in ids), default=0)
    return [name for name in ids if SIGNATURES[name].weight == heaviest]


def _innermost(ids: list[str], line: bytes) -> list[str]:
    """Of classes of faults, the one whose words come last: an error that wraps another names the reason at its end."""
    statement = line.partition(b" while ")[0]
    ends = {name: max((m.end() for m in SIGNATURES[name].pattern.finditer(statement)), default=0) for name in ids}
    return _heaviest([name for name in ids if ends[name] == max(ends.values())])


def _filter_by_keyword(shapes: list[bytes]) -> list[bytes]:
    text = b"\n".join(shapes).lower()
    starts: set[int] = set()
    for keyword in KEYWORDS:
        at = text.find(keyword)
        while at >= 0:
            starts.add(text.rfind(b"\n", 0, at) + 1)
            line_end = text.find(b"\n", at)
            at = text.find(keyword, line_end) if line_end >= 0 else -1
    offsets = accumulate((len(shape) + 1 for shape in shapes), initial=0)
    return [shape for shape, offset in zip(shapes, offsets, strict=False) if offset in starts]
