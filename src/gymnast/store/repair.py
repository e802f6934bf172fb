"""Opening a run's file after whatever happened to it: torn ends are cut off, garbage is set aside, nothing is guessed.

What is taken out of a file is kept beside it in `<name>.damaged`, so that repairing loses no evidence.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from gymnast.store.keys import key_of_record
from gymnast.store.keyset import KeySet

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from gymnast.types.task import RolloutKey


@dataclass(slots=True)
class Repair:
    """What was found while opening a file."""

    lines: int = 0
    damaged: int = 0
    """Lines (the torn end included) that were taken out."""
    duplicates: list[RolloutKey] = field(default_factory=list)
    """Keys that stood in the file more than once; the first line of each was kept."""


def open_repaired(path: Path, take: Callable[[RolloutKey, bytes], None], *, one_line_a_key: bool) -> Repair:
    """Read every line, hand key and line to `take`, and mend the file if that is needed.

    A file that is not there is empty. A good file is only read. With `one_line_a_key` (scored records) a line without a
    reward and a second line of the same rollout are taken out as well.
    """
    if not path.exists():
        return Repair()
    reading = _Reading(take, one_line_a_key=one_line_a_key)
    with path.open("rb", buffering=1 << 20) as stream:
        for raw in stream:
            reading.line(raw)
    if reading.bad or reading.second:
        _keep_evidence(path, [*reading.bad, *reading.second])
    if reading.is_broken_inside:
        _rewrite(path, one_line_a_key=one_line_a_key)
    elif reading.good_end < reading.position:
        _truncate(path, reading.good_end)
    _end_with_newline(path)
    return Repair(reading.lines, len(reading.bad), reading.duplicates)


class _Reading:
    """One pass over a file: what is good, and whether what is not stands only at the end."""

    def __init__(self, take: Callable[[RolloutKey, bytes], None], *, one_line_a_key: bool) -> None:
        self._take = take
        self._seen: KeySet | None = KeySet() if one_line_a_key else None
        self.lines = self.position = self.good_end = 0
        self.bad: list[bytes] = []
        self.duplicates: list[RolloutKey] = []
        self.second: list[bytes] = []
        self.is_broken_inside = False

    def line(self, raw: bytes) -> None:
        self.position += len(raw)
        line = raw.rstrip(b"\r\n")
        key = key_of_record(line, scored=self._seen is not None)
        if key is None:
            if line:
                self.bad.append(line)
            self.is_broken_inside = self.is_broken_inside or raw.endswith(b"\n")
        elif self._seen is not None and key.packed in self._seen:
            self.duplicates.append(key)
            self.second.append(line)
            self.is_broken_inside = True
        else:
            self._take(key, line)
            self.lines += 1
            self.good_end = self.position
            if self._seen is not None:
                self._seen.add(key.packed)


def _truncate(path: Path, size: int) -> None:
    """Cut a torn end off."""
    with path.open("r+b") as stream:
        stream.truncate(size)
        os.fsync(stream.fileno())


def _rewrite(path: Path, *, one_line_a_key: bool) -> None:
    """A copy without damaged lines and second records of the same rollout, put in the file's place."""
    seen = KeySet()
    temporary = path.with_name(path.name + ".repaired")
    with path.open("rb") as source, temporary.open("wb") as target:
        for raw in source:
            line = raw.rstrip(b"\r\n")
            key = key_of_record(line, scored=one_line_a_key)
            if key is not None and not (one_line_a_key and key.packed in seen):
                seen.add(key.packed)
                target.write(line + b"\n")
        target.flush()
        os.fsync(target.fileno())
    temporary.replace(path)


def _end_with_newline(path: Path) -> None:
    """A whole record whose newline was lost gets it back."""
    with path.open("r+b") as stream:
        if stream.seek(0, os.SEEK_END) > 0:
            stream.seek(-1, os.SEEK_END)
            if stream.read(1) != b"\n":
                stream.write(b"\n")
                os.fsync(stream.fileno())


def _keep_evidence(path: Path, lines: list[bytes]) -> None:
    with path.with_name(path.name + ".damaged").open("ab") as stream:
        for line in lines:
            stream.write(line + b"\n")
