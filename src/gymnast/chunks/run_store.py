"""The run store of a worker: rows of the chunks that it holds; each outcome goes to the file of its chunk.

Invariants:
- Every open rollout of a held chunk has exactly one owner, that chunk. An outcome of a rollout without an owner is
  dropped, unless the rollout is speculative.
- Chunks come and go while the engine runs. Until `close`, `owed` yields NOT_YET when there are no rows.
- `counts` covers what this worker took and still owns; rows that were ceded or lost do not count.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING

from gymnast.chunks.held_chunk import HeldChunk, placeholder_line
from gymnast.chunks.speculation import Speculation, SpeculativeResult
from gymnast.rollouts.run_store import NOT_YET, Owed, RunStore, Take
from gymnast.store.manifest import Counts

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from gymnast.types.task import RolloutKey
    from gymnast.types.totals import RolloutFacts
    from gymnast.types.usage import ModelUsage


class ChunkRunStore(RunStore):
    """Outcomes of the chunks that a worker holds."""

    def __init__(self, run_id: str, name: str, requested: int, take: Take | None = None) -> None:
        """`requested`: of the whole run, which the retry budget is measured by."""
        super().__init__(run_id, name, Counts(requested=requested), take)
        self.held: dict[str, HeldChunk] = {}
        self.needs_rows = asyncio.Event()
        """Set when the engine wanted a row and there was none."""
        self.flush_requested = asyncio.Event()
        """Set when the last open rollout was settled: commit it now, not at the next interval."""
        self.speculation = Speculation()
        self._owner: dict[int, HeldChunk] = {}
        self._is_closed = False
        self._taken = self._scored = 0
        self._failed: Counter[str] = Counter()
        self._usage: ModelUsage | None = None
        """Of the attempt whose outcome comes next."""

    # --- chunks ------------------------------------------------------------------------------------------------------

    def add(self, held: HeldChunk) -> None:
        self.held[held.chunk.id] = held
        self._owner.update(dict.fromkeys(held.open, held))
        self._taken += len(held.open)
        self.needs_rows.clear()
        if self.speculation:
            self._adopt(held)

    def _adopt(self, held: HeldChunk) -> None:
        """Turn speculative rollouts of a chunk into its own."""
        adopted = self.speculation.adopt(held.open)
        held.skip_started(adopted)
        for result in filter(None, adopted.values()):
            self._usage = result.usage
            self.record_scored(result.key, result.line, result.facts, persisted=result.persisted)

    def remove(self, held: HeldChunk) -> None:
        """Remove a chunk that has ended or was lost. Outcomes of its rollouts are dropped from now on."""
        self.held.pop(held.chunk.id, None)
        held.unstarted.clear()
        for packed in held.open:
            self._owner.pop(packed, None)
        self._taken -= len(held.open)

    def finish_ceding(self, held: HeldChunk) -> None:
        """Remove rows of a chunk whose cession is on disk."""
        rows = held.finish_ceding()
        self._taken -= len(rows)
        for row in rows:
            self._owner.pop(row.key.packed, None)

    def close(self) -> None:
        """No more chunks will be added."""
        self._is_closed = True

    @property
    def unstarted(self) -> int:
        return sum(len(held.unstarted) for held in self.held.values())

    @property
    def pending_bytes(self) -> int:
        return sum(held.pending_bytes for held in self.held.values())

    def in_flight(self, keys: Iterable[RolloutKey]) -> Counter[str]:
        """How many of these rollouts belong to which chunk."""
        owners = (self._owner.get(key.packed) for key in keys)
        return Counter(held.chunk.id for held in owners if held is not None)

    def is_ours(self, key: RolloutKey) -> bool:
        return key.packed in self._owner or key.packed in self.speculation

    def is_speculative(self, key: RolloutKey) -> bool:
        return key.packed in self.speculation

    # --- what the engine uses ----------------------------------------------------------------------------------------

    def owed_inputs(self) -> Iterator[Owed]:
        while True:
            held = next((held for held in self.held.values() if held.unstarted), None)
            if held is not None:
                while (row := held.next_row()) is not None:
                    yield row.key, row.line
            elif (row := self.speculation.next_row()) is not None:
                yield row.key, row.line
            elif self._is_closed:
                return
            else:
                self.needs_rows.set()
                yield NOT_YET

    def attempts_of(self, key: RolloutKey) -> int:
        held = self._owner.get(key.packed)
        return held.attempts.get(key.packed, 0) if held is not None else 0

    def counts(self) -> Counts:
        """Progress of this worker with what it took."""
        failed = dict(self._failed)
        owed = self._taken - self._scored - sum(failed.values())
        return Counts(self._taken, self._scored, failed, owed, self.attempts_made, self.retries_made)

    def add_usage(self, usage: ModelUsage | None) -> None:
        """Called before the outcome that the usage belongs to is recorded."""
        super().add_usage(usage)
        self._usage = usage

    def record_scored(self, key: RolloutKey, line: bytes, facts: RolloutFacts, *, persisted: bool = True) -> None:
        held = self._owner.pop(key.packed, None)
        if held is None:  # another worker's, or speculative
            self.speculation.keep(SpeculativeResult(key, line, facts, self._usage, persisted))
            return
        record = line if persisted else placeholder_line(key, facts.reward)
        held.record_scored(key, record, facts, self._usage, is_record=persisted)
        self._usage = None
        self._scored += 1
        self.settled.tally.add_scored(facts)
        self.attempts_made += 1
        self.deliver(key, line)
        if not self._owner:
            self.flush_requested.set()

    def record_failed(self, key: RolloutKey, line: bytes, kind: str, agent: str, *, final: bool) -> None:
        held = self._owner.get(key.packed)
        if held is None:
            if final:
                self.speculation.discard(key)
            return
        held.record_failed(key, line, kind, agent, self._usage, final=final)
        self._usage = None
        self.attempts_made += 1
        self.settled.tally.add_failure(agent, kind)
        if final:
            self.settled.tally.fail(agent, kind)
            del self._owner[key.packed]
            self._failed[kind] += 1
            self.deliver(key, line, kind)
            if not self._owner:
                self.flush_requested.set()
