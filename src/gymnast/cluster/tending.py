"""Tending the chunks of a worker while its engine runs: commit records, beat, cede, end what is done, claim more.

A file system that refuses writes is waited for. What was collected stays in memory meanwhile, nothing new is begun once
that is much, or once no beat was heard of for as long as a lease lasts: then the chunks may be another's.
"""

from __future__ import annotations

import asyncio
import random
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from gymnast.cluster.finder import Nothing
from gymnast.cluster.held_chunk import HeldChunk
from gymnast.cluster.lease import asks_of, cede, forget_asks, write_beat, write_end
from gymnast.cluster.visit import visit
from gymnast.errors import UserError
from gymnast.store.chunk_look import is_ceded, look_at_chunk

if TYPE_CHECKING:
    from collections.abc import Callable

    from gymnast.cluster.chunk_book import ChunkBook
    from gymnast.cluster.finder import Clock, Finder
    from gymnast.cluster.held_chunk import Row
    from gymnast.cluster.order import WorkOptions
    from gymnast.rollouts.engine import Engine
    from gymnast.store.chunk_files import Beat
    from gymnast.store.chunk_layout import ChunkLayout

_TURN_S: Final = 0.5
"""Records are on disk this long after they were kept."""
_MOST_PENDING_BYTES: Final = 64 << 20
_SHARE_AHEAD: Final = 8
"""A chunk is claimed when fewer rows are left to begin than this part of the rollouts in flight,"""
_FINDS_AHEAD: Final = 4
"""or than will be begun while this many chunks are looked for, which takes as long as the file system takes,"""
_LEAST_AHEAD_S: Final = 0.25
_MOST_AHEAD_S: Final = 2.0
"""within these bounds: what one worker holds and has not begun, others could begin."""


@dataclass(frozen=True, slots=True)
class Heard:
    """What a look at a held chunk's folder said."""

    is_lost: bool
    asks: list[str]


