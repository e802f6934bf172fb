"""Many small writes in one thread hop: the hop costs more than most of them."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

_Item = TypeVar("_Item")


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
