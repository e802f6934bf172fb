"""How long the event loop was held up: a heartbeat beside the work, and the longest gap between two beats.

Time in which threads of this process were ready and others had the processor does not count: a busy machine is not
blamed on the work. A gap in which the loop's thread mostly computed counts with its time on the processor, one in which
it mostly waited counts as it is.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
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
        self._last = self._last_busy = self._last_kept_off = self._carried_s = 0.0

    async def __aenter__(self) -> Self:
        self._last, self._last_busy, self._last_kept_off = time.perf_counter(), time.thread_time(), kept_off_s()
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
        now, busy, kept_off = time.perf_counter(), time.thread_time(), kept_off_s()
        gap_s, busy_s = now - self._last - _BEAT_S, busy - self._last_busy
        kept_off_here = max(0.0, kept_off - self._last_kept_off)
        excused_s = min(max(gap_s, 0.0), self._carried_s + kept_off_here)
        # Kept off between the two clocks: this gap ended before, and the next one has begun.
        self._carried_s = min(self._carried_s + kept_off_here - excused_s, kept_off_here)
        gap_s -= excused_s
        if busy_s > gap_s / 2:
            self.computed_s = max(self.computed_s, min(gap_s, busy_s))
        else:
            self.waited_s = max(self.waited_s, gap_s)
        self._last, self._last_busy, self._last_kept_off = now, busy, kept_off


def kept_off_s() -> float:
    """How long threads of this process were ready and not let onto a processor; 0 where the system does not say.

    All threads: one that holds the interpreter's lock while it is kept off holds up the others.
    """
    waited_ns = 0
    for file in Path("/proc/self/task").glob("*/schedstat"):
        try:
            waited_ns += int(file.read_text().split()[1])
        except (OSError, ValueError, IndexError):  # a thread that just ended
            continue
    return waited_ns / 1e9


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
    """How many times slower this processor computes just now than an ordinary one; 1 where it is not, 4 at most."""
    text = "word " * 20_000
    taken: list[float] = []
    for _ in range(5):
        started = time.thread_time()
        sum(map(ord, text))
        taken.append(time.thread_time() - started)
    return min(max(sorted(taken)[2] / _USUAL_S, 1.0), 4.0)
