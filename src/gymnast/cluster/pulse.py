"""Heartbeats for work that is not asynchronous: a thread beats until the block ends."""

from __future__ import annotations

import threading
import time
from contextlib import contextmanager, suppress
from itertools import count
from typing import TYPE_CHECKING

from gymnast.cluster.lease import write_beat
from gymnast.store.chunk_files import Beat

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gymnast.store.chunk_files import Lease
    from gymnast.store.chunk_layout import ChunkFolder


@contextmanager
def beating(folder: ChunkFolder, lease: Lease, every_s: float) -> Iterator[None]:
    """Show that the holder of a lease lives while the block is open."""
    ended = threading.Event()

    def beat() -> None:
        for counter in count():
            with suppress(OSError):
                write_beat(folder, lease, Beat(token=lease.token, counter=counter, at=time.time()))
            if ended.wait(every_s):
                return

    thread = threading.Thread(target=beat, name="heartbeat", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
