"""A chunk that this worker holds: its rows, what is settled of them, and the files their records go to.

Invariants:
- Every row of the chunk is in exactly one state: settled, ceded, or open. Open rows are unstarted, being ceded, or in
  flight; `open` has all of them.
- Heartbeats and ends report only what is on disk (`confirm`), never what is still in memory.
- Rows of a pending cession are run by no worker until the cession is known to be on disk.
- Everything runs in the event loop, except `PendingWrite.write`.
"""

from __future__ import annotations

import os
import sys
from array import array
from collections import Counter, deque
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING, NamedTuple

import orjson

from gymnast.chunks.shard import Shard
from gymnast.errors import DataError
from gymnast.rollouts.tally import Tally
from gymnast.store.chunk_files import CededChunk, Chunk, EndKind, Heartbeat, LeaseEnd, Progress
from gymnast.store.keys import key_of_line
from gymnast.types.task import NO_PERSIST, ROLLOUT_INDEX, TASK_INDEX, RolloutKey
from gymnast.types.usage import ModelUsage, UsageCounter

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable
    from pathlib import Path

    from gymnast.chunks.lease import Claim
    from gymnast.chunks.settlement import Settlement
    from gymnast.store.chunk_layout import ChunkFolder
    from gymnast.types.totals import RolloutFacts


class Row(NamedTuple):
    """A row of the materialized inputs."""

    number: int
    offset_bytes: int
    key: RolloutKey
    line: bytes
    """Without its newline."""


def read_rows(materialized: Path, chunk: Chunk) -> list[Row]:
    data = _read_range(materialized, chunk.offset_bytes, chunk.size_bytes)
    lines = data.split(b"\n")[: chunk.rows]
    is_planned = len(data) == chunk.size_bytes and len(lines) == chunk.rows
    if not is_planned or (chunk.keys and key_of_line(lines[0]) != RolloutKey(*chunk.keys[0][:2])):
        raise DataError("the materialized inputs do not match the plan", where=str(materialized))
    # The plan's keys are cheaper than those of the lines.
    keys = chunk.rollout_keys() if chunk.keys else [_parse_key(line, materialized, chunk) for line in lines]
    numbers = range(chunk.first_row, chunk.first_row + chunk.rows)
    offsets = accumulate((len(line) + 1 for line in lines), initial=chunk.offset_bytes)
    rows = map(Row._make, zip(numbers, offsets, keys, lines, strict=False))
    if not chunk.spans:
        return list(rows)
    own = set(chunk.row_numbers())
    return [row for row in rows if row.number in own]


def unsettled_rows(rows: Iterable[Row], children: Iterable[CededChunk], settled: Settlement) -> Iterable[Row]:
    """Those rows of a chunk that are neither ceded nor settled."""
    ceded = {number for cession in children for number in cession.child.row_numbers()}
    if not (ceded or settled.scored or settled.failed):
        return rows
    own = (row for row in rows if row.number not in ceded)
    return (row for row in own if row.key.packed not in settled.scored and row.key.packed not in settled.failed)


def _read_range(path: Path, offset: int, size: int) -> bytes:
    """Read a byte range, or as much of it as there is; a single read may return less than it was asked for."""
    with path.open("rb", buffering=0) as stream:
        data = os.pread(stream.fileno(), size, offset)
        while len(data) < size and (more := os.pread(stream.fileno(), size - len(data), offset + len(data))):
            data += more
    return data


def _parse_key(line: bytes, materialized: Path, chunk: Chunk) -> RolloutKey:
    key = key_of_line(line)
    if key is None:
        where = f"{materialized}, rows of chunk {chunk.id}"
        raise DataError("a materialized input has no task and rollout index", where=where)
    return key


@dataclass(frozen=True, slots=True)
class Cession:
    """Rows that are being ceded. Until that is certain, no worker runs them."""

    number: int
    child: Chunk
    attempts: dict[str, int]
    rows: tuple[Row, ...]


