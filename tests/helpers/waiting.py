"""Waiting for something to come true."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable


async def eventually(check: Callable[[], bool], *, within_s: float = 60.0) -> None:
    """Wait until something is true. Looks are counted, not seconds: a machine that stands still takes none away."""
    for _ in range(round(within_s / 0.02)):
        if check():
            return
        await asyncio.sleep(0.02)
    assert check(), "did not come true in time"


def wait_until(check: Callable[[], bool], *, within_s: float = 60.0) -> None:
    """The same without an event loop."""
    for _ in range(round(within_s / 0.02)):
        if check():
            return
        time.sleep(0.02)
    assert check(), "did not come true in time"


async def looks_during(work: asyncio.Task[object]) -> int:
    """How often the event loop came round while something was worked on elsewhere: not at all, if that held it up."""
    looks = 0
    while not work.done():
        await asyncio.sleep(0.005)
        looks += 1
    return looks
