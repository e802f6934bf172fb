"""The book of a worker: rows of the chunks that it holds, and each outcome into the file of the chunk it belongs to."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING

import orjson

from gymnast.cluster.held_chunk import HeldChunk, unkept_line
from gymnast.cluster.shadows import Ended, Shadows
from gymnast.rollouts.book import LATER, Book
from gymnast.rollouts.record import Record
from gymnast.store.manifest import Counts

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from gymnast.rollouts.book import Owed, Take
    from gymnast.types.task import RolloutKey
    from gymnast.types.usage import ModelUsage


class ChunkBook(Book):
    """Chunks come and go while the engine runs; it asks for rows until `close`."""

    def __init__(self, run_id: str, name: str, requested: int, take: Take | None = None) -> None:
        """`requested`: of the whole run, which is what retries are measured by."""
        super().__init__(run_id, name, Counts(requested=requested), take)
        self.held: dict[str, HeldChunk] = {}
        self.hungry = asyncio.Event()
        """Rows were asked for, and there were none."""
        self.urgent = asyncio.Event()
        """The last rollout of all chunks was settled: that need not wait for its turn to be told."""
        self.shadows = Shadows()
        self._owner: dict[int, HeldChunk] = {}
        self._is_closed = False
        self._taken = self._scored = 0
        self._failed: Counter[str] = Counter()
        self._usage: ModelUsage | None = None

    # --- chunks ------------------------------------------------------------------------------------------------------

    def add(self, held: HeldChunk) -> None:
        """A chunk was claimed."""
        self.held[held.chunk.id] = held
        self._owner.update(dict.fromkeys(held.open, held))
        self._taken += len(held.open)
        self.hungry.clear()
        if self.shadows:
            self._adopt(held)

    def _adopt(self, held: HeldChunk) -> None:
        """What was copied of a chunk is its own now."""
        adopted = self.shadows.adopt(held.open)
        held.pass_over(adopted)
        for ended in filter(None, adopted.values()):
            self._usage = ended.usage
            self.keep_scored(ended.key, ended.line, persisted=ended.persisted)

    def remove(self, held: HeldChunk) -> None:
        """A chunk has ended, or was lost: outcomes of its rollouts that still come are nobody's."""
        self.held.pop(held.chunk.id, None)
        held.unstarted.clear()
        for packed in held.open:
            self._owner.pop(packed, None)
        self._taken -= len(held.open)

    def ceded(self, held: HeldChunk) -> None:
        """Rows of a chunk were given away for good."""
        rows = held.end_ceding()
        self._taken -= len(rows)
        for row in rows:
            self._owner.pop(row.key.packed, None)

    def close(self) -> None:
        """There will be no more rows."""
        self._is_closed = True

    @property
    def unstarted(self) -> int:
        return sum(len(held.unstarted) for held in self.held.values())

    @property
    def pending_bytes(self) -> int:
        return sum(held.pending_bytes for held in self.held.values())

    def in_flight(self, keys: Iterable[RolloutKey]) -> Counter[str]:
        """How many of these rollouts are of which chunk."""
        owners = (self._owner.get(key.packed) for key in keys)
        return Counter(held.chunk.id for held in owners if held is not None)

    def is_ours(self, key: RolloutKey) -> bool:
        return key.packed in self._owner or key.packed in self.shadows

    def is_copy(self, key: RolloutKey) -> bool:
        return key.packed in self.shadows

    # --- what the engine asks ----------------------------------------------------------------------------------------

    def owed(self) -> Iterator[Owed]:
        while True:
            held = next((held for held in self.held.values() if held.unstarted), None)
            if held is not None:
                while (row := held.next_row()) is not None:
                    yield row.key, row.line
            elif (copied := self.shadows.next_row()) is not None:
                yield copied.key, copied.line
            elif self._is_closed:
                return
            else:
                self.hungry.set()
                yield LATER

    def attempts_of(self, key: RolloutKey) -> int:
        held = self._owner.get(key.packed)
        return held.attempts.get(key.packed, 0) if held is not None else 0

    def counts(self) -> Counts:
        """How far this worker is with what it took."""
        failed = dict(self._failed)
        owed = self._taken - self._scored - sum(failed.values())
        return Counts(self._taken, self._scored, failed, owed, self.attempts_made, self.retries_made)

    def spend(self, usage: ModelUsage | None) -> None:
        """Told of before the outcome that it belongs to."""
        super().spend(usage)
        self._usage = usage

    def keep_scored(self, key: RolloutKey, line: bytes, *, persisted: bool = True) -> None:
        held = self._owner.pop(key.packed, None)
        if held is None:  # the chunk is another's, and so is the rollout
            self.shadows.keep(Ended(key, line, self._usage, persisted))
            return
        kept = line if persisted else unkept_line(key, float(orjson.loads(line)["reward"]))
        held.keep_scored(key, kept, self._usage, is_kept=persisted)
        self._usage = None
        self._scored += 1
        self.attempts_made += 1
        self._take(Record(key, line))
        if not self._owner:
            self.urgent.set()

    def keep_failed(self, key: RolloutKey, line: bytes, kind: str, *, final: bool) -> None:
        held = self._owner.get(key.packed)
        if held is None:
            if final:
                self.shadows.forget(key)
            return
        held.keep_failed(key, line, kind, self._usage, final=final)
        self._usage = None
        self.attempts_made += 1
        if final:
            del self._owner[key.packed]
            self._failed[kind] += 1
            self._take(Record(key, line, kind))
            if not self._owner:
                self.urgent.set()
