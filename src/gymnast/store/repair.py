"""Repairs a run's file after a crash: torn ends are cut off and damaged lines removed; nothing is guessed.

What is removed is kept next to the file in `<name>.damaged`.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from gymnast.errors import DataError
from gymnast.store.atomic import sync_folder
from gymnast.store.keys import KeySet, key_of_record
from gymnast.store.scored_records import parse_scored

if TYPE_CHECKING:
    from collections.abc import Callable, Container
    from pathlib import Path

    from gymnast.types.task import RolloutKey
    from gymnast.types.totals import RolloutFacts

    OnRecord = Callable[[RolloutKey, bytes, RolloutFacts | None], None]
    """Receives the key, the line and, of a scored record, what it adds to the totals."""


@dataclass(slots=True)
class RepairResult:
    lines: int = 0
    damaged: int = 0
    """Removed lines, including a torn end."""
    duplicates: list[RolloutKey] = field(default_factory=list)
    """Keys that occurred more than once; the first line of each was kept."""
    unplanned: int = 0
    """Removed records of rollouts that are not in the plan."""


def repair_file(
    path: Path, on_record: OnRecord, *, unique_keys: bool, planned: Container[int] | None = None
) -> RepairResult:
    """Read every line, pass each record to `on_record`, and repair the file if needed.

    A missing file is empty. An intact file is only read. With `unique_keys` (scored records), lines without a reward
    and further lines of the same rollout are removed as well. With `planned` (packed keys), records of other rollouts
    are removed, too.
    """
    if not path.exists():
        return RepairResult()
    scan = _scan(path, on_record, unique_keys=unique_keys, planned=planned)
    if len(scan.unplanned_lines) > scan.lines:
        raise _other_run_error(path, len(scan.unplanned_lines), scan.lines + len(scan.unplanned_lines))
    if scan.bad or scan.duplicate_lines or scan.unplanned_lines:
        _save_removed(path, [*scan.bad, *scan.duplicate_lines, *scan.unplanned_lines])
    if scan.is_broken_inside:
        _rewrite(path, unique_keys=unique_keys, planned=planned)
    elif scan.good_end < scan.position:
        _truncate(path, scan.good_end)
    _end_with_newline(path)
    return scan.result()


def scan_file(
    path: Path, on_record: OnRecord, *, unique_keys: bool, planned: Container[int] | None = None
) -> RepairResult:
    """Read a file as `repair_file` does, and leave it as it is."""
    if not path.exists():
        return RepairResult()
    return _scan(path, on_record, unique_keys=unique_keys, planned=planned).result()


def _scan(path: Path, on_record: OnRecord, *, unique_keys: bool, planned: Container[int] | None) -> _Scan:
    scan = _Scan(on_record, unique_keys=unique_keys, planned=planned)
    with path.open("rb", buffering=1 << 20) as stream:
        for raw in stream:
            scan.add(raw)
    return scan


class _Scan:
    """One pass over a file: what is intact, and whether only the end is damaged."""

    def __init__(self, on_record: OnRecord, *, unique_keys: bool, planned: Container[int] | None) -> None:
        self._on_record = on_record
        self._planned = planned
        self._seen: KeySet | None = KeySet() if unique_keys else None
        self.lines = self.position = self.good_end = 0
        self.bad: list[bytes] = []
        self.duplicates: list[RolloutKey] = []
        self.duplicate_lines: list[bytes] = []
        self.unplanned_lines: list[bytes] = []
        self.is_broken_inside = False

    def add(self, raw: bytes) -> None:
        self.position += len(raw)
        line = raw.rstrip(b"\r\n")
        facts: RolloutFacts | None = None
        if self._seen is None:
            key = key_of_record(line, scored=False)
        else:
            record = parse_scored(line)
            key, facts = record if record is not None else (None, None)
        if key is None:
            if line:
                self.bad.append(line)
            self.is_broken_inside = self.is_broken_inside or raw.endswith(b"\n")
        elif self._planned is not None and key.packed not in self._planned:
            self.unplanned_lines.append(line)
            self.is_broken_inside = True
        elif self._seen is not None and key.packed in self._seen:
            self.duplicates.append(key)
            self.duplicate_lines.append(line)
            self.is_broken_inside = True
        else:
            self._on_record(key, line, facts)
            self.lines += 1
            self.good_end = self.position
            if self._seen is not None:
                self._seen.add(key.packed)

    def result(self) -> RepairResult:
        return RepairResult(self.lines, len(self.bad), self.duplicates, len(self.unplanned_lines))


def _truncate(path: Path, size: int) -> None:
    """Cut off a torn end."""
    with path.open("r+b") as stream:
        stream.truncate(size)
        os.fsync(stream.fileno())


def _rewrite(path: Path, *, unique_keys: bool, planned: Container[int] | None) -> None:
    """Replace the file by a copy without damaged lines, duplicate records and records that were never planned."""
    seen = KeySet()
    temporary = path.with_name(path.name + ".repaired")
    with path.open("rb") as source, temporary.open("wb") as target:
        for raw in source:
            line = raw.rstrip(b"\r\n")
            key = key_of_record(line, scored=unique_keys)
            if key is None or (planned is not None and key.packed not in planned):
                continue
            if not (unique_keys and key.packed in seen):
                seen.add(key.packed)
                target.write(line + b"\n")
        target.flush()
        os.fsync(target.fileno())
    temporary.replace(path)
    sync_folder(path.parent)


def _end_with_newline(path: Path) -> None:
    """Restore the newline of a last record that is otherwise complete."""
    with path.open("r+b") as stream:
        if stream.seek(0, os.SEEK_END) > 0:
            stream.seek(-1, os.SEEK_END)
            if stream.read(1) != b"\n":
                stream.write(b"\n")
                os.fsync(stream.fileno())


def _other_run_error(path: Path, unplanned: int, records: int) -> DataError:
    return DataError(
        f"{unplanned} of {records} records are of rollouts that are not in the materialized inputs",
        where=str(path),
        next="the two files belong to different runs: restore the right ones, or choose another --output",
    )


def _save_removed(path: Path, lines: list[bytes]) -> None:
    with path.with_name(path.name + ".damaged").open("ab") as stream:
        for line in lines:
            stream.write(line + b"\n")
        stream.flush()
        os.fsync(stream.fileno())
    sync_folder(path.parent)
