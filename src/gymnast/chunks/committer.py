"""Writing what a worker has: commit pending records, end chunks that are settled, release the others.

Records come first: a chunk is ended only when everything of it is on disk. File work happens in threads; an OSError
leaves what was not written pending, to be written by the next call.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gymnast.chunks.batched_writes import write_batch
from gymnast.chunks.lease import write_end

if TYPE_CHECKING:
    from collections.abc import Collection

    from gymnast.chunks.finder import Clock
    from gymnast.chunks.held_chunk import HeldChunk
    from gymnast.chunks.run_store import ChunkRunStore


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
