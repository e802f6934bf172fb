"""The status of a run in chunks, exact at any moment: requested = scored + failed + in flight + unknown + owed.

Chunks that have ended are counted by their end file; held ones by their heartbeat and what was committed since. Files
cannot tell whether a silent holder is still alive: what it had in flight counts as unknown.
"""

from __future__ import annotations

import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING

import msgspec

from gymnast.chunks.identity import is_dead
from gymnast.chunks.settlement import Settlement, read_lines_between
from gymnast.rollouts.tally import stats_of, sum_totals
from gymnast.store.atomic import file_clock
from gymnast.store.chunk_files import ChunkPlan, Holder, Progress
from gymnast.store.chunk_state import ChunkView, complete_lines_bytes, read_chunk_plan, walk_chunks
from gymnast.types.failure import FailureKind
from gymnast.types.job import JobState, JobView
from gymnast.types.totals import AgentStats, AgentTotals
from gymnast.types.usage import ModelUsage, UsageCounter

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from gymnast.chunks.lease import IsDead
    from gymnast.store.chunk_layout import ChunkLayout


class ChunkState(StrEnum):
    FREE = "free"
    """Never held."""
    HELD = "held"
    SILENT = "silent"
    """Its holder is dead, or has sent no heartbeat for longer than a lease."""
    RELEASED = "released"
    """Handed back with rows owed."""
    DONE = "done"


class ChunkStatus(msgspec.Struct, frozen=True, kw_only=True):
    chunk: str
    state: ChunkState
    requested: int
    scored: int = 0
    failed: dict[str, int] = {}
    in_flight: int = 0
    unknown: int = 0
    owed: int = 0
    """Not started, or to be started again."""
    worker: str | None = None
    job: str | None = None
    host: str | None = None
    epoch: int = 0
    heard_s: float | None = None
    """Since the holder's last heartbeat, by the file system's clock: the holder's own may be wrong."""
    why: str | None = None
    """Why it was handed back."""
    attempts: int = 0
    agents: dict[str, AgentTotals] = {}
    spent: ModelUsage = ModelUsage()


class WorkerStatus(msgspec.Struct, kw_only=True):
    """One worker. What the workers scored and failed adds up to the run, except for skipped input rows."""

    worker: str
    job: str | None = None
    host: str | None = None
    state: str = ""
    """The state of its job, if its scheduler was asked."""
    scored: int = 0
    failed: dict[str, int] = {}
    """Permanent failures by kind."""
    chunks_done: int = 0
    chunks_held: int = 0
    in_flight: int = 0
    unknown: int = 0
    owed: int = 0
    """Of the chunks that it holds."""


class RunStatus(msgspec.Struct, frozen=True, kw_only=True):
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
    totals: dict[str, AgentTotals]
    """The totals of each agent's rollouts,"""
    agents: dict[str, AgentStats]
    """and the statistics of them."""
    spent: ModelUsage
    chunks: list[ChunkStatus]
    workers: list[WorkerStatus]
    jobs: list[JobView] = []

    @property
    def unsettled(self) -> int:
        """Rollouts that workers are still needed for."""
        return self.in_flight + self.unknown + self.owed


@dataclass(frozen=True, slots=True)
class LivenessCheck:
    """Decides whether holders are alive, from their files and jobs."""

    lease_s: float = 60.0
    now: float = field(default_factory=time.time)
    """By the clock of the file system (`file_clock`)."""
    is_dead: IsDead = is_dead
    jobs: tuple[JobView, ...] = ()

    def is_silent(self, view: ChunkView) -> bool:
        """Whether nothing more is to be expected of a chunk's holder."""
        lease = view.folder_state.lease
        assert lease is not None
        job = next((job for job in self.jobs if job.job == lease.holder.job), None)
        is_over = job is not None and job.state.is_over and job.state is not JobState.UNKNOWN
        return is_over or self.is_dead(lease.holder) or self.silent_s(view) > self.lease_s

    def silent_s(self, view: ChunkView) -> float:
        """Seconds since the holder's last heartbeat, or since its claim."""
        folder, lease = view.folder_state.folder, view.folder_state.lease
        assert lease is not None
        for path in (folder.heartbeat(lease.epoch), folder.lease(lease.epoch)):
            with suppress(OSError):
                return max(0.0, self.now - path.stat().st_mtime)
        return 0.0


def read_run_status(layout: ChunkLayout, liveness: LivenessCheck | None = None) -> RunStatus:
    """Read the status of a run from its folder. The jobs of its executors show which workers are alive."""
    plan = read_chunk_plan(layout)
    return build_run_status(plan, walk_chunks(layout, plan), liveness or LivenessCheck(now=file_clock(layout.folder)))


def build_run_status(plan: ChunkPlan, views: Iterable[ChunkView], liveness: LivenessCheck) -> RunStatus:
    """Build the status from chunks that were read."""
    statuses = [(view, chunk_status_of(view, liveness)) for view in views]
    chunks = [chunk for _, chunk in statuses]
    failed = sum((Counter(chunk.failed) for chunk in chunks), Counter[str]())
    skipped = plan.requested - plan.rows
    bad_rows: dict[str, AgentTotals] = {}
    if skipped:
        failed[FailureKind.BAD_ROW.value] += skipped
        bad_rows[""] = AgentTotals(failed={FailureKind.BAD_ROW.value: skipped})
    totals = sum_totals([*(chunk.agents for chunk in chunks), bad_rows])
    return RunStatus(
        run_id=plan.run_id,
        requested=plan.requested,
        scored=sum(chunk.scored for chunk in chunks),
        failed=dict(failed),
        in_flight=sum(chunk.in_flight for chunk in chunks),
        unknown=sum(chunk.unknown for chunk in chunks),
        owed=sum(chunk.owed for chunk in chunks),
        states={state.value: sum(chunk.state is state for chunk in chunks) for state in ChunkState},
        attempts=sum(chunk.attempts for chunk in chunks) + skipped,
        totals=totals,
        agents=stats_of(totals),
        spent=_sum_usage(chunks),
        chunks=chunks,
        workers=_build_worker_statuses(statuses, liveness.jobs),
        jobs=list(liveness.jobs),
    )


