"""The account of a run in chunks, exact at any moment: requested = scored + failed + in flight + unknown + owed.

Chunks that have ended are counted by their last word; live ones by their heartbeat and what was committed since.
Whether a silent holder still lives nobody can know from its files: what it had in flight is unknown.
"""

from __future__ import annotations

import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING

import msgspec

from gymnast.cluster.executor import JobState, JobView
from gymnast.cluster.identity import is_gone
from gymnast.cluster.settling import Settlement, lines_between
from gymnast.cluster.worker_account import WorkerAccount, worker_accounts
from gymnast.store.chunk_files import Progress
from gymnast.store.chunk_look import ChunkView, chunk_views, read_chunk_plan, whole_lines_bytes
from gymnast.store.file_clock import file_clock
from gymnast.types.failure import BAD_ROW
from gymnast.types.usage import Account, ModelUsage

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gymnast.cluster.lease import IsGone
    from gymnast.store.chunk_files import ChunkPlan
    from gymnast.store.chunk_layout import ChunkLayout


class ChunkState(StrEnum):
    """How a chunk stands."""

    FREE = "free"
    """Nobody has begun it."""
    HELD = "held"
    SILENT = "silent"
    """Its holder is dead, or has not been heard of for longer than a lease lasts."""
    RELEASED = "released"
    """Handed back with rows owed."""
    DONE = "done"


class ChunkAccount(msgspec.Struct, frozen=True, kw_only=True):
    """One chunk."""

    chunk: str
    state: ChunkState
    requested: int
    scored: int = 0
    failed: dict[str, int] = {}
    in_flight: int = 0
    unknown: int = 0
    owed: int = 0
    """Not begun, or to be begun again."""
    worker: str | None = None
    job: str | None = None
    host: str | None = None
    epoch: int = 0
    heard_s: float | None = None
    """Since the holder's last word, by the clock of the file system: the holder's own may be wrong."""
    why: str | None = None
    """Why it was handed back."""
    attempts: int = 0
    spent: ModelUsage = ModelUsage()


class RunAccount(msgspec.Struct, frozen=True, kw_only=True):
    """The whole run."""

    run_id: str
    requested: int
    scored: int
    failed: dict[str, int]
    in_flight: int
    unknown: int
    owed: int
    states: dict[str, int]
    """Chunks by state."""
    attempts: int
    spent: ModelUsage
    chunks: list[ChunkAccount]
    workers: list[WorkerAccount]
    jobs: list[JobView] = []

    @property
    def unsettled(self) -> int:
        """Rollouts that workers are still needed for."""
        return self.in_flight + self.unknown + self.owed


@dataclass(frozen=True, slots=True)
class Observer:
    """Who judges whether holders live."""

    lease_s: float = 60.0
    now: float = field(default_factory=time.time)
    """As files tell the time (`file_clock`)."""
    is_gone: IsGone = is_gone
    jobs: tuple[JobView, ...] = ()

    def is_silent(self, view: ChunkView) -> bool:
        """Whether nothing more may be expected of a chunk's holder."""
        lease = view.look.lease
        assert lease is not None
        job = next((one for one in self.jobs if one.job == lease.holder.job), None)
        is_over = job is not None and job.state.is_over and job.state is not JobState.UNKNOWN
        return is_over or self.is_gone(lease.holder) or self.heard_s(view) > self.lease_s

    def heard_s(self, view: ChunkView) -> float:
        folder, lease = view.look.folder, view.look.lease
        assert lease is not None
        for path in (folder.beat(lease.epoch), folder.lease(lease.epoch)):
            with suppress(OSError):
                return max(0.0, self.now - path.stat().st_mtime)
        return 0.0


def run_account(layout: ChunkLayout, observer: Observer | None = None) -> RunAccount:
    """How a run stands, from its folder alone; with the jobs of executors it knows more of who lives."""
    plan = read_chunk_plan(layout)
    return account_from(plan, chunk_views(layout, plan), observer or Observer(now=file_clock(layout.folder)))


def account_from(plan: ChunkPlan, views: Iterable[ChunkView], observer: Observer) -> RunAccount:
    """The same from looks that were taken."""
    looks = [(view, account_of(view, observer)) for view in views]
    chunks = [account for _, account in looks]
    failed = sum((Counter(one.failed) for one in chunks), Counter[str]())
    skipped = plan.requested - plan.rows
    if skipped:
        failed[BAD_ROW] += skipped
    return RunAccount(
        run_id=plan.run_id,
        requested=plan.requested,
        scored=sum(one.scored for one in chunks),
        failed=dict(failed),
        in_flight=sum(one.in_flight for one in chunks),
        unknown=sum(one.unknown for one in chunks),
        owed=sum(one.owed for one in chunks),
        states={state.value: sum(one.state is state for one in chunks) for state in ChunkState},
        attempts=sum(one.attempts for one in chunks) + skipped,
        spent=_spent(chunks),
        chunks=chunks,
        workers=worker_accounts(looks, observer.jobs),
        jobs=list(observer.jobs),
    )


def _spent(chunks: Iterable[ChunkAccount]) -> ModelUsage:
    total = Account()
    for one in chunks:
        total.merge(one.spent)
    return total.usage()


def account_of(view: ChunkView, observer: Observer) -> ChunkAccount:
    """One chunk, without what it has ceded."""
    look = view.look
    requested = view.chunk.requested - sum(ceded.child.requested for ceded in view.children)
    if look.lease is None:
        return ChunkAccount(chunk=view.chunk.id, state=ChunkState.FREE, requested=requested, owed=requested)
    progress = _progress(view)
    open_rows = requested - progress.settled
    in_flight = unknown = 0
    state = ChunkState.DONE if look.is_done else ChunkState.RELEASED if look.is_released else ChunkState.HELD
    if state is ChunkState.HELD:
        begun = min(open_rows, look.beat.in_flight if look.beat is not None else 0)
        if observer.is_silent(view):
            state, unknown = ChunkState.SILENT, begun
        else:
            in_flight = begun
    holder = look.lease.holder
    return ChunkAccount(
        chunk=view.chunk.id,
        state=state,
        requested=requested,
        scored=progress.scored,
        failed=progress.failed,
        in_flight=in_flight,
        unknown=unknown,
        owed=open_rows - in_flight - unknown,
        worker=holder.worker,
        job=holder.job,
        host=holder.host or None,
        epoch=look.lease.epoch,
        heard_s=round(observer.heard_s(view), 1) if look.is_held else None,
        why=look.end.why if look.end is not None else None,
        attempts=progress.attempts,
        spent=progress.spent,
    )


def _progress(view: ChunkView) -> Progress:
    """What is settled: as last told, and what has come to the files since."""
    look = view.look
    assert look.lease is not None
    if look.end is not None:
        return look.end.progress
    beat, epoch = look.beat, look.lease.epoch
    told = beat.progress if beat is not None else look.lease.before
    since = Settlement()
    scored, failures = look.folder.scored(epoch), look.folder.failures(epoch)
    for line in lines_between(scored, beat.scored_bytes if beat is not None else 0, whole_lines_bytes(scored)):
        since.take_scored(line)
    for line in lines_between(failures, beat.failures_bytes if beat is not None else 0, whole_lines_bytes(failures)):
        since.take_failure(line, forgiven=False)
    since.spent.merge(told.spent)
    return Progress(
        scored=told.scored + len(since.scored),
        failed=dict(Counter(told.failed) + Counter(since.failed.values())),
        attempts=told.attempts + since.records,
        spent=since.spent.usage(),
    )