class Tending:
    """Keeps a worker's chunks in order. File work is done in threads, so that the engine never waits for a disk."""

    def __init__(
        self,
        layout: ChunkLayout,
        book: ChunkBook,
        engine: Engine,
        finder: Finder,
        options: WorkOptions,
        clock: Clock,
        say: Callable[[str], None],
    ) -> None:
        self._layout = layout
        self._book = book
        self._engine = engine
        self._finder = finder
        self._options = options
        self._clock = clock
        self._say = say
        now = clock.monotonic()
        self._beat_at = now
        self._heard_at = now
        """When the last round of beats began that succeeded."""
        self._look_at = 0.0
        self._misses = 0
        """How often in a row nothing was found."""
        self._idle_since: float | None = None
        self._trouble_since: float | None = None
        self._is_stopping = False
        self._has_lost = False
        """Rollouts of chunks that are another's now may be in flight."""
        self._rated_at, self._rated_done, self._per_second = now, 0, 0.0
        self._find_s = _MOST_AHEAD_S
        """How long it took lately to find a chunk, if slow."""
        self._copy_at = 0.0

    async def run(self) -> None:
        """Tend until stopped. Ends the engine's supply when there is nothing more to claim."""
        supply = asyncio.create_task(self._keep_supplied())
        minding = asyncio.create_task(self._keep_minding())
        try:
            while not (self._is_stopping or supply.done()):
                try:
                    await self.turn()
                    self._recovered()
                except OSError as error:
                    self._in_trouble(error)
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._book.urgent.wait(), _TURN_S)
                self._book.urgent.clear()
            await supply
        finally:
            minding.cancel()
            supply.cancel()
            await asyncio.gather(supply, minding, return_exceptions=True)

    async def _keep_supplied(self) -> None:
        """Claim ahead of the engine. On its own: a commit that a busy disk delays must not starve it."""
        while not self._is_stopping:
            if await self.supply():
                continue
            if self._clock.monotonic() < self._look_at or self._book.hungry.is_set():
                await asyncio.sleep(_TURN_S / 4)
            else:
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._book.hungry.wait(), _TURN_S / 4)

    async def supply(self) -> bool:
        """Look for a chunk if it is time for one. Returns whether it was."""
        if not self._wants_more():
            return False
        await self._claim()
        return True

    def stop(self) -> None:
        """End after this turn: a claim that is on its way in a thread must not be left to nobody."""
        self._is_stopping = True
        self._book.urgent.set()

    async def turn(self) -> None:
        """Everything that is due."""
        if self._engine.draining is not None:
            self._copy_none()
        await self.commit()
        await self._end_settled()
        if self._clock.monotonic() >= self._beat_at:
            await self._beat_all()
        else:
            await self._beat([held for held in self._book.held.values() if not held.beats])

    # --- records -----------------------------------------------------------------------------------------------------

    async def commit(self) -> None:
        """Put everything that was kept on disk."""
        waiting = [(held, held.waiting()) for held in self._book.held.values() if held.pending_bytes]
        await visit(waiting, lambda one: one[1].write(), lambda one: one[0].committed(one[1]))

    async def _end_settled(self) -> None:
        given_up = self._finder.given_up
        ending = [held for held in self._book.held.values() if held.is_settled or held.chunk.id in given_up]
        await self._end([held for held in ending if not held.pending_bytes], "this worker cannot finish it")

    async def _end(self, ending: list[HeldChunk], why: str | None) -> None:
        """`why`: it is not settled."""
        at = self._clock.wall()
        ends = [(held, held.end(at, None if held.is_settled else why)) for held in ending]
        await visit(ends, lambda one: write_end(one[0].folder, one[0].lease, one[1]), lambda one: self._drop(one[0]))
        if ends and not self._book.held:
            self._look_at = 0.0  # that was the last: is there more, or is the run at its end?

    def _drop(self, held: HeldChunk) -> None:
        self._book.remove(held)
        held.close()

    async def release_all(self, why: str | None) -> None:
        """Hand back what is held; everything must have been committed."""
        await self._end(list(self._book.held.values()), why)
        await asyncio.to_thread(self._finder.leave)

    # --- leases ------------------------------------------------------------------------------------------------------

    async def _beat_all(self) -> None:
        began = self._clock.monotonic()
        await self._beat(list(self._book.held.values()))
        self._heard_at = began
        self._beat_at = began + self._options.heartbeat_s

    async def _beat(self, beating: list[HeldChunk]) -> None:
        if not beating:
            return
        at, draining = self._clock.wall(), self._engine.draining is not None
        counts = self._book.in_flight(self._engine.in_flight)
        beats = [(one, one.next_beat(at, in_flight=counts[one.chunk.id], is_draining=draining)) for one in beating]
        for held, heard in await asyncio.to_thread(self._exchange, beats):
            if heard.is_lost:
                self._lose(held)
            else:
                await self._cede(held, heard.asks)

    def _exchange(self, beats: list[tuple[HeldChunk, Beat]]) -> list[tuple[HeldChunk, Heard]]:
        """Hear of each chunk and beat, if it is still ours."""
        found = []
        for held, beat in beats:
            heard = self._hear(held)
            if not heard.is_lost:
                write_beat(held.folder, held.lease, beat)
            found.append((held, heard))
        return found

    def _hear(self, held: HeldChunk) -> Heard:
        look = look_at_chunk(held.folder, held.lease.run_id)
        is_ours = look.lease is not None and look.lease.token == held.lease.token
        if not is_ours or not is_ceded(self._layout, held.chunk.id, held.lease.run_id):
            return Heard(is_lost=True, asks=[])
        return Heard(is_lost=False, asks=asks_of(look, held.lease.epoch))

    def _lose(self, held: HeldChunk) -> None:
        """Somebody else has the chunk now. What it sealed counts; what we have beyond that does not."""
        self._say(f"chunk {held.chunk.id} is another worker's now; {len(held.open)} rollouts of it are left to it")
        self._drop(held)
        self._has_lost = True
        self._engine.abandon(lambda key: not self._book.is_ours(key))

    async def _cede(self, held: HeldChunk, asks: list[str]) -> None:
        """Give rows that are not begun to those who asked, in equal parts."""
        part = max(1, len(held.unstarted) // (len(asks) + 1))
        for _ in range(len(asks) or int(held.ceding is not None)):
            if held.ceding is None:  # else one is left over from a turn that a refused write has ended
                if len(held.unstarted) <= 1:
                    break
                held.begin_ceding(min(part, len(held.unstarted)))
            going = held.ceding
            assert going is not None
            await asyncio.to_thread(cede, held.folder, held.lease, going.number, going.child, going.attempts)
            self._book.ceded(held)
        if asks:
            await asyncio.to_thread(forget_asks, held.folder, held.lease, asks)

    # --- more --------------------------------------------------------------------------------------------------------

    def _wants_more(self) -> bool:
        engine = self._engine
        if engine.draining is not None or engine.paused or engine.held or self._is_stopping:
            return False
        if self._clock.monotonic() < self._look_at:
            return False
        if self._has_lost:  # that must have left before it may come back
            self._has_lost = any(not self._book.is_ours(key) for key in engine.in_flight)
            if self._has_lost:
                return False
        ahead_s = min(max(self._find_s * _FINDS_AHEAD, _LEAST_AHEAD_S), _MOST_AHEAD_S)
        return self._book.unstarted <= max(engine.limit.current // _SHARE_AHEAD, self._rate() * ahead_s)

    def _rate(self) -> float:
        """Rollouts a second, lately."""
        now, done = self._clock.monotonic(), self._engine.tally.done
        if now - self._rated_at >= _TURN_S:
            self._per_second = (done - self._rated_done) / (now - self._rated_at)
            self._rated_at, self._rated_done = now, done
        return self._per_second

    async def _claim(self) -> None:
        self._give_up_what_is_stuck()
        is_idle = self._book.hungry.is_set() and not self._book.unstarted
        began, held = self._clock.monotonic(), set(self._book.held)
        try:
            found = await asyncio.to_thread(self._finder.find, held, asks=is_idle)
        except OSError:
            found = Nothing.NOW  # whoever commits and beats has more to say about it
        now = self._clock.monotonic()
        self._find_s = max(now - began, self._find_s * 0.8)
        if isinstance(found, HeldChunk):
            self._idle_since, self._misses = None, 0
            self._book.add(found)
            if found.unstarted:  # which come first
                self._copy_none()
            self._engine.nudge()
            return
        pause_s = self._pause_s() * (0.75 + 0.5 * random.random())  # noqa: S311 - not all at one moment
        if self._book.held or not held:  # else our last chunk has ended since we began to look
            self._look_at = now + pause_s
        if found is Nothing.EVER or await self._is_idle_too_long(now):
            self._copy_none()
            self._book.close()
            self._engine.nudge()
        elif self._options.speculates and is_idle and not self._book.held:
            await self._copy(now)

    async def _copy(self, now: float) -> None:
        """Copy what others have in flight, if this worker has a place among those that stand by."""
        if now < self._copy_at:
            return
        self._copy_at = now + self._options.lease_s / 2
        with suppress(OSError):
            rows = await asyncio.to_thread(self._finder.in_flight_elsewhere)
            self._copy_these(rows)

    def _copy_none(self) -> None:
        if self._book.shadows:
            self._copy_these([])

    def _copy_these(self, rows: list[Row]) -> None:
        if self._book.shadows.want(rows, self._engine.limit.current):
            self._has_lost = True
            self._engine.abandon(lambda key: not self._book.is_ours(key))
        self._engine.nudge()

    def _pause_s(self) -> float:
        """Who finds nothing looks again after a beat, in which rows that were asked for come, and then less often.

        Without anything to do, often enough to go round all chunks (an eighth at a time) twice before it leaves.
        """
        self._misses += 1
        is_at_rest = self._engine.is_at_rest or not self._book.held  # copies are no reason to look less often
        longest_s = self._options.lease_s / (8 if is_at_rest else 2)
        return min(self._options.heartbeat_s * 2.0 ** min(self._misses - 2, 8), longest_s)

    def _give_up_what_is_stuck(self) -> None:
        """Rollouts that the engine will not try again (no retries left, an agent given up) are for another worker."""
        if self._engine.is_at_rest and not self._book.unstarted:
            self._finder.given_up.update(held.chunk.id for held in self._book.held.values() if held.open)

    async def _is_idle_too_long(self, now: float) -> bool:
        if self._book.held or any(not self._book.is_copy(key) for key in self._engine.in_flight):
            self._idle_since = None
            return False
        if self._idle_since is None:
            self._idle_since = now
        is_long = now - self._idle_since >= self._options.linger_s
        takes = is_long or self._options.speculates
        with suppress(OSError):
            return not await asyncio.to_thread(self._finder.stays, takes=takes) and is_long
        return is_long

    # --- trouble -----------------------------------------------------------------------------------------------------

    async def _keep_minding(self) -> None:
        """On its own: a file system that hangs does not let a turn end."""
        while True:
            await asyncio.sleep(_TURN_S)
            self._mind_memory()

    def _mind_memory(self) -> None:
        """Begin nothing more while much waits to be written, or while our leases may have run out."""
        engine, pending = self._engine, self._book.pending_bytes
        is_much = pending > (_MOST_PENDING_BYTES // 2 if engine.held else _MOST_PENDING_BYTES)
        is_silent = bool(self._book.held) and self._clock.monotonic() - self._heard_at > self._options.lease_s
        engine.hold(held=is_much or is_silent)

    def _in_trouble(self, error: OSError) -> None:
        now = self._clock.monotonic()
        if self._trouble_since is None:
            self._trouble_since = now
            self._say(f"the run's folder refuses: {error}; {self._book.pending_bytes} bytes wait in memory")
        elif now - self._trouble_since > self._options.give_up_after_s:
            raise UserError(
                f"the run's folder has refused for {now - self._trouble_since:.0f} s: {error}",
                where=str(self._layout.folder),
                next="mend the file system, then start workers again: what is not on disk is owed",
            ) from error

    def _recovered(self) -> None:
        if self._trouble_since is not None:
            self._trouble_since = None
            self._say("the run's folder is writable again")
