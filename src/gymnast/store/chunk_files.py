"""The contents of a chunked run's files: plan, leases, heartbeats, ends, ceded chunks. Frozen data, no I/O.

Invariant: a lease of epoch n seals every earlier epoch, i.e. fixes how many bytes of its holder's files count. What a
holder writes after it lost its lease is therefore never read, whether it notices the loss or not.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Final

import msgspec

from gymnast.types.task import RolloutKey
from gymnast.types.totals import AgentTotals
from gymnast.types.usage import ModelUsage

if TYPE_CHECKING:
    from collections.abc import Iterator

SCHEMA_VERSION: Final = 1


class Chunk(msgspec.Struct, frozen=True, kw_only=True):
    """Rows of the materialized inputs that one worker holds together."""

    id: str
    first_row: int
    """Counted from 0 over the whole plan."""
    rows: int
    """From the first row to the last."""
    offset_bytes: int
    size_bytes: int
    spans: tuple[tuple[int, int], ...] = ()
    """(first row, rows) of those that belong to it; empty means all, as in planned chunks."""
    keys: tuple[tuple[int, int, int, int], ...] = ()
    """The rollouts of a planned chunk, in plan order: (task, first rollout, rollouts, number of such tasks)."""

    @property
    def requested(self) -> int:
        """The number of its rollouts."""
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
    """`plan.json`: the materialized inputs, split into chunks. Written once."""

    schema_version: int = SCHEMA_VERSION
    run_id: str
    rows: int
    size_bytes: int
    crc32: int
    """Of the materialized inputs."""
    requested: int
    """The rows, plus rollouts of skipped bad rows."""
    chunks: tuple[Chunk, ...]


class Holder(msgspec.Struct, frozen=True, kw_only=True):
    """The worker that holds a lease."""

    worker: str
    """Unique among all workers ever."""
    host: str = ""
    pid: int = 0
    started: int = 0
    """The start time of the process, in its kernel's units."""
    pid_namespace: str = msgspec.field(default="", name="place")
    """Processes with the same value see each other's pids."""
    job: str | None = None
    """The executor's id of its job."""


class Progress(msgspec.Struct, frozen=True, kw_only=True):
    """The progress of a chunk, with its sealed epochs and without ceded rows."""

    scored: int = 0
    failed: dict[str, int] = {}
    """Permanently failed, by kind."""
    attempts: int = 0
    """Records, of scored and of failed attempts."""
    agents: dict[str, AgentTotals] = {}
    """The totals of each agent's rollouts."""
    spent: ModelUsage = ModelUsage()
    """What their model calls used, without attempts that a worker's death ended."""

    @property
    def settled(self) -> int:
        return self.scored + sum(self.failed.values())


class Seal(msgspec.Struct, frozen=True, kw_only=True):
    """How much of an earlier epoch counts."""

    epoch: int
    scored_bytes: int = 0
    failures_bytes: int = 0
    children: tuple[str, ...] = ()
    """Chunks that it ceded and that remain."""
    reopened: bool = msgspec.field(default=False, name="forgiven")
    """Its permanently failed rollouts are owed again."""


class Lease(msgspec.Struct, frozen=True, kw_only=True):
    """`lease.<epoch>.json`: created once, by the worker that won the race for the epoch."""

    schema_version: int = SCHEMA_VERSION
    run_id: str
    chunk: str
    epoch: int
    token: str
    """Random: heartbeats and ends with another token do not belong to this lease."""
    holder: Holder
    seals: tuple[Seal, ...] = ()
    before: Progress = Progress()
    """The progress of the sealed epochs."""
    at: float = 0.0
    """By the holder's wall clock. For people; never compared."""


class Heartbeat(msgspec.Struct, frozen=True, kw_only=True):
    """`beat.<epoch>.json`: replaced every few seconds while the holder lives. A changed `counter` proves life."""

    token: str
    counter: int
    at: float = 0.0
    in_flight: int = 0
    unstarted: int = 0
    progress: Progress = Progress()
    scored_bytes: int = 0
    """The bytes of this epoch's file that `progress` includes."""
    failures_bytes: int = 0
    children: tuple[str, ...] = ()
    is_draining: bool = False


class EndKind(StrEnum):
    """How a lease ended."""

    DONE = "done"
    """Every row is settled or ceded."""
    RELEASED = "released"
    """Rows are owed; any worker may claim them."""


class LeaseEnd(msgspec.Struct, frozen=True, kw_only=True):
    """`end.<epoch>.json`: written when the holder ends its lease."""

    token: str
    kind: EndKind
    at: float = 0.0
    progress: Progress = Progress()
    scored_bytes: int = 0
    failures_bytes: int = 0
    children: tuple[str, ...] = ()
    why: str | None = None
    index: bytes = b""
    """Row number and length of each scored line of this epoch, as pairs of little-endian 32-bit integers."""


class CededChunk(msgspec.Struct, frozen=True, kw_only=True):
    """`ceded.<epoch>.<k>.json`: unstarted rows that a holder moved to a new chunk."""

    token: str
    """The token of the lease that ceded them."""
    child: Chunk
    attempts: dict[str, int] = {}
    """Failed attempts so far of rows of the child, by `task:rollout`."""
