"""Trying again what failed for good: chunks with such rollouts get a lease that forgives them, and are handed back.

No worker needs to know: what it finds is a chunk that was released with rows owed.
"""

from __future__ import annotations

import secrets
import time
from typing import TYPE_CHECKING

from gymnast.cluster.account import Observer, account_of
from gymnast.cluster.identity import this_holder
from gymnast.cluster.lease import claim, write_end
from gymnast.store.chunk_files import End, EndKind
from gymnast.store.chunk_look import chunk_views

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gymnast.store.chunk_files import ChunkPlan
    from gymnast.store.chunk_layout import ChunkLayout
    from gymnast.store.chunk_look import ChunkView


def with_failed(layout: ChunkLayout, plan: ChunkPlan) -> Iterator[tuple[ChunkView, int]]:
    """Chunks that nobody holds in which rollouts failed for good, and how many."""
    for view in chunk_views(layout, plan):
        if view.look.end is not None:
            failed = sum(account_of(view, Observer()).failed.values())
            if failed:
                yield view, failed


def reopen_failed(layout: ChunkLayout, plan: ChunkPlan) -> int:
    """Make rollouts that failed for good owed again, in chunks that nobody holds. Returns how many."""
    holder, reopened = this_holder(), 0
    for view, failed in with_failed(layout, plan):
        won = claim(view.look, holder=holder, token=secrets.token_hex(8), at=time.time(), forgive=True)
        if won is None:
            continue  # a worker was first, and will not try them again
        end = End(
            token=won.lease.token,
            kind=EndKind.RELEASED,
            at=time.time(),
            progress=won.lease.before,
            why="what failed is tried again",
        )
        write_end(view.look.folder, won.lease, end)
        reopened += failed
    return reopened
