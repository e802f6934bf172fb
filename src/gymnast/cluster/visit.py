"""One visit to a thread for many small writes: going there costs more than most of them."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

_Thing = TypeVar("_Thing")


async def visit(things: list[_Thing], write: Callable[[_Thing], None], then: Callable[[_Thing], None]) -> None:
    """Write things in one visit to a thread. `then`, here, is for each that was written, also if a later one failed.

    A visit that is given up while a file system hangs writes nothing more once that wakes up.
    """
    written: list[_Thing] = []
    given_up = threading.Event()

    def write_all() -> None:
        for thing in things:
            if given_up.is_set():
                return
            write(thing)
            written.append(thing)

    try:
        if things:
            await asyncio.to_thread(write_all)
    finally:
        given_up.set()
        for thing in written:
            then(thing)
