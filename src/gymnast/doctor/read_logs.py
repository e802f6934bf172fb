"""Reads log files in one streaming pass with bounded memory: signatures, exceptions and our own messages.

Few lines of a gigabyte of logs matter. Lines that differ only in numbers have the same shape and are classified once;
only shapes that contain a keyword are inspected at all.
"""

from __future__ import annotations

import os
import re
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Final

from gymnast.doctor.facts import Hit, LogFacts, LoggedUserError, Quote
from gymnast.doctor.findings import quote_line
from gymnast.doctor.log_markers import (
    ADVICE,
    BOUNDARY,
    JOB_CANCELLED,
    KEYWORDS,
    REQUEUED,
    SATURATED,
    SHUTDOWN,
    STARTED,
    death_at,
)
from gymnast.doctor.signatures import SIGNATURES
from gymnast.doctor.tracebacks import Tracebacks

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import BinaryIO

BLOCK_BYTES: Final = 1 << 22
_MAX_LINE: Final = 2000
_MAX_CACHED: Final = 20_000
_MAX_USER_ERRORS: Final = 20
_MAX_DEATHS: Final = 50
_MAX_MESSAGE_LINES: Final = 60
_RELEVANT_NUMBERS: Final = (b"137", b"code 75", b"422", b"401", b"-9", b"status=4", b"status=5")
_DIGITS: Final = bytes.maketrans(b"0123456789", b"0000000000")
_NAMES: Final = tuple(SIGNATURES)
SATURATED_ID: Final = "saturated"
BOUNDARY_ID: Final = "boundary"
REQUEUED_ID: Final = "requeued"
JOB_CANCELLED_ID: Final = "whole_job_cancelled"
_SHUTDOWN_ID: Final = "shutdown"
_STARTED_ID: Final = "started"
_MARKERS: Final = (
    *((STARTED, _STARTED_ID), (SHUTDOWN, _SHUTDOWN_ID), (SATURATED, SATURATED_ID)),
    *((BOUNDARY, BOUNDARY_ID), (REQUEUED, REQUEUED_ID), (JOB_CANCELLED, JOB_CANCELLED_ID)),
)


def read_logs(paths: Iterable[Path]) -> LogFacts:
    """Read these files. An unreadable file is listed and skipped."""
    facts = LogFacts()
    reader = _Reader(facts)
    for path in paths:
        try:
            with path.open("rb", buffering=0) as stream:
                reader.read(str(path), stream)
        except OSError as error:
            facts.unreadable.append(f"{path}: {error.strerror or error}")
            continue
        facts.files.append(str(path))
    facts.exceptions = reader.tracebacks.exceptions()
    return facts


