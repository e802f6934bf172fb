"""Log files in one streaming pass: signatures, exceptions and our own messages, with bounded memory.

A gigabyte of logs has few lines that matter. Lines that differ in numbers alone are judged once, and only those with a
needle in them are looked at.
"""

from __future__ import annotations

import os
import re
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Final

from gymnast.doctor.component_deaths import death_at
from gymnast.doctor.facts import Hit, LogFacts, LoggedUserError, Quote
from gymnast.doctor.findings import quoted
from gymnast.doctor.log_markers import ADVICE, BOUNDARY, JOB_CANCELLED, NEEDLES, REQUEUED, SATURATED, SHUTDOWN, STARTED
from gymnast.doctor.signatures import SIGNATURES
from gymnast.doctor.tracebacks import Tracebacks

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import BinaryIO

BLOCK_BYTES: Final = 1 << 22
_LONGEST_LINE: Final = 2000
_MOST_REMEMBERED: Final = 20_000
_MOST_USER_ERRORS: Final = 20
_MOST_DEATHS: Final = 50
_LONGEST_MESSAGE: Final = 60
_TELLING_NUMBERS: Final = (b"137", b"code 75", b"422", b"401", b"-9", b"status=4", b"status=5")
_DIGITS: Final = bytes.maketrans(b"0123456789", b"0000000000")
_NAMES: Final = tuple(SIGNATURES)
SATURATED_ID: Final = "saturated"
BOUNDARY_ID: Final = "boundary"
REQUEUED_ID: Final = "requeued"
JOB_CANCELLED_ID: Final = "whole_job_cancelled"
_SHUTDOWN_ID: Final = "shutdown"
_STARTED_ID: Final = "started"


def read_logs(paths: Iterable[Path]) -> LogFacts:
    """What these files say. A file that cannot be read is named and passed over."""
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
    facts.exceptions = reader.tracebacks.found()
    return facts


class _Reader:
    """Takes files one after the other."""

    def __init__(self, facts: LogFacts) -> None:
        self.tracebacks = Tracebacks()
        self._facts = facts
        self._dull: set[bytes] = set()
        self._telling: set[bytes] = set()
        self._meanings: dict[tuple[bytes, tuple[bool, ...]], tuple[str, ...]] = {}

    def read(self, name: str, stream: BinaryIO) -> None:
        self.tracebacks.begin(name)
        is_shutting_down = False
        before = 0
        for block in _blocks(stream):
            self._facts.size_bytes += len(block)
            shapes = block.translate(_DIGITS).split(b"\n")
            telling = self._telling_among(set(shapes))
            if telling or self.tracebacks.is_open:
                lines = block.split(b"\n")
                self.tracebacks.continue_in(lines, before, is_noise=is_shutting_down)
                for index, shape in enumerate(shapes):
                    if shape in telling:
                        ids = self._meaning(shape, lines[index])
                        self._look(Quote(name, before + index + 1, ""), lines, index, ids, noise=is_shutting_down)
                        is_shutting_down = (is_shutting_down or _SHUTDOWN_ID in ids) and _STARTED_ID not in ids
            before += len(shapes) - 1
        self._facts.lines += before

    def _telling_among(self, shapes: set[bytes]) -> set[bytes]:
        """The shapes of lines that may say something. Lines that differ in numbers alone have one shape."""
        known = shapes & self._telling
        fresh = list(shapes - known - self._dull)
        found = set(_with_needles(fresh))
        if len(self._telling) < _MOST_REMEMBERED:
            self._telling |= found
        if len(self._dull) < _MOST_REMEMBERED:
            self._dull.update(shape for shape in fresh if shape not in found and len(shape) <= _LONGEST_LINE)
        return known | found

    def _meaning(self, shape: bytes, line: bytes) -> tuple[str, ...]:
        """The signatures of a line: the same for all lines of its shape with the same telling numbers."""
        alike = (shape[:_LONGEST_LINE], tuple(number in line for number in _TELLING_NUMBERS))
        known = self._meanings.get(alike)
        if known is None:
            known = _classify(line[:_LONGEST_LINE])
            if len(self._meanings) < _MOST_REMEMBERED:
                self._meanings[alike] = known
        return known

    def _look(self, at: Quote, lines: list[bytes], index: int, ids: tuple[str, ...], *, noise: bool) -> None:
        line = lines[index]
        if b"raceback (most recent" in line:
            self.tracebacks.open_at(lines, index, at.line, is_noise=noise)
        elif line.startswith(b"  next:") or (line.startswith(b"  where:") and not _goes_on(lines, index)):
            self._user_error(at, lines, index)
        elif not noise and len(self._facts.deaths) < _MOST_DEATHS and (death := death_at(at, lines, index)):
            self._facts.deaths.append(death)
        if SATURATED_ID in ids and b"Waiting: 0 " in line:
            return
        self._note(ids, at, line, after_shutdown=noise)

    def _note(self, ids: tuple[str, ...], at: Quote, line: bytes, *, after_shutdown: bool) -> None:
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
            quote = Quote(at.file, at.line, quoted(line[:_LONGEST_LINE].decode(errors="replace")))
            if hit is None:
                self._facts.hits[name] = Hit(1, quote, quote, after_shutdown)
            else:
                hit.last = quote

    def _user_error(self, at: Quote, lines: list[bytes], index: int) -> None:
        """Our messages: what, then `  where:`, then `  next:`. The line in hand is the last of the three."""
        if len(self._facts.user_errors) >= _MOST_USER_ERRORS:
            return
        last = lines[index].decode(errors="replace").strip()
        where, first = last.removeprefix("where:").strip() if last.startswith("where:") else "", index
        said: list[str] = []
        while first > max(0, index - _LONGEST_MESSAGE):
            first -= 1
            text = lines[first].decode(errors="replace")
            if text.startswith("  where:"):
                where = text.removeprefix("  where:").strip()
            else:
                said.insert(0, text.strip())
            if not text.startswith(" "):
                break
        next_text = last.removeprefix("next:").strip() if last.startswith("next:") else ""
        quote = Quote(at.file, at.line - (index - first), quoted(" ".join(said), 600))
        self._facts.user_errors.append(LoggedUserError(quote, where, next_text))


