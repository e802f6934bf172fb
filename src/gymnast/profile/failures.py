"""The failures of a run: attempts and rollouts by kind, from `x_failures.jsonl`. A failure is never a reward."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import msgspec

from gymnast.errors import DataError
from gymnast.store.records import record_file
from gymnast.types.failure import FailureKind
from gymnast.types.task import FAILURE_CLASS, FAILURE_TERMINAL, ROLLOUT_INDEX, TASK_INDEX, RolloutKey

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Sequence
    from pathlib import Path

    from gymnast.store.records import RecordFile


@dataclass(slots=True)
class FailureSummary:
    attempts: Counter[str] = field(default_factory=Counter)
    """All failed attempts by kind, including those of rollouts scored later."""
    last_kind: dict[int, str] = field(default_factory=dict)
    """Packed key -> kind of the last failure, for rollouts without a score."""
    final: set[int] = field(default_factory=set)
    """Packed keys of rollouts that failed permanently."""

    def kinds(self) -> Counter[str]:
        """Failed rollouts without a score, by the kind of their last failure."""
        return Counter(self.last_kind.values())


class _Failure(msgspec.Struct):
    task: int = msgspec.field(name=TASK_INDEX)
    rollout: int = msgspec.field(name=ROLLOUT_INDEX)
    failure: dict[str, Any] | None = None
    failure_class: str | None = msgspec.field(name=FAILURE_CLASS, default=None)
    terminal: bool = msgspec.field(name=FAILURE_TERMINAL, default=False)


_DECODER = msgspec.json.Decoder(_Failure)


def read_failures(
    paths: Sequence[Path | RecordFile],
    scored: Container[int] = (),
    accepts: Callable[[int], bool] = lambda _: True,
) -> FailureSummary:
    """Read the failures in these files, which may not exist, of the packed keys that `accepts` says.

    `scored`: packed keys of scored rollouts.
    """
    summary = FailureSummary()
    for records in map(record_file, paths):
        if not records.exists():
            continue
        with records.open() as stream:
            for number, line in enumerate(stream, 1):
                if line.strip():
                    attempt = decode_failure(line, f"{records.path} line {number}")
                    if accepts(attempt.key.packed):
                        _add_attempt(summary, attempt, scored)
    return summary


@dataclass(frozen=True, slots=True)
class FailedAttempt:
    """What a line of the failures file says."""

    key: RolloutKey
    kind: str
    is_final: bool


def decode_failure(line: bytes, where: str) -> FailedAttempt:
    try:
        record = _DECODER.decode(line)
    except msgspec.MsgspecError as error:
        raise DataError(f"cannot read a failure record: {error}", where=where) from error
    kind = str((record.failure or {}).get("kind") or record.failure_class or FailureKind.UNKNOWN.value)
    return FailedAttempt(RolloutKey(record.task, record.rollout), kind, record.terminal)


def _add_attempt(summary: FailureSummary, attempt: FailedAttempt, scored: Container[int]) -> None:
    summary.attempts[attempt.kind] += 1
    packed = attempt.key.packed
    if packed not in scored:
        summary.last_kind[packed] = attempt.kind
        if attempt.is_final:
            summary.final.add(packed)
