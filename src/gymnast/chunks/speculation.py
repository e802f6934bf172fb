"""Speculative execution: an idle worker repeats rollouts that others have in flight, in case those are lost.

The result of a speculative rollout is not the worker's to write. It counts only if the holder of the chunk is lost and
this worker claims the chunk: the rollout was then started long ago, or has already finished.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gymnast.chunks.held_chunk import Row
    from gymnast.types.task import RolloutKey
    from gymnast.types.totals import RolloutFacts
    from gymnast.types.usage import ModelUsage


@dataclass(frozen=True, slots=True)
class SpeculativeResult:
    """The scored record of a speculative rollout."""

    key: RolloutKey
    line: bytes
    facts: RolloutFacts
    usage: ModelUsage | None
    persisted: bool


class Speculation:
    """The speculative rollouts of one worker: queued, running or finished. Keys are packed."""

    def __init__(self) -> None:
        self._queued: dict[int, Row] = {}
        self._running: set[int] = set()
        self._results: dict[int, SpeculativeResult] = {}

    def __contains__(self, packed: int) -> bool:
        return packed in self._running

    def __len__(self) -> int:
        return len(self._queued) + len(self._running) + len(self._results)

    def retarget(self, rows: Iterable[Row], limit: int) -> bool:
        """Run these rows and no others, at most `limit` at a time; those that run already continue.

        Returns whether running rollouts were dropped.
        """
        targets = {row.key.packed: row for row in rows}
        dropped = self._running - targets.keys()
        self._running -= dropped
        self._results = {packed: result for packed, result in self._results.items() if packed in targets}
        new = (packed for packed in targets if packed not in self._running and packed not in self._results)
        room = limit - len(self._running)
        self._queued = {packed: targets[packed] for packed, _ in zip(new, range(room), strict=False)}
        return bool(dropped)

    def next_row(self) -> Row | None:
        """Start the next queued rollout."""
        for packed, row in self._queued.items():
            del self._queued[packed]
            self._running.add(packed)
            return row
        return None

    def keep(self, result: SpeculativeResult) -> None:
        """Keep the result of a rollout that finished before the original did."""
        if result.key.packed in self._running:
            self._running.remove(result.key.packed)
            self._results[result.key.packed] = result

    def discard(self, key: RolloutKey) -> None:
        """Drop a rollout that failed."""
        self._running.discard(key.packed)

    def adopt(self, owed: Iterable[int]) -> dict[int, SpeculativeResult | None]:
        """Take over those of these rollouts that were started here, with their results if they have finished."""
        adopted: dict[int, SpeculativeResult | None] = {}
        for packed in owed:
            self._queued.pop(packed, None)
            if packed in self._running:
                self._running.remove(packed)
                adopted[packed] = None
            elif packed in self._results:
                adopted[packed] = self._results.pop(packed)
        return adopted
