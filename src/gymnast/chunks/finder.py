"""Finding the next chunk for a worker: one that is free, was released, or whose holder is dead or silent.

Invariants:
- A chunk leaves `_unfinished` only when it and everything ceded from it was seen done.
- Free chunks come first. Chunks of others are read only when the worker is idle.
- A worker reads only some of the unfinished chunks at a time and continues with the next ones, so that hundreds of
  idle workers do not overload the file system. Chunks whose holder was not seen alive yet are read every time.
- If nothing can be claimed, the chunk with the most unstarted rows is asked to cede some.
- Once the plan file has changed, nothing is claimed any more.

Blocking: call it in a thread.
"""

from __future__ import annotations

import secrets
import zlib
from dataclasses import dataclass
from enum import Enum
from itertools import islice
from typing import TYPE_CHECKING, Final

from gymnast.chunks.held_chunk import HeldChunk, Row, read_rows, unsettled_rows
from gymnast.chunks.lease import LeaseMonitor, claim, request_rows
from gymnast.chunks.partition import plan_stamp
from gymnast.chunks.settlement import settle
from gymnast.chunks.standby import Standby
from gymnast.errors import UserError
from gymnast.store.chunk_layout import ChunkLayout, ChunkNames, parent_of, planned_ancestor
from gymnast.store.chunk_state import ChunkView, FolderState, list_names, walk_chunk

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator
    from pathlib import Path

    from gymnast.store.chunk_files import Chunk, ChunkPlan, Holder


_MIN_VIEWS: Final = 4
_VIEW_FRACTION: Final = 8
"""A worker without any chunk reads this fraction of the unfinished chunks at a time, but at least `_MIN_VIEWS`."""
_MAX_READS: Final = 128


class NoChunk(Enum):
    """Why there is no chunk."""

    NOW = "now"
    """Others hold what is left."""
    FOREVER = "ever"
    """Every chunk is done."""


class ReplannedError(UserError):
    """The files belong to another run now: nothing more may be written."""


@dataclass(frozen=True, slots=True)
class Clock:
    """Time as a worker sees it."""

    monotonic: Callable[[], float]
    wall: Callable[[], float]