def _sum_usage(chunks: Iterable[ChunkStatus]) -> ModelUsage:
    total = UsageCounter()
    for chunk in chunks:
        total.merge(chunk.spent)
    return total.usage()


def chunk_status_of(view: ChunkView, liveness: LivenessCheck) -> ChunkStatus:
    """The status of one chunk, without what it ceded."""
    folder_state = view.folder_state
    requested = view.chunk.requested - sum(ceded.child.requested for ceded in view.children)
    if folder_state.lease is None:
        return ChunkStatus(chunk=view.chunk.id, state=ChunkState.FREE, requested=requested, owed=requested)
    progress = _read_progress(view)
    open_rows = requested - progress.settled
    in_flight = unknown = 0
    state = (
        ChunkState.DONE
        if folder_state.is_done
        else ChunkState.RELEASED
        if folder_state.is_released
        else ChunkState.HELD
    )
    if state is ChunkState.HELD:
        started = min(open_rows, folder_state.heartbeat.in_flight if folder_state.heartbeat is not None else 0)
        if liveness.is_silent(view):
            state, unknown = ChunkState.SILENT, started
        else:
            in_flight = started
    holder = folder_state.lease.holder
    return ChunkStatus(
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
        epoch=folder_state.lease.epoch,
        heard_s=round(liveness.silent_s(view), 1) if folder_state.is_held else None,
        why=folder_state.end.why if folder_state.end is not None else None,
        attempts=progress.attempts,
        agents=progress.agents,
        spent=progress.spent,
    )


def _read_progress(view: ChunkView) -> Progress:
    """What is settled: as last reported, and what was written since."""
    folder_state = view.folder_state
    assert folder_state.lease is not None
    if folder_state.end is not None:
        return folder_state.end.progress
    heartbeat, epoch = folder_state.heartbeat, folder_state.lease.epoch
    reported = heartbeat.progress if heartbeat is not None else folder_state.lease.before
    since = Settlement()
    scored, failures = folder_state.folder.scored_records(epoch), folder_state.folder.failures(epoch)
    for line in read_lines_between(
        scored, heartbeat.scored_bytes if heartbeat is not None else 0, complete_lines_bytes(scored)
    ):
        since.add_scored(line)
    for line in read_lines_between(
        failures, heartbeat.failures_bytes if heartbeat is not None else 0, complete_lines_bytes(failures)
    ):
        since.add_failure(line, reopened=False)
    since.spent.merge(reported.spent)
    return Progress(
        scored=reported.scored + len(since.scored),
        failed=dict(Counter(reported.failed) + Counter(since.failed.values())),
        attempts=reported.attempts + since.records,
        agents=sum_totals([reported.agents, since.tally.totals()]),
        spent=since.spent.usage(),
    )


# --- workers ---------------------------------------------------------------------------------------------------------


def _build_worker_statuses(
    chunks: Iterable[tuple[ChunkView, ChunkStatus]], jobs: Iterable[JobView] = ()
) -> list[WorkerStatus]:
    """Every worker that ever held a chunk, sorted by name."""
    states = {job.job: job.state.value for job in jobs}
    workers: dict[str, WorkerStatus] = {}
    for view, chunk in chunks:
        for holder, scored, failed in _settled_by_holder(view, chunk):
            worker = workers.setdefault(holder.worker, _new_status(holder, states))
            worker.scored += scored
            worker.failed = dict(Counter(worker.failed) + failed)
        if chunk.worker is not None:
            _add_last_held(workers[chunk.worker], view, chunk)
    return sorted(workers.values(), key=lambda worker: worker.worker)


def _new_status(holder: Holder, states: dict[str, str]) -> WorkerStatus:
    state = states.get(holder.job or "", "")
    return WorkerStatus(worker=holder.worker, job=holder.job, host=holder.host or None, state=state)


def _add_last_held(worker: WorkerStatus, view: ChunkView, chunk: ChunkStatus) -> None:
    """Add what only the last holder of a chunk has: its end, or what is open of it."""
    worker.chunks_done += view.folder_state.is_done
    worker.chunks_held += view.folder_state.is_held
    worker.in_flight += chunk.in_flight
    worker.unknown += chunk.unknown
    worker.owed += chunk.owed if view.folder_state.is_held else 0


def _settled_by_holder(view: ChunkView, chunk: ChunkStatus) -> Iterator[tuple[Holder, int, Counter[str]]]:
    """What was settled under each lease. A lease records the progress of all before it."""
    leases = view.folder_state.leases()
    reopened = {seal.epoch for lease in leases[-1:] for seal in lease.seals if seal.reopened}
    progress = [*(lease.before for lease in leases[1:]), Progress(scored=chunk.scored, failed=chunk.failed)]
    for lease, after in zip(leases, progress, strict=False):
        failed = Counter(after.failed) - Counter(lease.before.failed)
        yield lease.holder, after.scored - lease.before.scored, Counter() if lease.epoch in reopened else failed
