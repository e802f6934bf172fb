"""A chunk that this worker holds: its rows, what is settled of them, and the files where their records go."""

from __future__ import annotations

import os
import sys
from array import array
from collections import Counter, deque
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING, NamedTuple

import orjson

from gymnast.cluster.shard import Shard
from gymnast.errors import DataError
from gymnast.store.chunk_files import Beat, Chunk, End, EndKind, Progress
from gymnast.store.keys import key_of_line
from gymnast.types.task import NO_PERSIST, ROLLOUT_INDEX, TASK_INDEX, RolloutKey
from gymnast.types.usage import Account

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable
    from pathlib import Path

    from gymnast.cluster.lease import Claimed
    from gymnast.cluster.settling import Settlement
    from gymnast.store.chunk_files import Ceded
    from gymnast.store.chunk_layout import ChunkFolder
    from gymnast.types.usage import ModelUsage


class Row(NamedTuple):
    """A row of the materialized inputs."""

    number: int
    offset_bytes: int
    key: RolloutKey
    line: bytes
    """Without its newline."""


def read_rows(materialized: Path, chunk: Chunk) -> list[Row]:
    """The rows that belong to a chunk."""
    data = _bytes_at(materialized, chunk.offset_bytes, chunk.size_bytes)
    lines = data.split(b"\n")[: chunk.rows]
    is_planned = len(data) == chunk.size_bytes and len(lines) == chunk.rows
    if not is_planned or (chunk.keys and key_of_line(lines[0]) != RolloutKey(*chunk.keys[0][:2])):
        raise DataError("the materialized inputs are not what was planned", where=str(materialized))
    # The plan's keys are cheaper than those of the lines.
    keys = chunk.rollout_keys() if chunk.keys else [_key(line, materialized, chunk) for line in lines]
    numbers = range(chunk.first_row, chunk.first_row + chunk.rows)
    offsets = accumulate((len(line) + 1 for line in lines), initial=chunk.offset_bytes)
    rows = map(Row._make, zip(numbers, offsets, keys, lines, strict=False))
    if not chunk.spans:
        return list(rows)
    own = set(chunk.row_numbers())
    return [row for row in rows if row.number in own]


def still_open(rows: Iterable[Row], children: Iterable[Ceded], settled: Settlement) -> Iterable[Row]:
    """Those rows of a chunk that were not given away and are not settled."""
    gone = {number for ceded in children for number in ceded.child.row_numbers()}
    if not (gone or settled.scored or settled.failed):
        return rows
    kept = (row for row in rows if row.number not in gone)
    return (row for row in kept if row.key.packed not in settled.scored and row.key.packed not in settled.failed)


def _bytes_at(path: Path, offset: int, size: int) -> bytes:
    """A part of a file, or as much of it as there is; one read may give less than was asked for."""
    with path.open("rb", buffering=0) as stream:
        data = os.pread(stream.fileno(), size, offset)
        while len(data) < size and (more := os.pread(stream.fileno(), size - len(data), offset + len(data))):
            data += more
    return data


def _key(line: bytes, materialized: Path, chunk: Chunk) -> RolloutKey:
    key = key_of_line(line)
    if key is None:
        where = f"{materialized}, rows of chunk {chunk.id}"
        raise DataError("a materialized input has no task and rollout index", where=where)
    return key


@dataclass(frozen=True, slots=True)
class Cession:
    """Rows that are being given away. Until that is certain they are nobody's to run."""

    number: int
    child: Chunk
    attempts: dict[str, int]
    rows: tuple[Row, ...]


class Waiting(NamedTuple):
    """Records on their way to the disk."""

    progress: Progress
    """With them."""
    parts: tuple[tuple[Shard, bytearray, int], ...]
    """Where, what, and behind how many bytes."""

    def write(self) -> None:
        """Made for a thread. Raises OSError if that cannot be: then write it all again."""
        for shard, data, place in self.parts:
            if data:
                shard.write(data, place)


