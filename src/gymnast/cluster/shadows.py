"""Copies of rollouts that others have in flight when nothing is left to begin, in case those are lost.

A worker that stands by has nothing better to do. What comes out of a copy is not its to keep: only when the holder of a
chunk was lost and this worker holds it does a copy count as the rollout, which was begun long ago then, or has ended.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gymnast.cluster.held_chunk import Row
    from gymnast.types.task import RolloutKey
    from gymnast.types.usage import ModelUsage


@dataclass(frozen=True, slots=True)
class Ended:
    """What came out of a copy."""

    key: RolloutKey
    line: bytes
    usage: ModelUsage | None
    persisted: bool


class Shadows:
    """The copies of one worker. Keys are packed."""

    def __init__(self) -> None:
        self._waiting: dict[int, Row] = {}
        self._begun: set[int] = set()
        self._ended: dict[int, Ended] = {}

    def __contains__(self, packed: int) -> bool:
        return packed in self._begun

    def __len__(self) -> int:
        return len(self._waiting) + len(self._begun) + len(self._ended)

    def want(self, rows: Iterable[Row], most: int) -> bool:
        """Copy these and no others, at most so many; those that are copied already go on.

        Returns whether some that were begun are not wanted any more.
        """
        wanted = {row.key.packed: row for row in rows}
        unwanted = self._begun - wanted.keys()
        self._begun -= unwanted
        self._ended = {packed: ended for packed, ended in self._ended.items() if packed in wanted}
        new = (packed for packed in wanted if packed not in self._begun and packed not in self._ended)
        room = most - len(self._begun)
        self._waiting = {packed: wanted[packed] for packed, _ in zip(new, range(room), strict=False)}
        return bool(unwanted)

    def next_row(self) -> Row | None:
        """Begin one."""
        for packed, row in self._waiting.items():
            del self._waiting[packed]
            self._begun.add(packed)
            return row
        return None

    def keep(self, ended: Ended) -> None:
        """A copy has ended before its rollout."""
        if ended.key.packed in self._begun:
            self._begun.remove(ended.key.packed)
            self._ended[ended.key.packed] = ended

    def forget(self, key: RolloutKey) -> None:
        """A copy has failed."""
        self._begun.discard(key.packed)

    def adopt(self, owed: Iterable[int]) -> dict[int, Ended | None]:
        """Those of these rollouts that were begun here, with what came of them; they are no copies any more."""
        found: dict[int, Ended | None] = {}
        for packed in owed:
            self._waiting.pop(packed, None)
            if packed in self._begun:
                self._begun.remove(packed)
                found[packed] = None
            elif packed in self._ended:
                found[packed] = self._ended.pop(packed)
        return found
