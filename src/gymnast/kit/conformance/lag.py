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
_USUAL_S: Final = 0.002
"""What the work in `slowness` takes on an ordinary core."""


class LagProbe:
    """Use as `async with LagProbe() as probe: …`; then `probe.worst_s`."""

    def __init__(self) -> None:
        self.waited_s = 0.0
        """The longest gap in which the thread mostly waited."""
        self.computed_s = 0.0
        """The longest gap in which it mostly computed, in its time on the processor."""
        self._beating: asyncio.Task[None] | None = None
        self._last = self._last_busy = 0.0

    async def __aenter__(self) -> Self:
        self._last, self._last_busy = time.perf_counter(), time.thread_time()
        self._beating = asyncio.create_task(self._beat())
        await asyncio.sleep(2 * _BEAT_S)
        self.waited_s = self.computed_s = 0.0
        return self

    @property
    def worst_s(self) -> float:
        return max(self.waited_s, self.computed_s)

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
        if busy_s > gap_s / 2:
            self.computed_s = max(self.computed_s, min(gap_s, busy_s))
        else:
            self.waited_s = max(self.waited_s, gap_s)
        self._last, self._last_busy = now, busy


async def worst_lag(work: Callable[[], Awaitable[Any]], *, limit_s: float, tries: int) -> tuple[float, bool]:
    """The longest hold-up while `work` ran, and whether it is beyond the limit.

    Beyond it, the work is tried again, and the smallest hold-up counts; on a machine that is slow just then, the limit
    for computing is as much longer. So that what is found is the work's doing, not that of whatever else runs.
    """
    best = float("inf")
    for made in range(1, tries + 1):
        async with LagProbe() as probe:
            await work()
        best = min(best, probe.worst_s)
        slow = 1.0 if probe.computed_s <= limit_s else slowness()
        if probe.waited_s <= limit_s and probe.computed_s <= limit_s * slow:
            return best, False
        if made > 1 and best > 2 * slow * limit_s:
            break
    return best, True


def slowness() -> float:
    """How many times slower this machine computes just now than an ordinary one; 1 where it is not, 4 at most."""
    text = "word " * 20_000
    taken: list[float] = []
    for _ in range(5):
        started = time.perf_counter()
        sum(map(ord, text))
        taken.append(time.perf_counter() - started)
    return min(max(sorted(taken)[2] / _USUAL_S, 1.0), 4.0)