class HeldChunk:
    """What a holder knows of its chunk. Lives in the event loop; only `Waiting.write` is called elsewhere."""

    def __init__(
        self,
        chunk: Chunk,
        claimed: Claimed,
        folder: ChunkFolder,
        rows: Iterable[Row],
        inherited: dict[str, int] | None = None,
    ) -> None:
        self.chunk = chunk
        self.lease = claimed.lease
        self.folder = folder
        self.scored = Shard(folder.scored(self.lease.epoch))
        self.failures = Shard(folder.failures(self.lease.epoch))
        self.attempts = dict(claimed.settled.attempts)
        """Failed attempts of rollouts that are owed, by packed key."""
        self.children: list[str] = []
        self.ceding: Cession | None = None
        self.beats = 0
        self._cessions = 0
        before = self.lease.before
        self._scored, self._failed, self._records = before.scored, Counter(before.failed), before.attempts
        self._spent = Account()
        self._spent.merge(before.spent)
        self._committed = before  # what is on disk
        self.unstarted = deque(still_open(rows, claimed.children, claimed.settled))
        self.open = {row.key.packed: row.number for row in self.unstarted}
        """Rollouts that are neither settled nor given away, with their rows."""
        self._index, self._is_indexed = array("I"), True
        for name, number in (inherited or {}).items():
            task, _, rollout = name.partition(":")
            packed = RolloutKey(int(task), int(rollout)).packed
            self.attempts[packed] = self.attempts.get(packed, 0) + number

    # --- rows --------------------------------------------------------------------------------------------------------

    def next_row(self) -> Row | None:
        return self.unstarted.popleft() if self.unstarted else None

    def pass_over(self, begun: Collection[int]) -> None:
        """These rollouts are in flight here already."""
        if begun:
            self.unstarted = deque(row for row in self.unstarted if row.key.packed not in begun)

    @property
    def is_settled(self) -> bool:
        return not self.open

    def keep_scored(
        self, key: RolloutKey, line: bytes, usage: ModelUsage | None = None, *, is_kept: bool = True
    ) -> None:
        """`usage`: of this attempt. `is_kept`: the line is a record; else it only stands for one (`unkept_line`)."""
        packed = key.packed
        self._is_indexed = self._is_indexed and is_kept
        self.scored.append(line)
        self._index.extend((self.open.pop(packed), len(line) + 1))
        self._records += 1
        self.attempts.pop(packed, None)
        self._scored += 1
        if usage is not None:
            self._spent.merge(usage)

    def keep_failed(
        self, key: RolloutKey, line: bytes, kind: str, usage: ModelUsage | None = None, *, final: bool
    ) -> None:
        self.failures.append(line)
        self._records += 1
        self.attempts[key.packed] = self.attempts.get(key.packed, 0) + 1
        if final:
            self.open.pop(key.packed, None)
            self._failed[kind] += 1
        if usage is not None:
            self._spent.merge(usage)

    # --- writing -----------------------------------------------------------------------------------------------------

    @property
    def pending_bytes(self) -> int:
        return self.scored.pending_bytes + self.failures.pending_bytes

    def waiting(self) -> Waiting:
        """Everything that was kept and is not on disk."""
        failed, spent = dict(+self._failed), self._spent.usage()
        progress = Progress(scored=self._scored, failed=failed, attempts=self._records, spent=spent)
        return Waiting(progress, tuple((one, one.waiting(), one.committed) for one in (self.scored, self.failures)))

    def committed(self, kept: Waiting) -> None:
        """This is on disk."""
        for shard, data, _ in kept.parts:
            shard.confirm(data)
        self._committed = kept.progress

    def next_beat(self, at: float, *, in_flight: int, is_draining: bool) -> Beat:
        """Says only what is on disk."""
        self.beats += 1
        return Beat(
            token=self.lease.token,
            counter=self.beats,
            at=at,
            in_flight=in_flight,
            unstarted=len(self.unstarted),
            progress=self._committed,
            scored_bytes=self.scored.committed,
            failures_bytes=self.failures.committed,
            children=tuple(self.children),
            is_draining=is_draining,
        )

    def end(self, at: float, why: str | None = None) -> End:
        """The last word; everything must be on disk."""
        return End(
            token=self.lease.token,
            kind=EndKind.DONE if self.is_settled else EndKind.RELEASED,
            at=at,
            progress=self._committed,
            scored_bytes=self.scored.committed,
            failures_bytes=self.failures.committed,
            children=tuple(self.children),
            why=why,
            index=_little_endian(self._index) if self._is_indexed else b"",
        )

    def close(self) -> None:
        self.scored.close()
        self.failures.close()

    # --- ceding ------------------------------------------------------------------------------------------------------

    def begin_ceding(self, count: int) -> Cession:
        """Take the last unstarted rows out; `end_ceding` says what became of them."""
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
        attempts = {str(row.key): made for row in rows if (made := self.attempts.get(row.key.packed))}
        self.ceding = Cession(self._cessions, child, attempts, rows)
        self._cessions += 1
        return self.ceding

    def end_ceding(self) -> tuple[Row, ...]:
        """The rows are another chunk's now."""
        assert self.ceding is not None
        ceded, self.ceding = self.ceding, None
        self.children.append(ceded.child.id)
        for row in ceded.rows:
            self.open.pop(row.key.packed, None)
            self.attempts.pop(row.key.packed, None)
        return ceded.rows


def _little_endian(numbers: array[int]) -> bytes:
    if sys.byteorder == "big":
        numbers = array(numbers.typecode, numbers)
        numbers.byteswap()
    return numbers.tobytes()


def unkept_line(key: RolloutKey, reward: float) -> bytes:
    """Stands for a scored record that is not to be kept, so that its rollout counts as settled."""
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
