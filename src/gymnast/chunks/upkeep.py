"""Upkeep of a worker's chunks while its engine runs: commits, heartbeats and supply, in three parts that do not block.

A file system that refuses writes is waited for. Records stay in memory meanwhile, and nothing new is started once they
are many, or once no heartbeat got through for the length of a lease: the chunks may then be another worker's.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from gymnast.chunks.committer import Committer
from gymnast.chunks.heartbeat import HeartbeatSender
from gymnast.chunks.supplier import Supplier
from gymnast.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Callable

    from gymnast.chunks.finder import Clock, Finder
    from gymnast.chunks.held_chunk import HeldChunk
    from gymnast.chunks.run_store import ChunkRunStore
    from gymnast.chunks.worker_spec import WorkerOptions
    from gymnast.rollouts.engine import Engine
    from gymnast.store.chunk_layout import ChunkLayout

_INTERVAL_S: Final = 0.5
"""Records are on disk this long after they were made."""
_MAX_PENDING_BYTES: Final = 64 << 20


class ChunkUpkeep:
    """Runs the committer, the heartbeats and the supplier of one worker."""

    def __init__(
        self,
        layout: ChunkLayout,
        store: ChunkRunStore,
        engine: Engine,
        finder: Finder,
        options: WorkerOptions,
        clock: Clock,
        say: Callable[[str], None],
    ) -> None:
        self._layout = layout
        self._store = store
        self._engine = engine
        self._finder = finder
        self._options = options
        self._clock = clock
        self._say = say
        self._committer = Committer(store, finder.unfinishable, clock)
        self._heartbeats = HeartbeatSender(layout, store, engine, clock, options.heartbeat_s, self._lose)
        self.supplier = Supplier(store, engine, finder, options, clock)
        self._trouble_since: float | None = None

    async def run(self) -> None:
        """Run until stopped, or until there is nothing more to claim, which ends the engine's supply."""
        # Each in its own task: a commit that hangs must neither starve the engine nor keep it from being held.
        supply = asyncio.create_task(self.supplier.run())
        hold = asyncio.create_task(self._hold_engine_when_needed())
        try:
            while not (self.supplier.is_stopping or supply.done()):
                try:
                    await self.step()
                    self._note_recovery()
                except OSError as error:
                    self._note_trouble(error)
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._store.flush_requested.wait(), _INTERVAL_S)
                self._store.flush_requested.clear()
            await supply
        finally:
            hold.cancel()
            supply.cancel()
            await asyncio.gather(supply, hold, return_exceptions=True)

    def stop(self) -> None:
        """Stop after this step. A claim under way in a thread completes, so that its chunk is not orphaned."""
        self.supplier.is_stopping = True
        self._store.flush_requested.set()

    async def step(self) -> None:
        """Do everything that is due, except supply."""
        if self._engine.drain_reason is not None:
            self.supplier.stop_speculating()
        await self._committer.commit()
        if await self._committer.end_settled():
            self.supplier.search_now()
        await self._heartbeats.send_due()

    async def hand_back(self, why: str | None) -> None:
        """Commit everything and release every chunk. After an OSError, call it again."""
        await self._committer.commit()
        await self._committer.release_all(why)
        await asyncio.to_thread(self._finder.leave)

    def _lose(self, held: HeldChunk) -> None:
        """Drop a chunk that another worker has claimed. Only what its lease sealed counts."""
        self._say(f"chunk {held.chunk.id} was taken over by another worker, with {len(held.open)} rollouts left")
        self._committer.drop(held)
        self.supplier.abandon_strays()

    # --- trouble -----------------------------------------------------------------------------------------------------

    async def _hold_engine_when_needed(self) -> None:
        """Hold the engine while much waits to be written, or while our leases may have expired."""
        while True:
            await asyncio.sleep(_INTERVAL_S)
            limit = _MAX_PENDING_BYTES // 2 if self._engine.is_held else _MAX_PENDING_BYTES
            is_silent = self._heartbeats.silent_s() > self._options.lease_s
            self._engine.hold(held=self._store.pending_bytes > limit or is_silent)

    def _note_trouble(self, error: OSError) -> None:
        now = self._clock.monotonic()
        if self._trouble_since is None:
            self._trouble_since = now
            self._say(f"cannot write to the run's folder: {error}; {self._store.pending_bytes} bytes wait in memory")
        elif now - self._trouble_since > self._options.give_up_after_s:
            raise UserError(
                f"the run's folder was not writable for {now - self._trouble_since:.0f} s: {error}",
                where=str(self._layout.folder),
                next="repair the file system, then start workers again: what is not on disk is still owed",
            ) from error

    def _note_recovery(self) -> None:
        if self._trouble_since is not None:
            self._trouble_since = None
            self._say("the run's folder is writable again")
