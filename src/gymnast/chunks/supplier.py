"""Supplying a worker's engine with rows: claim chunks ahead of it, and decide when there is nothing left to wait for.

States: busy (claims ahead while few rows are unstarted), idle (holds nothing; requests rows from others, stands by,
and repeats their rollouts speculatively if asked to), done (the store is closed and the engine ends). Rollouts that are
no longer ours are abandoned, and nothing is claimed until all of them have left the engine.
"""

from __future__ import annotations

import asyncio
import random
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from gymnast.chunks.finder import Clock, Finder, NoChunk
from gymnast.chunks.held_chunk import HeldChunk, Row

if TYPE_CHECKING:
    from gymnast.chunks.run_store import ChunkRunStore
    from gymnast.chunks.worker_spec import WorkerOptions
    from gymnast.rollouts.engine import Engine

_POLL_S: Final = 0.125
_RATE_INTERVAL_S: Final = 0.5
_AHEAD_FRACTION: Final = 8
"""A chunk is claimed when fewer rows are unstarted than this fraction of the concurrency,"""
_FINDS_AHEAD: Final = 4
"""or than will be started while this many chunks are searched for, which takes as long as the file system takes,"""
_MIN_AHEAD_S: Final = 0.25
_MAX_AHEAD_S: Final = 2.0
"""within these bounds: rows that one worker holds unstarted could be started by others."""


class _RateMeter:
    """Rollouts per second, over the last interval."""

    def __init__(self, now: float) -> None:
        self._since, self._count, self._per_second = now, 0, 0.0

    def update(self, now: float, count: int) -> float:
        if now - self._since >= _RATE_INTERVAL_S:
            self._per_second = (count - self._count) / (now - self._since)
            self._since, self._count = now, count
        return self._per_second


class Supplier:
    """Claims chunks for a store until none is left."""

    def __init__(
        self, store: ChunkRunStore, engine: Engine, finder: Finder, options: WorkerOptions, clock: Clock
    ) -> None:
        self._store = store
        self._engine = engine
        self._finder = finder
        self._options = options
        self._clock = clock
        self.is_stopping = False
        self._next_find_at = 0.0
        self._misses = 0
        """Searches in a row without a chunk."""
        self._find_s = _MAX_AHEAD_S
        """How long recent searches took, if slow."""
        self._rate = _RateMeter(clock.monotonic())
        self._idle_since: float | None = None
        self._has_strays = False
        """Whether rollouts that are no longer ours may be in flight."""
        self._speculate_at = 0.0

    async def run(self) -> None:
        """Supply the engine until stopped."""
        while not self.is_stopping:
            if await self.supply():
                continue
            if self._clock.monotonic() < self._next_find_at or self._store.needs_rows.is_set():
                await asyncio.sleep(_POLL_S)
            else:
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._store.needs_rows.wait(), _POLL_S)

    async def supply(self) -> bool:
        """Search for a chunk if one is needed. Returns whether one was."""
        if not self._is_needed():
            return False
        await self._claim()
        return True

    def search_now(self) -> None:
        """Do not wait before the next search: the last chunk has ended, and the run may have, too."""
        self._next_find_at = 0.0

    def abandon_strays(self) -> None:
        """Abandon rollouts in flight that are no longer ours."""
        self._has_strays = True
        self._engine.abandon(lambda key: not self._store.is_ours(key))

    def stop_speculating(self) -> None:
        if self._store.speculation:
            self._speculate_on([])

    # --- claiming ----------------------------------------------------------------------------------------------------

    def _is_needed(self) -> bool:
        engine, now = self._engine, self._clock.monotonic()
        if engine.drain_reason is not None or engine.is_paused or engine.is_held or self.is_stopping:
            return False
        if now < self._next_find_at:
            return False
        if self._has_strays:  # they must have left before their chunk may come back
            self._has_strays = any(not self._store.is_ours(key) for key in engine.in_flight)
            if self._has_strays:
                return False
        ahead_s = min(max(self._find_s * _FINDS_AHEAD, _MIN_AHEAD_S), _MAX_AHEAD_S)
        per_second = self._rate.update(now, engine.tally.done)
        return self._store.unstarted <= max(engine.limit.current // _AHEAD_FRACTION, per_second * ahead_s)

    async def _claim(self) -> None:
        self._give_up_stuck_chunks()
        is_idle = self._store.needs_rows.is_set() and not self._store.unstarted
        started, held = self._clock.monotonic(), set(self._store.held)
        try:
            chunk = await asyncio.to_thread(self._finder.find, held, may_request=is_idle)
        except OSError:
            chunk = NoChunk.NOW  # commits and heartbeats report it
        now = self._clock.monotonic()
        self._find_s = max(now - started, self._find_s * 0.8)
        if isinstance(chunk, HeldChunk):
            self._add(chunk)
            return
        pause_s = self._next_pause_s() * (0.75 + 0.5 * random.random())  # noqa: S311 - jitter
        if self._store.held or not held:  # else our last chunk has ended since the search was started
            self._next_find_at = now + pause_s
        if chunk is NoChunk.FOREVER or await self._is_idle_too_long(now):
            self.stop_speculating()
            self._store.close()
            self._engine.refill()
        elif self._options.speculates and is_idle and not self._store.held:
            await self._speculate(now)

    def _add(self, chunk: HeldChunk) -> None:
        self._idle_since, self._misses = None, 0
        self._store.add(chunk)
        if chunk.unstarted:  # they come first
            self.stop_speculating()
        self._engine.refill()

    def _give_up_stuck_chunks(self) -> None:
        """Leave rollouts that the engine will not retry (no retries left, its agent given up) to another worker."""
        if self._engine.is_idle and not self._store.unstarted:
            self._finder.unfinishable.update(held.chunk.id for held in self._store.held.values() if held.open)

    def _next_pause_s(self) -> float:
        """After a miss, search again after a heartbeat, by when requested rows should have come, and then less often.

        Without anything to do, often enough to read all chunks (an eighth at a time) twice before leaving.
        """
        self._misses += 1
        is_idle = self._engine.is_idle or not self._store.held  # speculation is no reason to search less often
        max_s = self._options.lease_s / (8 if is_idle else 2)
        return min(self._options.heartbeat_s * 2.0 ** min(self._misses - 2, 8), max_s)

    # --- idle --------------------------------------------------------------------------------------------------------

    async def _is_idle_too_long(self, now: float) -> bool:
        if self._store.held or any(not self._store.is_speculative(key) for key in self._engine.in_flight):
            self._idle_since = None
            return False
        if self._idle_since is None:
            self._idle_since = now
        is_long = now - self._idle_since >= self._options.linger_s
        may_claim = is_long or self._options.speculates
        with suppress(OSError):
            return not await asyncio.to_thread(self._finder.stand_by, may_claim=may_claim) and is_long
        return is_long

    async def _speculate(self, now: float) -> None:
        """Repeat what others have in flight, if this worker holds a standby slot."""
        if now < self._speculate_at:
            return
        self._speculate_at = now + self._options.lease_s / 2
        with suppress(OSError):
            self._speculate_on(await asyncio.to_thread(self._finder.rows_in_flight_elsewhere))

    def _speculate_on(self, rows: list[Row]) -> None:
        if self._store.speculation.retarget(rows, self._engine.limit.current):
            self.abandon_strays()
        self._engine.refill()
