"""How long the event loop was held up: a heartbeat beside the work, and the longest gap between two beats.

A gap in which the loop's thread mostly computed counts with its time on the processor, so that a machine shared with
others is not blamed on the work; one in which it mostly waited counts as it is.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any, Final, Self

_BEAT_S: Final = 0.001


class LagProbe:
    """Use as `async with LagProbe() as probe: …`; then `probe.worst_s`."""

    def __init__(self) -> None:
        self.worst_s = 0.0
        self._beating: asyncio.Task[None] | None = None
        self._last = self._last_busy = 0.0

    async def __aenter__(self) -> Self:
        self._last, self._last_busy = time.perf_counter(), time.thread_time()
        self._beating = asyncio.create_task(self._beat())
        await asyncio.sleep(2 * _BEAT_S)
        self.worst_s = 0.0
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._beating is not None
        self._note()
        self._beating.cancel()
        await asyncio.gather(self._beating, return_exceptions=True)

    async def _beat(self) -> None:
        while True:
            self._note()
            await asyncio.sleep(_BEAT_S)

    def _note(self) -> None:
        now, busy = time.perf_counter(), time.thread_time()
        gap_s, busy_s = now - self._last - _BEAT_S, busy - self._last_busy
        self.worst_s = max(self.worst_s, min(gap_s, busy_s) if busy_s > gap_s / 2 else gap_s)
        self._last, self._last_busy = now, busy


async def worst_lag(work: Callable[[], Awaitable[Any]], *, enough_s: float, tries: int) -> float:
    """The longest hold-up while `work` ran: the smallest of several tries, so that a busy machine is not blamed on it.

    Ends at the first try that stays within `enough_s`, or when two are far beyond it.
    """
    best = float("inf")
    for made in range(1, tries + 1):
        async with LagProbe() as probe:
            await work()
        best = min(best, probe.worst_s)
        if best <= enough_s or (made > 1 and best > 2 * enough_s):
            break
    return best
