"""Finding the next chunk to work on: one that nobody has, one that was released, one whose holder is silent.

If there is none, the chunk with the most rows that are not begun is asked for some of them. Blocking: for a thread.
"""

from __future__ import annotations

import secrets
import zlib
from dataclasses import dataclass
from enum import Enum
from itertools import islice
from typing import TYPE_CHECKING, Final

from gymnast.cluster.held_chunk import HeldChunk, read_rows, still_open
from gymnast.cluster.lease import ask_for_rows, claim
from gymnast.cluster.settling import settle
from gymnast.cluster.standby import Standby
from gymnast.errors import UserError
from gymnast.store.chunk_layout import ChunkNames, parent_of, planned_id
from gymnast.store.chunk_look import ChunkLook, ChunkView, names_in, views_below

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator
    from pathlib import Path

    from gymnast.cluster.held_chunk import Row
    from gymnast.cluster.lease import Watch
    from gymnast.store.chunk_files import Chunk, ChunkPlan, Holder
    from gymnast.store.chunk_layout import ChunkLayout


_FEW: Final = 4
_PARTS: Final = 8
"""At the end of a large run hundreds look for something to do. Everybody at everything would be too much for a file
system: one look is at a few of the chunks that are not done (of somebody without any work: at such a part of them), the
next at those that follow, and once more at those whose holders have not been seen alive yet."""
_MOST_LOOKS: Final = 128


class Nothing(Enum):
    """Why there is no chunk."""

    NOW = "now"
    """Others hold what is left."""
    EVER = "ever"
    """Every chunk is done."""


