"""What failed in a run: attempts and rollouts by kind, from `x_failures.jsonl`. A failure is never a reward."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import msgspec

from gymnast.errors import DataError
from gymnast.store.records import record_file
from gymnast.types.task import FAILURE_CLASS, FAILURE_TERMINAL, ROLLOUT_INDEX, TASK_INDEX, RolloutKey

if TYPE_CHECKING:
    from collections.abc import Container, Sequence
    from pathlib import Path

    from gymnast.store.records import RecordFile


@dataclass(slots=True)
class FailureSummary:
    """The failures of a run, as far as its rollouts have no score."""

    attempts: Counter[str] = field(default_factory=Counter)
    """Every failed attempt, also of rollouts that were scored later."""
    last_kind: dict[int, str] = field(default_factory=dict)
    """Packed key -> kind of the last failure, of rollouts without a score."""
    final: set[int] = field(default_factory=set)
    """Packed keys of those that failed for good."""

    def kinds(self) -> Counter[str]:
        """Rollouts without a score that failed at least once, by the kind of their last failure."""
        return Counter(self.last_kind.values())


class _Failure(msgspec.Struct):
    task: int = msgspec.field(name=TASK_INDEX)
    rollout: int = msgspec.field(name=ROLLOUT_INDEX)
    failure: dict[str, Any] | None = None
    named: str | None = msgspec.field(name=FAILURE_CLASS, default=None)
    terminal: bool = msgspec.field(name=FAILURE_TERMINAL, default=False)


_DECODER = msgspec.json.Decoder(_Failure)


def read_failures(paths: Sequence[Path | RecordFile], scored: Container[int] = ()) -> FailureSummary:
    """The failures in these files; a file that is not there has none. `scored`: packed keys of scored rollouts."""
    found = FailureSummary()
    for records in map(record_file, paths):
        if not records.exists():
            continue
        with records.open() as stream:
            for number, line in enumerate(stream, 1):
                if line.strip():
                    _take(found, line, scored, f"{records.path} line {number}")
    return found


def _take(found: FailureSummary, line: bytes, scored: Container[int], where: str) -> None:
    try:
        record = _DECODER.decode(line)
    except msgspec.MsgspecError as error:
        raise DataError(f"the record of a failure cannot be read: {error}", where=where) from error
    kind = str((record.failure or {}).get("kind") or record.named or "unknown")
    found.attempts[kind] += 1
    packed = RolloutKey(record.task, record.rollout).packed
    if packed not in scored:
        found.last_kind[packed] = kind
        if record.terminal:
            found.final.add(packed)