class _Reader:
    """Reads files one after the other."""

    def __init__(self, facts: LogFacts) -> None:
        self.tracebacks = Tracebacks()
        self._facts = facts
        self._irrelevant: set[bytes] = set()
        self._relevant: set[bytes] = set()
        self._signature_cache: dict[tuple[bytes, tuple[bool, ...]], tuple[str, ...]] = {}

    def read(self, name: str, stream: BinaryIO) -> None:
        self.tracebacks.start_file(name)
        is_shutting_down = False
        before = 0
        for block in _blocks(stream):
            self._facts.size_bytes += len(block)
            shapes = block.translate(_DIGITS).split(b"\n")
            relevant = self._select_relevant(set(shapes))
            if relevant or self.tracebacks.is_open:
                lines = block.split(b"\n")
                self.tracebacks.continue_in(lines, before, is_noise=is_shutting_down)
                for index, shape in enumerate(shapes):
                    if shape in relevant:
                        ids = self._signatures_of(shape, lines[index])
                        self._inspect(Quote(name, before + index + 1, ""), lines, index, ids, noise=is_shutting_down)
                        is_shutting_down = (is_shutting_down or _SHUTDOWN_ID in ids) and _STARTED_ID not in ids
            before += len(shapes) - 1
        self._facts.lines += before

    def _select_relevant(self, shapes: set[bytes]) -> set[bytes]:
        """The shapes that contain a keyword. Lines that differ only in numbers have the same shape."""
        known = shapes & self._relevant
        fresh = list(shapes - known - self._irrelevant)
        matching = set(_filter_by_keyword(fresh))
        if len(self._relevant) < _MAX_CACHED:
            self._relevant |= matching
        if len(self._irrelevant) < _MAX_CACHED:
            self._irrelevant.update(shape for shape in fresh if shape not in matching and len(shape) <= _MAX_LINE)
        return known | matching

    def _signatures_of(self, shape: bytes, line: bytes) -> tuple[str, ...]:
        """The signatures of a line: the same for all lines with its shape and its relevant numbers."""
        cache_key = (shape[:_MAX_LINE], tuple(number in line for number in _RELEVANT_NUMBERS))
        known = self._signature_cache.get(cache_key)
        if known is None:
            known = _classify(line[:_MAX_LINE])
            if len(self._signature_cache) < _MAX_CACHED:
                self._signature_cache[cache_key] = known
        return known

    def _inspect(self, at: Quote, lines: list[bytes], index: int, ids: tuple[str, ...], *, noise: bool) -> None:
        line = lines[index]
        if b"raceback (most recent" in line:
            self.tracebacks.open_at(lines, index, at.line, is_noise=noise)
        elif line.startswith(b"  next:") or (line.startswith(b"  where:") and not _is_followed_by_next(lines, index)):
            self._add_user_error(at, lines, index)
        elif not noise and len(self._facts.deaths) < _MAX_DEATHS and (death := death_at(at, lines, index)):
            self._facts.deaths.append(death)
        if SATURATED_ID in ids and b"Waiting: 0 " in line:
            return
        self._count_hits(ids, at, line, after_shutdown=noise)

    def _count_hits(self, ids: tuple[str, ...], at: Quote, line: bytes, *, after_shutdown: bool) -> None:
        for name in ids:
            if name in {_SHUTDOWN_ID, _STARTED_ID}:
                continue
            hit = self._facts.hits.get(name)
            if hit is not None:
                hit.count += 1
                hit.is_after_shutdown = hit.is_after_shutdown and after_shutdown
                if hit.count > 3:
                    hit.last = Quote(at.file, at.line, hit.last.text)
                    continue
            quote = Quote(at.file, at.line, quote_line(line[:_MAX_LINE].decode(errors="replace")))
            if hit is None:
                self._facts.hits[name] = Hit(1, quote, quote, after_shutdown)
            else:
                hit.last = quote

    def _add_user_error(self, at: Quote, lines: list[bytes], index: int) -> None:
        """Parse one of our messages: what, `  where:`, `  next:`. The given line is its last one."""
        if len(self._facts.user_errors) >= _MAX_USER_ERRORS:
            return
        last = lines[index].decode(errors="replace").strip()
        where, first = last.removeprefix("where:").strip() if last.startswith("where:") else "", index
        what: list[str] = []
        while first > max(0, index - _MAX_MESSAGE_LINES):
            first -= 1
            text = lines[first].decode(errors="replace")
            if text.startswith("  where:"):
                where = text.removeprefix("  where:").strip()
            else:
                what.insert(0, text.strip())
            if not text.startswith(" "):
                break
        next_text = last.removeprefix("next:").strip() if last.startswith("next:") else ""
        quote = Quote(at.file, at.line - (index - first), quote_line(" ".join(what), 600))
        self._facts.user_errors.append(LoggedUserError(quote, where, next_text))


def _is_followed_by_next(lines: list[bytes], index: int) -> bool:
    return index + 1 < len(lines) and lines[index + 1].startswith(b"  next:")


def _classify(line: bytes) -> tuple[str, ...]:
    ids = [name for name in _NAMES if SIGNATURES[name].pattern.search(line)] if not ADVICE.search(line) else []
    ids += [name for marker, name in _MARKERS if marker.search(line)]
    return tuple(ids)


def _blocks(stream: BinaryIO) -> Iterator[bytes]:
    """Blocks of complete lines, a few megabytes each; completes the last line."""
    rest = b""
    while chunk := stream.read(BLOCK_BYTES):
        end = chunk.rfind(b"\n") + 1
        if not end:
            rest = (rest + chunk)[-BLOCK_BYTES:]  # a line of this length is not a log line
            continue
        yield rest + chunk[:end]
        rest = chunk[end:]
    if rest:
        yield rest + b"\n"


def _filter_by_keyword(shapes: list[bytes]) -> list[bytes]:
    """The shapes that contain a keyword."""
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


LOG_NAME: Final = re.compile(r"\.(?:log|out|err|txt)(?:\.\d+)?$")


_SKIPPED_FOLDERS: Final = frozenset({"node_modules", "site-packages", "__pycache__"})


def find_logs(folder: Path) -> list[Path]:
    """The log files in a folder, recursively, sorted by name. Skips installed packages."""
    logs: list[Path] = []
    for root, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith(".") and name not in _SKIPPED_FOLDERS]
        logs += [path for name in names if LOG_NAME.search(name) and (path := Path(root, name)).is_file()]
    return sorted(logs)
