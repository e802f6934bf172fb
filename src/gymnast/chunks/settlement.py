"""What the records of a chunk settle: scored rollouts, permanent failures, attempts made.

Only sealed bytes are read. A line that is not a record (a torn write in the middle of a file) settles nothing: its
rollout stays owed. All readers see the same bytes and therefore agree.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import msgspec

from gymnast.rollouts.tally import Tally
from gymnast.store.chunk_files import Progress, Seal
from gymnast.store.scored_records import parse_scored
from gymnast.types.failure import FailureKind
from gymnast.types.task import (
    AGENT_REF,
    FAILURE_CLASS,
    FAILURE_TERMINAL,
    ROLLOUT_INDEX,
    TASK_INDEX,
    RolloutKey,
    agent_name_of,
)
from gymnast.types.usage import UsageCounter, usage_of_line

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from gymnast.store.chunk_layout import ChunkFolder


class _FailureRecord(msgspec.Struct):
    task: int = msgspec.field(name=TASK_INDEX)
    rollout: int = msgspec.field(name=ROLLOUT_INDEX)
    failure: dict[str, Any] | None = None
    failure_class: str | None = msgspec.field(name=FAILURE_CLASS, default=None)
    is_final: bool = msgspec.field(name=FAILURE_TERMINAL, default=False)
    agent_ref: Any = msgspec.field(name=AGENT_REF, default=None)

    @property
    def kind(self) -> str:
        return str((self.failure or {}).get("kind") or self.failure_class or FailureKind.UNKNOWN.value)


_decoder: Final = msgspec.json.Decoder(_FailureRecord)


@dataclass(slots=True)
class Settlement:
    """What records settle. Keys are packed."""

    scored: set[int] = field(default_factory=set)
    failed: dict[int, str] = field(default_factory=dict)
    attempts: dict[int, int] = field(default_factory=dict)
    """Failed attempts."""
    records: int = 0
    damaged: int = 0
    """Lines that are not records."""
    spent: UsageCounter = field(default_factory=UsageCounter)
    duplicates: list[RolloutKey] = field(default_factory=list)
    """Rollouts with a second scored record. Lease holders never write one."""
    tally: Tally = field(default_factory=Tally)
    _failed_agents: dict[int, str] = field(default_factory=dict)

    def add_scored(self, line: bytes) -> None:
        record = parse_scored(line)
        if record is None:
            self.damaged += 1
            return
        packed = record.key.packed
        if packed in self.scored:
            self.duplicates.append(record.key)
            return
        self._count(line)
        self.scored.add(packed)
        self.tally.add_scored(record.facts)
        self._unfail(packed)

    def add_failure(self, line: bytes, *, reopened: bool) -> None:
        try:
            record = _decoder.decode(line)
        except (msgspec.MsgspecError, RecursionError):
            self.damaged += 1
            return
        packed, agent = RolloutKey(record.task, record.rollout).packed, agent_name_of({AGENT_REF: record.agent_ref})
        self._count(line)
        self.tally.add_failure(agent or "", record.kind)
        if packed in self.scored or reopened:
            return
        self.attempts[packed] = self.attempts.get(packed, 0) + 1
        if record.is_final:
            self._unfail(packed)
            self.failed[packed], self._failed_agents[packed] = record.kind, agent or ""
            self.tally.fail(agent or "", record.kind)

    def _unfail(self, packed: int) -> None:
        kind = self.failed.pop(packed, None)
        if kind is not None:
            self.tally.unfail(self._failed_agents.pop(packed), kind)

    def _count(self, line: bytes) -> None:
        self.records += 1
        usage = usage_of_line(line)
        if usage is not None:
            self.spent.merge(usage)

    def progress(self) -> Progress:
        failed = dict(Counter(self.failed.values()))
        return Progress(
            scored=len(self.scored),
            failed=failed,
            attempts=self.records,
            agents=self.tally.totals(),
            spent=self.spent.usage(),
        )


def settle(folder: ChunkFolder, seals: Iterable[Seal]) -> Settlement:
    """Read what the sealed epochs of a chunk settle."""
    settled = Settlement()
    for seal in seals:
        for line in read_lines_between(folder.scored_records(seal.epoch), 0, seal.scored_bytes):
            settled.add_scored(line)
        for line in read_lines_between(folder.failures(seal.epoch), 0, seal.failures_bytes):
            settled.add_failure(line, reopened=seal.reopened)
    return settled


def read_lines_between(path: Path, start: int, end: int) -> Iterator[bytes]:
    """The lines of a byte range that starts and ends at line boundaries."""
    if end <= start:
        return
    with path.open("rb", buffering=1 << 18) as stream:
        stream.seek(start)
        left = end - start
        for line in stream:
            left -= len(line)
            if left < 0:
                return
            yield line
            if not left:
                return
