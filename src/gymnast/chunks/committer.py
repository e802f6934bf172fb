"""Writing what a worker has: commit pending records, end chunks that are settled, release the others.

Records come first: a chunk is ended only when everything of it is on disk. File work happens in threads; an OSError
leaves what was not written pending, to be written by the next call. What was written counts even if a later write
fails or the call is cancelled; after a cancellation no further write starts.
"""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, TypeVar

from gymnast.chunks.lease import write_end

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from gymnast.chunks.finder import Clock
    from gymnast.chunks.held_chunk import HeldChunk
    from gymnast.chunks.run_store import ChunkRunStore

_Item = TypeVar("_Item")


class Committer:
    """Writes records and ends of the chunks in a store."""

    def __init__(self, store: ChunkRunStore, unfinishable: Collection[str], clock: Clock) -> None:
        """`unfinishable`: chunks to hand back as soon as their records are on disk."""
        self._store = store
        self._unfinishable = unfinishable
        self._clock = clock

    async def commit(self) -> None:
        """Write every record that is not on disk."""
        writes = [(held, held.take_pending()) for held in self._store.held.values() if held.pending_bytes]
        await write_batch(writes, lambda item: item[1].write(), lambda item: item[0].confirm(item[1]))

    async def end_settled(self) -> bool:
        """End chunks that are settled or cannot be finished here. Returns whether that ended the last one."""
        ending = [held for held in self._store.held.values() if held.is_settled or held.chunk.id in self._unfinishable]
        return await self._end([held for held in ending if not held.pending_bytes], "this worker cannot finish it")

    async def release_all(self, why: str | None) -> None:
        """End every chunk. Everything must have been committed."""
        await self._end(list(self._store.held.values()), why)

    async def _end(self, chunks: list[HeldChunk], why: str | None) -> bool:
        """`why`: the reason for releasing those that are not settled."""
        at = self._clock.wall()
        ends = [(held, held.end(at, None if held.is_settled else why)) for held in chunks]
        await write_batch(
            ends, lambda item: write_end(item[0].folder, item[0].lease, item[1]), lambda item: self.drop(item[0])
        )
        return bool(ends) and not self._store.held

    def drop(self, held: HeldChunk) -> None:
        """Remove a chunk that has ended or was lost."""
        self._store.remove(held)
        held.close()


async def write_batch(items: list[_Item], write: Callable[[_Item], None], on_written: Callable[[_Item], None]) -> None:
    """Write items in one thread. `on_written` runs in the event loop for each written item, even if a later one failed.

    A batch that is cancelled while a file system hangs writes nothing more once the file system recovers.
    """
    written: list[_Item] = []
    cancelled = threading.Event()

    def write_all() -> None:
        for item in items:
            if cancelled.is_set():
                return
            write(item)
            written.append(item)

    try:
        if items:
            await asyncio.to_thread(write_all)
    finally:
        cancelled.set()
        for item in written:
            on_written(item)
