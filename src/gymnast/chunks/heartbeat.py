"""Heartbeats: for a lease that synchronous work holds, and for the chunks of a worker.

A worker's heartbeat also reads the chunk's folder: who holds the chunk, and who wants rows of it. A chunk gets its
first heartbeat as soon as possible, all chunks get one every `interval_s`. A chunk that another worker has claimed is
reported to `on_lost`; its rows are that worker's. Rows that idle workers requested are ceded to them.

Invariants: a lost chunk gets no heartbeat. `silent_s` counts from before the last round that reached every chunk. A
cession that a refused write left unfinished is finished before the next one starts.
"""

from __future__ import annotations

import asyncio
import threading
import time
from contextlib import contextmanager, suppress
from itertools import count
from typing import TYPE_CHECKING

from gymnast.chunks.lease import cede, clear_row_requests, pending_row_requests, write_heartbeat
from gymnast.store.chunk_files import Heartbeat, Lease
from gymnast.store.chunk_state import is_ceded, read_folder_state

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from gymnast.chunks.finder import Clock
    from gymnast.chunks.held_chunk import HeldChunk
    from gymnast.chunks.run_store import ChunkRunStore
    from gymnast.rollouts.engine import Engine
    from gymnast.store.chunk_layout import ChunkFolder, ChunkLayout


@contextmanager
def keep_heartbeat(folder: ChunkFolder, lease: Lease, interval_s: float) -> Iterator[None]:
    """Send heartbeats for a lease while the block is open."""
    ended = threading.Event()

    def send() -> None:
        for counter in count():
            with suppress(OSError):
                write_heartbeat(folder, lease, Heartbeat(token=lease.token, counter=counter, at=time.time()))
            if ended.wait(interval_s):
                return

    thread = threading.Thread(target=send, name="heartbeat", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


class HeartbeatSender:
    """Sends the heartbeats of the chunks in a store."""

    def __init__(
        self,
        layout: ChunkLayout,
        store: ChunkRunStore,
        engine: Engine,
        clock: Clock,
        interval_s: float,
        on_lost: Callable[[HeldChunk], None],
    ) -> None:
        self._layout = layout
        self._store = store
        self._engine = engine
        self._clock = clock
        self._interval_s = interval_s
        self._on_lost = on_lost
        self._due_at = clock.monotonic()
        self._confirmed_at = self._due_at
        """When the last successful round of all chunks was started."""

    def silent_s(self) -> float:
        """How long others may not have heard of us."""
        return self._clock.monotonic() - self._confirmed_at if self._store.held else 0.0

    async def send_due(self) -> None:
        now = self._clock.monotonic()
        if now >= self._due_at:
            await self._send(list(self._store.held.values()))
            self._confirmed_at = now
            self._due_at = now + self._interval_s
        else:
            await self._send([held for held in self._store.held.values() if not held.heartbeats])

    async def _send(self, chunks: list[HeldChunk]) -> None:
        if not chunks:
            return
        at, is_draining = self._clock.wall(), self._engine.drain_reason is not None
        counts = self._store.in_flight(self._engine.in_flight)
        heartbeats = [
            (held, held.next_heartbeat(at, in_flight=counts[held.chunk.id], is_draining=is_draining)) for held in chunks
        ]
        for held, row_requests in await asyncio.to_thread(self._exchange, heartbeats):
            if row_requests is None:
                self._on_lost(held)
            else:
                await self._cede(held, row_requests)

    def _exchange(self, heartbeats: list[tuple[HeldChunk, Heartbeat]]) -> list[tuple[HeldChunk, list[str] | None]]:
        """Read the row requests of each chunk, None if it is lost; write the heartbeats of the others."""
        replies = []
        for held, heartbeat in heartbeats:
            row_requests = self._read_row_requests(held)
            if row_requests is not None:
                write_heartbeat(held.folder, held.lease, heartbeat)
            replies.append((held, row_requests))
        return replies

    def _read_row_requests(self, held: HeldChunk) -> list[str] | None:
        """The workers that want rows; None if another worker holds the chunk, or it no longer counts."""
        state = read_folder_state(held.folder, held.lease.run_id)
        is_ours = state.lease is not None and state.lease.token == held.lease.token
        if not is_ours or not is_ceded(self._layout, held.chunk.id, held.lease.run_id):
            return None
        return pending_row_requests(state, held.lease.epoch)

    async def _cede(self, held: HeldChunk, workers: list[str]) -> None:
        """Cede unstarted rows to the workers that requested some, in equal parts."""
        part = max(1, len(held.unstarted) // (len(workers) + 1))
        for _ in range(len(workers) or int(held.ceding is not None)):
            if held.ceding is None:  # else a refused write left one unfinished
                if len(held.unstarted) <= 1:
                    break
                held.start_ceding(min(part, len(held.unstarted)))
            cession = held.ceding
            assert cession is not None
            await asyncio.to_thread(cede, held.folder, held.lease, cession.number, cession.child, cession.attempts)
            self._store.finish_ceding(held)
        if workers:
            await asyncio.to_thread(clear_row_requests, held.folder, held.lease, workers)