class PlannedAnewError(UserError):
    """The files are another run's now: nothing more may be written."""


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
        watch: Watch,
        clock: Clock,
        *,
        speculates: bool = False,
    ) -> None:
        """`speculates`: workers that stand by copy what others have in flight."""
        self._layout = layout
        self._plan = plan
        self._materialized = materialized
        self._holder = holder
        self._watch = watch
        self._clock = clock
        self._speculates = speculates
        shared = len(plan.chunks) if speculates else 0  # without copies to make, few are enough
        self._standby = Standby(layout, plan.run_id, shared, holder, watch.lease_s)
        self._stamp = self._plan_stamp()
        # Each worker begins elsewhere: they would all try the same chunk otherwise.
        start = zlib.crc32(holder.worker.encode()) % max(1, len(plan.chunks))
        self._fresh = [*plan.chunks[start:], *plan.chunks[:start]]
        """Chunks that were free when last looked at, the next one first."""
        self._left = {chunk.id: chunk for chunk in self._fresh}
        """Chunks that are not known to be done with all that was ceded from them."""
        self._watched: dict[str, Chunk] = {}
        """Chunks whose holders we have seen, but not yet seen alive: they are looked at again."""
        self._closed: set[str] = set()
        """Ceded chunks that are known to be done with all that was ceded from them."""
        self.given_up: set[str] = set()
        """Chunks that this worker could not finish: others may."""
        self._copied: dict[str, Chunk] = {}
        """Chunks of which this worker copies what is in flight."""

    def find(self, held: Collection[str], *, asks: bool) -> HeldChunk | Nothing:
        """Claim a chunk. `held`: those that this worker has.

        With `asks`, if none is free: take over what was left behind, or ask others for rows that they have not begun.
        """
        self._refuse_another_plan()
        found = self._find_fresh() or self._find_left(held, asks=asks)
        if found is not Nothing.NOW:
            self._standby.leave()
        return found

    def stays(self, *, takes: bool) -> bool:
        """Whether this worker is one of the few that wait for what others leave; with `takes`, it becomes one."""
        has_hope = not self._left.keys() <= set(map(planned_id, self.given_up))
        return self._standby.stays(self._clock.monotonic(), takes=takes and has_hope)

    def in_flight_elsewhere(self) -> list[Row]:
        """Rows that others have begun and not settled, of the chunks that fall to this worker's place."""
        is_mine = self._standby.share()
        mine = [chunk for chunk in self._left.values() if is_mine(zlib.crc32(chunk.id.encode()))]
        self._copied = {chunk.id: chunk for chunk in sorted(mine, key=lambda chunk: chunk.first_row)}
        found: list[Row] = []
        for chunk in self._copied.values():
            for view in views_below(self._layout, chunk, self._plan.run_id, skip=self._closed):
                found.extend(self._in_flight(view))
        return found

    def _in_flight(self, view: ChunkView) -> list[Row]:
        beat = view.look.beat
        if not view.look.is_held or beat is None or beat.unstarted or not beat.in_flight:
            return []
        settled = settle(view.look.folder, view.look.sealed())
        return list(still_open(read_rows(self._materialized, view.chunk), view.children, settled))

    def leave(self) -> None:
        """This worker ends."""
        self._standby.leave()

    def _find_left(self, held: Collection[str], *, asks: bool) -> HeldChunk | Nothing:
        if not asks:
            return Nothing.NOW
        busiest: ChunkView | None = None
        for view in self._views(_FEW if held else max(_FEW, len(self._left) // _PARTS)):
            if view.chunk.id in held or view.chunk.id in self.given_up:
                continue
            if self._may_claim(view):
                found = self._claim(view)
                if found is not None:
                    return found
            elif _unstarted(view) > (_unstarted(busiest) if busiest is not None else 0):
                busiest = view
        if busiest is not None and busiest.look.lease is not None:
            ask_for_rows(busiest.look.folder, busiest.look.lease, self._holder.worker)
        return Nothing.NOW if self._left else Nothing.EVER

    def _may_claim(self, view: ChunkView) -> bool:
        """Where others copy what is in flight, they come first: of them it is begun already."""
        look, now = view.look, self._clock.monotonic()
        beat = look.beat
        if not self._watch.may_claim(look, now):
            return False
        if not self._speculates or planned_id(view.chunk.id) in self._copied or beat is None:
            return True
        was_all_begun = beat.in_flight > 0 and not beat.unstarted
        leases = 2 if look.is_held else 1
        return not was_all_begun or self._watch.silent_s(look, now) >= leases * self._watch.lease_s

    def _find_fresh(self) -> HeldChunk | None:
        while self._fresh:
            chunk, found = self._fresh[0], None  # which stays there if the file system refuses
            folder = self._layout.chunk(chunk.id)
            if not folder.path.exists():
                found = self._claim(ChunkView(chunk, ChunkLook(folder, self._plan.run_id, ChunkNames(), None), {}, ()))
            self._fresh.pop(0)
            if found is not None:
                return found
            # Somebody was here, so somebody may have been at those that follow: only now all are listed.
            touched = set(names_in(self._layout.chunks))
            self._fresh = [chunk for chunk in self._fresh if chunk.id not in touched]
        return None

    def _views(self, most: int) -> Iterator[ChunkView]:
        """Some chunks that are not done, with what was ceded from them; the next time, those that follow."""
        watched = self._watched | {name: chunk for name, chunk in self._copied.items() if name in self._left}
        for chunk in watched.values():
            yield from self._undone(chunk)
        for chunk in list(islice(self._left.values(), _MOST_LOOKS)):
            if chunk.id not in watched and (undone := self._undone(chunk)):
                yield from undone
                most -= 1
            if most == 0:
                return

    def _undone(self, chunk: Chunk) -> list[ChunkView]:
        """What is not done of a planned chunk, which is the last to be looked at from now on."""
        views = list(views_below(self._layout, chunk, self._plan.run_id, skip=self._closed))
        undone = [view for view in views if not view.look.is_done]
        self._closed.update(_closed(views, undone))
        self._left.pop(chunk.id, None)
        self._watched.pop(chunk.id, None)
        if undone:
            self._left[chunk.id] = chunk
        if not all(self._is_ours(view) or self._watch.has_moved(view.look) for view in undone):
            self._watched[chunk.id] = chunk
        return undone

    def _is_ours(self, view: ChunkView) -> bool:
        return view.look.lease is not None and view.look.lease.holder == self._holder

    def _claim(self, view: ChunkView) -> HeldChunk | None:
        rows = read_rows(self._materialized, view.chunk)  # what can fail comes before the claim
        won = claim(view.look, holder=self._holder, token=secrets.token_hex(8), at=self._clock.wall())
        if won is None:
            return None
        return HeldChunk(view.chunk, won, view.look.folder, rows, view.attempts)

    def _refuse_another_plan(self) -> None:
        """A run that was replaced while we worked on it has other rows under the same names."""
        if self._plan_stamp() != self._stamp:
            raise PlannedAnewError(
                "the run was planned anew while this worker worked on it",
                where=str(self._layout.plan),
                next="start workers for the new one",
            )

    def _plan_stamp(self) -> tuple[int, int] | None:
        try:
            found = self._layout.plan.stat()
        except FileNotFoundError:
            return None
        return found.st_ino, found.st_mtime_ns


def _closed(views: list[ChunkView], undone: list[ChunkView]) -> set[str]:
    """Chunks that are done, and so is all below them."""
    unclosed: set[str] = set()
    for view in undone:
        name: str | None = view.chunk.id
        while name is not None:
            unclosed.add(name)
            parent = parent_of(name)
            name = parent[0] if parent is not None else None
    return {view.chunk.id for view in views} - unclosed


def _unstarted(view: ChunkView) -> int:
    beat = view.look.beat
    return beat.unstarted if beat is not None and view.look.is_held else 0
