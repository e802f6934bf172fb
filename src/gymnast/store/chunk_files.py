"""What stands in the files of a chunked run: the plan, leases, heartbeats, ends, cessions. Frozen data, no files here.

A lease of epoch n seals every earlier epoch: how many bytes of what its holder wrote count. So whatever a holder that
lost its lease writes later is never read, and nothing depends on its noticing.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Final

import msgspec

from gymnast.types.task import RolloutKey
from gymnast.types.usage import ModelUsage

if TYPE_CHECKING:
    from collections.abc import Iterator

SCHEMA_VERSION: Final = 1


class Chunk(msgspec.Struct, frozen=True, kw_only=True):
    """Rows of the materialized inputs that are worked on together."""

    id: str
    first_row: int
    """Counted from 0 over the whole plan."""
    rows: int
    """From the first row to the last."""
    offset_bytes: int
    size_bytes: int
    spans: tuple[tuple[int, int], ...] = ()
    """(first row, rows) of those that belong to it; none given: all. Planned chunks have all their rows."""
    keys: tuple[tuple[int, int, int, int], ...] = ()
    """Of planned chunks, the rollouts in plan order: (task, first rollout, rollouts, tasks that are alike)."""

    @property
    def requested(self) -> int:
        """Rollouts that it stands for."""
        return sum(rows for _, rows in self.spans) if self.spans else self.rows

    def rollout_keys(self) -> list[RolloutKey]:
        """The rollouts of a planned chunk, in plan order."""
        return [
            RolloutKey(number, rollout)
            for task, first, rollouts, tasks in self.keys
            for number in range(task, task + tasks)
            for rollout in range(first, first + rollouts)
        ]

    def row_numbers(self) -> Iterator[int]:
        for first, rows in self.spans or ((self.first_row, self.rows),):
            yield from range(first, first + rows)


class ChunkPlan(msgspec.Struct, frozen=True, kw_only=True):
    """`plan.json`: the materialized inputs, cut into chunks. Written once."""

    schema_version: int = SCHEMA_VERSION
    run_id: str
    rows: int
    size_bytes: int
    crc32: int
    """Of the materialized inputs."""
    requested: int
    """The rows, and rollouts of bad rows that were skipped."""
    chunks: tuple[Chunk, ...]


class Holder(msgspec.Struct, frozen=True, kw_only=True):
    """Who holds a lease."""

    worker: str
    """Unique among all workers there ever are."""
    host: str = ""
    pid: int = 0
    started: int = 0
    """The process's start, as its kernel counts."""
    place: str = ""
    """Processes with the same one see each other's pids."""
    job: str | None = None
    """What its executor calls it."""


class Progress(msgspec.Struct, frozen=True, kw_only=True):
    """How far a chunk is, sealed epochs included and rows that were ceded not."""

    scored: int = 0
    failed: dict[str, int] = {}
    """Failed for good, by kind."""
    attempts: int = 0
    """Records, of scored and of failed attempts."""
    spent: ModelUsage = ModelUsage()
    """What their model calls used. Attempts that a death ended are not known of."""

    @property
    def settled(self) -> int:
        return self.scored + sum(self.failed.values())


class Seal(msgspec.Struct, frozen=True, kw_only=True):
    """What counts of an earlier epoch."""

    epoch: int
    scored_bytes: int = 0
    failures_bytes: int = 0
    children: tuple[str, ...] = ()
    """Chunks that it ceded, and that stay."""
    forgiven: bool = False
    """Rollouts that failed for good in it are owed again."""


class Lease(msgspec.Struct, frozen=True, kw_only=True):
    """`lease.<epoch>.json`: created once, by the one who won the race for the epoch."""

    schema_version: int = SCHEMA_VERSION
    run_id: str
    chunk: str
    epoch: int
    token: str
    """Random: beats and ends that bear another one are not this lease's."""
    holder: Holder
    seals: tuple[Seal, ...] = ()
    before: Progress = Progress()
    """What the sealed epochs add up to."""
    at: float = 0.0
    """By the holder's wall clock; for people, never compared."""


class Beat(msgspec.Struct, frozen=True, kw_only=True):
    """`beat.<epoch>.json`: replaced every few seconds while the holder lives. Only that `counter` changes matters."""

    token: str
    counter: int
    at: float = 0.0
    in_flight: int = 0
    unstarted: int = 0
    progress: Progress = Progress()
    scored_bytes: int = 0
    """Of its own file; what `progress` includes."""
    failures_bytes: int = 0
    children: tuple[str, ...] = ()
    is_draining: bool = False


class EndKind(StrEnum):
    """How a holder ended."""

    DONE = "done"
    """Every row is settled or ceded."""
    RELEASED = "released"
    """Rows are owed; anybody may go on."""


class End(msgspec.Struct, frozen=True, kw_only=True):
    """`end.<epoch>.json`: the holder's last word."""

    token: str
    kind: EndKind
    at: float = 0.0
    progress: Progress = Progress()
    scored_bytes: int = 0
    failures_bytes: int = 0
    children: tuple[str, ...] = ()
    why: str | None = None
    index: bytes = b""
    """Row number and length of each scored line of this epoch, as pairs of little-endian 32-bit numbers."""


class Ceded(msgspec.Struct, frozen=True, kw_only=True):
    """`ceded.<epoch>.<k>.json`: rows that a holder has not begun, given to a chunk of their own."""

    token: str
    """Of the lease that ceded them."""
    child: Chunk
    attempts: dict[str, int] = {}
    """Failed attempts that rows of the child have behind them, by `task:rollout`."""