def _goes_on(lines: list[bytes], index: int) -> bool:
    return index + 1 < len(lines) and lines[index + 1].startswith(b"  next:")


def _classify(line: bytes) -> tuple[str, ...]:
    found = [name for name in _NAMES if SIGNATURES[name].pattern.search(line)] if not ADVICE.search(line) else []
    if STARTED.search(line):
        found.append(_STARTED_ID)
    if SHUTDOWN.search(line):
        found.append(_SHUTDOWN_ID)
    saturated = SATURATED.search(line)
    if saturated is not None:
        found.append(SATURATED_ID)
    markers = ((BOUNDARY, BOUNDARY_ID), (REQUEUED, REQUEUED_ID), (JOB_CANCELLED, JOB_CANCELLED_ID))
    found += [name for marker, name in markers if marker.search(line)]
    return tuple(found)


def _blocks(stream: BinaryIO) -> Iterator[bytes]:
    """Whole lines, some megabytes at a time; the last line gets its end."""
    rest = b""
    while chunk := stream.read(BLOCK_BYTES):
        end = chunk.rfind(b"\n") + 1
        if not end:
            rest = (rest + chunk)[-BLOCK_BYTES:]  # a line without end is no log line
            continue
        yield rest + chunk[:end]
        rest = chunk[end:]
    if rest:
        yield rest + b"\n"


def _with_needles(shapes: list[bytes]) -> list[bytes]:
    """Those with a needle in them."""
    text = b"\n".join(shapes).lower()
    starts: set[int] = set()
    for needle in NEEDLES:
        at = text.find(needle)
        while at >= 0:
            starts.add(text.rfind(b"\n", 0, at) + 1)
            line_end = text.find(b"\n", at)
            at = text.find(needle, line_end) if line_end >= 0 else -1
    offsets = accumulate((len(shape) + 1 for shape in shapes), initial=0)
    return [shape for shape, offset in zip(shapes, offsets, strict=False) if offset in starts]


LOG_SUFFIXES: Final = re.compile(r"\.(?:log|out|err|txt)(?:\.\d+)?$")


_NO_LOGS: Final = frozenset({"node_modules", "site-packages", "__pycache__"})


def logs_in(folder: Path) -> list[Path]:
    """The log files of a folder, at any depth, in the order of their names. Installed packages have none."""
    found: list[Path] = []
    for place, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith(".") and name not in _NO_LOGS]
        found += [path for name in names if LOG_SUFFIXES.search(name) and (path := Path(place, name)).is_file()]
    return sorted(found)
