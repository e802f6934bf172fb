"""Retrying permanent failures: a chunk with such rollouts gets a lease that reopens them, and is released.

To workers it is an ordinary chunk that was released with rows owed.
"""

from __future__ import annotations

import secrets
import time
from typing import TYPE_CHECKING

from gymnast.chunks.identity import this_holder
from gymnast.chunks.lease import claim, write_end
from gymnast.chunks.status import LivenessCheck, chunk_status_of
from gymnast.store.chunk_files import ChunkPlan, EndKind, LeaseEnd
from gymnast.store.chunk_state import ChunkView, walk_chunks

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gymnast.store.chunk_layout import ChunkLayout


def chunks_with_failures(layout: ChunkLayout, plan: ChunkPlan) -> Iterator[tuple[ChunkView, int]]:
    """Chunks without a holder that have permanent failures, and how many."""
    for view in walk_chunks(layout, plan):
        if view.folder_state.end is not None:
            failed = sum(chunk_status_of(view, LivenessCheck()).failed.values())
            if failed:
                yield view, failed


def reopen_failed(layout: ChunkLayout, plan: ChunkPlan) -> int:
    """Make permanent failures owed again, in chunks without a holder. Returns how many."""
    holder, reopened = this_holder(), 0
    for view, failed in chunks_with_failures(layout, plan):
        won = claim(view.folder_state, holder=holder, token=secrets.token_hex(8), at=time.time(), reopen=True)
        if won is None:
            continue  # a worker was first; it does not retry them
        end = LeaseEnd(
            token=won.lease.token,
            kind=EndKind.RELEASED,
            at=time.time(),
            progress=won.lease.before,
            why="permanent failures are retried",
        )
        write_end(view.folder_state.folder, won.lease, end)
        reopened += failed
    return reopened