class Finder:
    """Chunks of one run for one worker."""

    def __init__(
        self,
        layout: ChunkLayout,
        plan: ChunkPlan,
        materialized: Path,
        holder: Holder,
        monitor: LeaseMonitor,
        clock: Clock,
        *,
        speculates: bool = False,
    ) -> None:
        """`speculates`: standby workers repeat what others have in flight."""
        self._layout = layout
        self._plan = plan
        self._materialized = materialized
        self._holder = holder
        self._monitor = monitor
        self._clock = clock
        self._speculates = speculates
        shared = len(plan.chunks) if speculates else 0  # without speculation, the minimum of slots is enough
        self._standby = Standby(layout, plan.run_id, shared, holder, monitor.lease_s)
        self._stamp = plan_stamp(layout)
        # Each worker starts elsewhere: otherwise all would try the same chunk.
        start = zlib.crc32(holder.worker.encode()) % max(1, len(plan.chunks))
        self._untouched = [*plan.chunks[start:], *plan.chunks[:start]]
        """Chunks that were free when last listed, the next one first."""
        self._unfinished = {chunk.id: chunk for chunk in self._untouched}
        """Planned chunks that are not known to be done with everything ceded from them, least recently read first."""
        self._unconfirmed: dict[str, Chunk] = {}
        """Chunks with holders that were not seen alive yet."""
        self._finished: set[str] = set()
        """Ceded chunks that are known to be done with everything ceded from them."""
        self.unfinishable: set[str] = set()
        """Chunks that this worker could not finish; others may."""
        self._speculative: dict[str, Chunk] = {}
        """Chunks whose rollouts in flight this worker repeats."""

    def find(self, held: Collection[str], *, may_request: bool) -> HeldChunk | NoChunk:
        """Claim a chunk. `held`: those that this worker has.

        With `may_request`, if none is free: take over what was left behind, or ask others for unstarted rows.
        """
        self._check_plan()
        chunk = self._claim_untouched() or self._claim_unfinished(held, may_request=may_request)
        if chunk is not NoChunk.NOW:
            self._standby.leave()
        return chunk

    def stand_by(self, *, may_claim: bool) -> bool:
        """Whether this worker is one of the few that stay for what others leave; `may_claim`: it may become one."""
        is_useful = not self._unfinished.keys() <= set(map(planned_ancestor, self.unfinishable))
        return self._standby.stand_by(self._clock.monotonic(), may_claim=may_claim and is_useful)

    def leave(self) -> None:
        """Release the standby slot: this worker ends."""
        self._standby.leave()

    def rows_in_flight_elsewhere(self) -> list[Row]:
        """Rows that others have started and not settled, of the chunks that fall to this worker's standby slot."""
        is_own = self._standby.share_filter()
        own = [chunk for chunk in self._unfinished.values() if is_own(zlib.crc32(chunk.id.encode()))]
        self._speculative = {chunk.id: chunk for chunk in sorted(own, key=lambda chunk: chunk.first_row)}
        rows: list[Row] = []
        for chunk in self._speculative.values():
            for view in walk_chunk(self._layout, chunk, self._plan.run_id, skip=self._finished):
                rows.extend(self._rows_in_flight(view))
        return rows

    def _rows_in_flight(self, view: ChunkView) -> list[Row]:
        heartbeat = view.folder_state.heartbeat
        if not view.folder_state.is_held or heartbeat is None or heartbeat.unstarted or not heartbeat.in_flight:
            return []
        settled = settle(view.folder_state.folder, view.folder_state.current_seals())
        return list(unsettled_rows(read_rows(self._materialized, view.chunk), view.children, settled))

    def _claim_untouched(self) -> HeldChunk | None:
        while self._untouched:
            chunk, held = self._untouched[0], None  # it stays in the list if the file system refuses
            folder = self._layout.chunk(chunk.id)
            if not folder.path.exists():
                held = self._claim(ChunkView(chunk, FolderState(folder, self._plan.run_id, ChunkNames(), None), {}, ()))
            self._untouched.pop(0)
            if held is not None:
                return held
            # Another worker was here, and possibly at those that follow: list them all, but only now.
            touched = set(list_names(self._layout.chunks))
            self._untouched = [chunk for chunk in self._untouched if chunk.id not in touched]
        return None

    def _claim_unfinished(self, held: Collection[str], *, may_request: bool) -> HeldChunk | NoChunk:
        if not may_request:
            return NoChunk.NOW
        busiest: ChunkView | None = None
        for view in self._next_views(_MIN_VIEWS if held else max(_MIN_VIEWS, len(self._unfinished) // _VIEW_FRACTION)):
            if view.chunk.id in held or view.chunk.id in self.unfinishable:
                continue
            if self._may_claim(view):
                claimed = self._claim(view)
                if claimed is not None:
                    return claimed
            elif _count_unstarted(view) > (_count_unstarted(busiest) if busiest is not None else 0):
                busiest = view
        if busiest is not None and busiest.folder_state.lease is not None:
            request_rows(busiest.folder_state.folder, busiest.folder_state.lease, self._holder.worker)
        return NoChunk.NOW if self._unfinished else NoChunk.FOREVER

    def _may_claim(self, view: ChunkView) -> bool:
        """Workers that speculate on a chunk come first: they have already started its rollouts."""
        folder_state, now = view.folder_state, self._clock.monotonic()
        heartbeat = folder_state.heartbeat
        if not self._monitor.may_claim(folder_state, now):
            return False
        if not self._speculates or planned_ancestor(view.chunk.id) in self._speculative or heartbeat is None:
            return True
        was_all_started = heartbeat.in_flight > 0 and not heartbeat.unstarted
        leases = 2 if folder_state.is_held else 1
        return not was_all_started or self._monitor.silent_s(folder_state, now) >= leases * self._monitor.lease_s

    def _next_views(self, limit: int) -> Iterator[ChunkView]:
        """Unfinished parts of some chunks; the next call continues with the chunks that follow."""
        always = self._unconfirmed | {
            name: chunk for name, chunk in self._speculative.items() if name in self._unfinished
        }
        for chunk in always.values():
            yield from self._unfinished_parts(chunk)
        for chunk in list(islice(self._unfinished.values(), _MAX_READS)):
            if chunk.id not in always and (parts := self._unfinished_parts(chunk)):
                yield from parts
                limit -= 1
            if limit == 0:
                return

    def _unfinished_parts(self, chunk: Chunk) -> list[ChunkView]:
        """What is not done of a planned chunk, which is now the most recently read one."""
        views = list(walk_chunk(self._layout, chunk, self._plan.run_id, skip=self._finished))
        parts = [view for view in views if not view.folder_state.is_done]
        self._finished.update(_finished_trees(views, parts))
        self._unfinished.pop(chunk.id, None)
        self._unconfirmed.pop(chunk.id, None)
        if parts:
            self._unfinished[chunk.id] = chunk
        if not all(self._is_ours(view) or self._monitor.has_advanced(view.folder_state) for view in parts):
            self._unconfirmed[chunk.id] = chunk
        return parts

    def _is_ours(self, view: ChunkView) -> bool:
        return view.folder_state.lease is not None and view.folder_state.lease.holder == self._holder

    def _claim(self, view: ChunkView) -> HeldChunk | None:
        rows = read_rows(self._materialized, view.chunk)  # what can fail comes before the claim
        won = claim(view.folder_state, holder=self._holder, token=secrets.token_hex(8), at=self._clock.wall())
        if won is None:
            return None
        return HeldChunk(view.chunk, won, view.folder_state.folder, rows, view.attempts)

    def _check_plan(self) -> None:
        """A run that was replaced has other rows under the same names."""
        if plan_stamp(self._layout) != self._stamp:
            raise ReplannedError(
                "the run was planned again while this worker was running",
                where=str(self._layout.plan),
                next="start workers for the new run",
            )


def _finished_trees(views: list[ChunkView], unfinished: list[ChunkView]) -> set[str]:
    """Chunks that are done together with everything ceded from them."""
    open_trees: set[str] = set()
    for view in unfinished:
        name: str | None = view.chunk.id
        while name is not None:
            open_trees.add(name)
            parent = parent_of(name)
            name = parent[0] if parent is not None else None
    return {view.chunk.id for view in views} - open_trees


def _count_unstarted(view: ChunkView) -> int:
    heartbeat = view.folder_state.heartbeat
    return heartbeat.unstarted if heartbeat is not None and view.folder_state.is_held else 0
