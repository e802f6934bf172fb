"""Measures event-loop lag: a ticker runs next to the work, and the longest gap between two ticks is the lag.

Time in which threads of this process were runnable but not scheduled does not count, so a busy machine is not blamed on
the work; nor does that of a child process being started, because the thread that starts it is suspended until the child
has run. A gap in which the loop's thread mostly computed counts by its CPU time, one in which it mostly waited by its
wall time.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

_TICK_S: Final = 0.001
_ORDINARY_S: Final = 0.002
"""CPU time of the work in `cpu_slowdown` on an ordinary core."""
_HOPELESS: Final = 10
"""A lag of so many times the limit is not measured more than twice: each try would take as long."""


class LagProbe:
    """Use as `async with LagProbe() as probe: …`; then `probe.worst_s`."""

    def __init__(self) -> None:
        self.waited_s = 0.0
        """The longest gap in which the thread mostly waited, in wall time."""
        self.computed_s = 0.0
        """The longest gap in which it mostly computed, in CPU time."""
        self._ticker: asyncio.Task[None] | None = None
        self._last = self._last_cpu = self._last_runqueue = self._carry_s = 0.0
        self._children: frozenset[int] = frozenset()

    async def __aenter__(self) -> Self:
        self._children = child_processes()
        self._last, self._last_cpu, self._last_runqueue = time.perf_counter(), time.thread_time(), runqueue_wait_s()
        self._ticker = asyncio.create_task(self._tick())
        await asyncio.sleep(2 * _TICK_S)
        self.waited_s = self.computed_s = 0.0
        return self

    @property
    def worst_s(self) -> float:
        return max(self.waited_s, self.computed_s)

    async def __aexit__(self, *_: object) -> None:
        assert self._ticker is not None
        self._measure()
        self._ticker.cancel()
        await asyncio.gather(self._ticker, return_exceptions=True)

    async def _tick(self) -> None:
        while True:
            self._measure()
            await asyncio.sleep(_TICK_S)

    def _measure(self) -> None:
        now, cpu, runqueue = time.perf_counter(), time.thread_time(), runqueue_wait_s()
        gap_s, cpu_s = now - self._last - _TICK_S, cpu - self._last_cpu
        children = child_processes()
        started_s = sum(_wait_s(Path("/proc", str(pid), "schedstat")) for pid in children - self._children)
        runqueue_s = max(0.0, runqueue - self._last_runqueue) + started_s
        excused_s = min(max(gap_s, 0.0), self._carry_s + runqueue_s)
        # The wait fell between reading the two clocks: it belongs to the next gap, not to this one.
        self._carry_s = min(self._carry_s + runqueue_s - excused_s, runqueue_s)
        gap_s -= excused_s
        if cpu_s > gap_s / 2:
            self.computed_s = max(self.computed_s, cpu_s)  # own CPU time, however long it had to wait for the CPU
        else:
            self.waited_s = max(self.waited_s, gap_s)
        self._last, self._last_cpu, self._last_runqueue, self._children = now, cpu, runqueue, children


def runqueue_wait_s() -> float:
    """How long threads of this process were runnable but not scheduled; 0 if the system does not report it.

    Counts all threads: one that holds the GIL while waiting for a CPU delays the others.
    """
    return sum(map(_wait_s, Path("/proc/self/task").glob("*/schedstat")))


def child_processes() -> frozenset[int]:
    """The process ids of this process's children; empty if the system does not report them."""
    pids: set[int] = set()
    for file in Path("/proc/self/task").glob("*/children"):
        with suppress(OSError, ValueError):  # the thread has just ended
            pids.update(map(int, file.read_text().split()))
    return frozenset(pids)


def _wait_s(schedstat: Path) -> float:
    try:
        return int(schedstat.read_text().split()[1]) / 1e9
    except (OSError, ValueError, IndexError):  # it has just ended
        return 0.0


async def worst_lag(work: Callable[[], Awaitable[Any]], *, limit_s: float, tries: int) -> tuple[float, bool]:
    """The longest lag while `work` ran, and whether it exceeds the limit.

    If it does, the work is repeated and the smallest lag counts; on a machine that is currently slow, the limit for CPU
    time is scaled accordingly. Pauses between the tries grow, because a machine may stand still for longer than one
    takes. This way a reported lag is caused by the work, not by other processes.
    """
    best = float("inf")
    for attempt in range(1, tries + 1):
        async with LagProbe() as probe:
            await work()
        best = min(best, probe.worst_s)
        slowdown = 1.0 if probe.computed_s <= limit_s else cpu_slowdown()
        if probe.waited_s <= limit_s and probe.computed_s <= limit_s * slowdown:
            return best, False
        if attempt > 1 and best > _HOPELESS * slowdown * limit_s:
            break
        await asyncio.sleep(attempt * limit_s)
    return best, True


def cpu_slowdown() -> float:
    """How many times slower this CPU currently is than an ordinary one, between 1 and 4."""
    text = "word " * 20_000
    cpu_times: list[float] = []
    for _ in range(5):
        started = time.thread_time()
        sum(map(ord, text))
        cpu_times.append(time.thread_time() - started)
    return min(max(sorted(cpu_times)[2] / _ORDINARY_S, 1.0), 4.0)