class PendingWrite(NamedTuple):
    """Records on their way to disk."""

    progress: Progress
    """Of the chunk once they are written."""
    parts: tuple[tuple[Shard, bytearray, int], ...]
    """Shard, bytes, and their offset."""

    def write(self) -> None:
        """Blocking: call it in a thread. After an OSError, write everything again."""
        for shard, data, offset in self.parts:
            if data:
                shard.write(data, offset)


class _Tally:
    """Counts of a chunk, from those of the sealed epochs on."""

    def __init__(self, before: Progress) -> None:
        self.scored, self.failed, self.records = before.scored, Counter(before.failed), before.attempts
        self.agents = Tally(before.agents)
        self._spent = UsageCounter()
        self._spent.merge(before.spent)

    def count_record(self, usage: ModelUsage | None) -> None:
        self.records += 1
        if usage is not None:
            self._spent.merge(usage)

    def progress(self) -> Progress:
        failed, spent = dict(+self.failed), self._spent.usage()
        agents = self.agents.totals()
        return Progress(scored=self.scored, failed=failed, attempts=self.records, agents=agents, spent=spent)


class HeldChunk:
    """A chunk as its holder knows it."""

    def __init__(
        self,
        chunk: Chunk,
        claim: Claim,
        folder: ChunkFolder,
        rows: Iterable[Row],
        inherited_attempts: dict[str, int] | None = None,
    ) -> None:
        self.chunk = chunk
        self.lease = claim.lease
        self.folder = folder
        self.scored = Shard(folder.scored_records(self.lease.epoch))
        self.failures = Shard(folder.failures(self.lease.epoch))
        self.attempts = dict(claim.settled.attempts)
        """Failed attempts of rollouts that are owed, by packed key."""
        self.children: list[str] = []
        self.ceding: Cession | None = None
        self.heartbeats = 0
        self._cessions = 0
        self._tally = _Tally(self.lease.before)
        self._committed = self.lease.before
        """Progress that is on disk."""
        self.unstarted = deque(unsettled_rows(rows, claim.children, claim.settled))
        self.open = {row.key.packed: row.number for row in self.unstarted}
        """Rollouts that are neither settled nor ceded, with their row numbers."""
        self._index: array[int] | None = array("I")
        """Row number and length of each scored line. None once a line is a placeholder."""
        for name, number in (inherited_attempts or {}).items():
            task, _, rollout = name.partition(":")
            packed = RolloutKey(int(task), int(rollout)).packed
            self.attempts[packed] = self.attempts.get(packed, 0) + number

    # --- rows --------------------------------------------------------------------------------------------------------

    def next_row(self) -> Row | None:
        return self.unstarted.popleft() if self.unstarted else None

    def skip_started(self, started: Collection[int]) -> None:
        """Do not start these rollouts: they are in flight here already."""
        if started:
            self.unstarted = deque(row for row in self.unstarted if row.key.packed not in started)

    @property
    def is_settled(self) -> bool:
        return not self.open

    def record_scored(
        self,
        key: RolloutKey,
        line: bytes,
        facts: RolloutFacts,
        usage: ModelUsage | None = None,
        *,
        is_record: bool = True,
    ) -> None:
        """`usage`: of this attempt. `is_record`: whether the line is a record or a placeholder for one."""
        packed = key.packed
        self.scored.append(line)
        number = self.open.pop(packed)
        if not is_record:
            self._index = None
        elif self._index is not None:
            self._index.extend((number, len(line) + 1))
        self.attempts.pop(packed, None)
        self._tally.count_record(usage)
        self._tally.scored += 1
        self._tally.agents.add_scored(facts)

    def record_failed(
        self, key: RolloutKey, line: bytes, kind: str, agent: str, usage: ModelUsage | None = None, *, final: bool
    ) -> None:
        self.failures.append(line)
        self.attempts[key.packed] = self.attempts.get(key.packed, 0) + 1
        self._tally.count_record(usage)
        self._tally.agents.add_failure(agent, kind)
        if final:
            self.open.pop(key.packed, None)
            self._tally.failed[kind] += 1
            self._tally.agents.fail(agent, kind)

    # --- writing -----------------------------------------------------------------------------------------------------

    @property
    def pending_bytes(self) -> int:
        return self.scored.pending_bytes + self.failures.pending_bytes

    def take_pending(self) -> PendingWrite:
        """Everything that is not on disk yet."""
        shards = (self.scored, self.failures)
        parts = tuple((shard, shard.take_pending(), shard.committed) for shard in shards)
        return PendingWrite(self._tally.progress(), parts)

    def confirm(self, write: PendingWrite) -> None:
        """Count a write as committed."""
        for shard, data, _ in write.parts:
            shard.confirm(data)
        self._committed = write.progress

    def next_heartbeat(self, at: float, *, in_flight: int, is_draining: bool) -> Heartbeat:
        """The next heartbeat. It reports only what is on disk."""
        self.heartbeats += 1
        return Heartbeat(
            token=self.lease.token,
            counter=self.heartbeats,
            at=at,
            in_flight=in_flight,
            unstarted=len(self.unstarted),
            progress=self._committed,
            scored_bytes=self.scored.committed,
            failures_bytes=self.failures.committed,
            children=tuple(self.children),
            is_draining=is_draining,
        )

    def end(self, at: float, why: str | None = None) -> LeaseEnd:
        """The end of this lease; everything must be on disk."""
        return LeaseEnd(
            token=self.lease.token,
            kind=EndKind.DONE if self.is_settled else EndKind.RELEASED,
            at=at,
            progress=self._committed,
            scored_bytes=self.scored.committed,
            failures_bytes=self.failures.committed,
            children=tuple(self.children),
            why=why,
            index=_encode_little_endian(self._index) if self._index is not None else b"",
        )

    def close(self) -> None:
        self.scored.close()
        self.failures.close()

    # --- ceding ------------------------------------------------------------------------------------------------------

    def start_ceding(self, count: int) -> Cession:
        """Take the last unstarted rows out; `finish_ceding` must follow once the cession is on disk."""
        assert self.ceding is None
        rows = tuple(reversed([self.unstarted.pop() for _ in range(count)]))
        first, last = rows[0], rows[-1]
        child = Chunk(
            id=self.folder.child_id(self.lease.epoch, self._cessions),
            first_row=first.number,
            rows=last.number - first.number + 1,
            offset_bytes=first.offset_bytes,
            size_bytes=last.offset_bytes + len(last.line) + 1 - first.offset_bytes,
            spans=_spans(row.number for row in rows),
        )
        attempts = {str(row.key): number for row in rows if (number := self.attempts.get(row.key.packed))}
        self.ceding = Cession(self._cessions, child, attempts, rows)
        self._cessions += 1
        return self.ceding

    def finish_ceding(self) -> tuple[Row, ...]:
        """Drop the ceded rows: they belong to another chunk now."""
        assert self.ceding is not None
        cession, self.ceding = self.ceding, None
        self.children.append(cession.child.id)
        for row in cession.rows:
            self.open.pop(row.key.packed, None)
            self.attempts.pop(row.key.packed, None)
        return cession.rows


def _encode_little_endian(numbers: array[int]) -> bytes:
    if sys.byteorder == "big":
        numbers = array(numbers.typecode, numbers)
        numbers.byteswap()
    return numbers.tobytes()


def placeholder_line(key: RolloutKey, reward: float) -> bytes:
    """Stands for a scored record that must not be kept, so that its rollout counts as settled."""
    marker = {"reward": reward, NO_PERSIST: True, TASK_INDEX: key.task, ROLLOUT_INDEX: key.rollout}
    return orjson.dumps(marker)


def _spans(numbers: Iterable[int]) -> tuple[tuple[int, int], ...]:
    spans: list[tuple[int, int]] = []
    for number in numbers:
        if spans and sum(spans[-1]) == number:
            spans[-1] = (spans[-1][0], spans[-1][1] + 1)
        else:
            spans.append((number, 1))
    return tuple(spans)
