"""A cluster on a virtual clock: jobs that start late, are preempted and run out of time, rollouts that take their time.

The clock, the scheduler and the rollouts are simulated; nothing else is. What workers do with chunks is in
`simulated_worker.py`, on real files with the package's own code.
"""

from __future__ import annotations

import heapq
import math
import os
import random
import sys
from array import array
from collections import Counter, deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from typing import Any

from gymnast.executors.site import Site


@dataclass(frozen=True)
class Ground:
    """How the cluster and the rollouts behave. Times in seconds."""

    jobs: int = 300
    slots: int = 32
    """Rollouts in flight in one job."""
    mean_s: float = 240.0
    spread: float = 0.6
    """Sigma of the lognormal distribution of a rollout's time."""
    longest_s: float = 1800.0
    start_up_s: float = 180.0
    """Loading the policy's weights, give or take a third."""
    queue_s: float = 300.0
    """Mean wait for a place, at first and again."""
    preempted_per_hour: float = 0.05
    time_limit_s: float = 14400.0
    warned_s: float = 300.0
    """The signal comes so long before the time limit."""


_NEVER_S = 1_000_000.0


class Clock:
    """Virtual time and what is to happen in it."""

    def __init__(self) -> None:
        self.now = 0.0
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._order = count()

    def at(self, when: float, act: Callable[[], None]) -> None:
        heapq.heappush(self._events, (when, next(self._order), act))

    def after(self, delay_s: float, act: Callable[[], None]) -> None:
        self.at(self.now + delay_s, act)

    def run(self, until: Callable[[], bool]) -> None:
        """Let things happen, in order, until enough has."""
        while not until():
            assert self.now < _NEVER_S, "the simulated cluster does not come to an end"
            self.now, _, act = heapq.heappop(self._events)
            act()


def durations(ground: Ground, rollouts: int, seed: int) -> array[float]:
    """How long each rollout takes, whoever runs it."""
    rng = random.Random(f"durations/{seed}")
    middle = math.log(ground.mean_s) - ground.spread**2 / 2
    return array("d", (min(rng.lognormvariate(middle, ground.spread), ground.longest_s) for _ in range(rollouts)))


def delay_s(ground: Ground, seed: int, job: int, start: int) -> float:
    """How long a job's n-th start takes: waiting for a place, then loading the weights."""
    rng = random.Random(f"start/{seed}/{job}/{start}")
    return rng.expovariate(1 / ground.queue_s) + ground.start_up_s * rng.uniform(2 / 3, 4 / 3)


def ideal_makespan(ground: Ground, lengths: array[float], seed: int) -> float:
    """One queue for all slots of jobs that are never preempted, and nothing to agree on.

    They wait, load weights and have time limits as the others do, and like them cannot know what will end in time: what
    does not is begun again, before anything else.
    """
    window_s = ground.time_limit_s - ground.start_up_s
    free = [(delay_s(ground, seed, job, 0), job, 0) for job in range(ground.jobs) for _ in range(ground.slots)]
    ends = {(job, 0): start + window_s for start, job, _ in free}
    heapq.heapify(free)
    waiting, again, last = deque(lengths), list[tuple[float, float]](), 0.0
    while waiting or again:
        now, job, start = heapq.heappop(free)
        end = ends[job, start]
        if now >= end - ground.warned_s:
            ends[job, start + 1] = end + delay_s(ground, seed, job, start + 1) + window_s
            heapq.heappush(free, (ends[job, start + 1] - window_s, job, start + 1))
        elif not waiting and again[0][0] > now:
            heapq.heappush(free, (again[0][0], job, start))
        else:
            length = heapq.heappop(again)[1] if again and again[0][0] <= now else waiting.popleft()
            if now + length > end:
                heapq.heappush(again, (end, length))
            else:
                last = max(last, now + length)
            heapq.heappush(free, (min(now + length, end), job, start))
    return last


class Operations:
    """Counts what is asked of the file system, by kind and by minute of the virtual clock."""

    _AUDITED = {
        "open": "open",
        "os.link": "link",
        "os.rename": "rename",
        "os.remove": "unlink",
        "os.listdir": "list",
        "os.scandir": "list",
        "os.mkdir": "mkdir",
    }

    def __init__(self, clock: Clock, below: str) -> None:
        self.kinds: Counter[str] = Counter()
        self.minutes: Counter[int] = Counter()
        self._clock = clock
        self._below = below
        self._is_counting = False

    def count(self, kind: str) -> None:
        self.kinds[kind] += 1
        self.minutes[int(self._clock.now // 60)] += 1

    def hear(self, event: str, arguments: tuple[Any, ...]) -> None:
        kind = self._AUDITED.get(event)
        if kind is not None and self._is_counting and str(arguments[0]).startswith(self._below):
            self.count(kind)

    @contextmanager
    def counting(self) -> Iterator[None]:
        """Count until the block is left. Stats and syncs have no audit events: those two are wrapped."""
        stat, sync = os.stat, os.fsync

        def counted_stat(*arguments: Any, **options: Any) -> os.stat_result:
            self.count("stat")
            return stat(*arguments, **options)

        def counted_sync(fd: int) -> None:
            self.count("sync")
            sync(fd)

        sys.addaudithook(self.hear)
        os.stat, os.fsync, self._is_counting = counted_stat, counted_sync, True  # type: ignore[assignment]
        try:
            yield
        finally:
            os.stat, os.fsync, self._is_counting = stat, sync, False


class Job:
    """A place on the cluster that a scheduler gives, takes away and gives again, with one worker in it at a time."""

    def __init__(
        self, number: int, ground: Ground, clock: Clock, seed: int, start_worker: Callable[[str, Job], Any]
    ) -> None:
        self._ground = ground
        self._clock = clock
        self._chance = random.Random(f"job/{seed}/{number}")
        self._number = number
        self._start_worker = start_worker
        self._run = 0
        self.preemptions = self.time_limits = 0
        self._starts = 0
        self.is_over = False
        self._seed = seed
        self._start()

    def left(self, *, drained: bool) -> None:
        """Its worker has ended by itself: because the time was nearly up, or because nothing was left to do."""
        self.is_over = not drained
        if drained:
            self.time_limits += 1
            self._again()

    def _start(self) -> None:
        self._clock.after(delay_s(self._ground, self._seed, self._number, self._starts), self._ready)
        self._starts += 1

    def _ready(self) -> None:
        run, ground, left = self._run, self._ground, self._ground.time_limit_s - self._ground.start_up_s
        worker = self._start_worker(f"{self._number}_{run}", self)
        taken = self._chance.expovariate(ground.preempted_per_hour / 3600)
        self._clock.after(left - ground.warned_s, lambda: self._warn(worker, run))
        self._clock.after(min(taken, left), lambda: self._end(worker, run, preempted=taken < left))

    def _warn(self, worker: Any, run: int) -> None:
        if run == self._run and not self.is_over:
            worker.drain(Site(drain_s=round(self._ground.warned_s)).grace_s)

    def _end(self, worker: Any, run: int, *, preempted: bool) -> None:
        if run != self._run or self.is_over:
            return
        self.preemptions += preempted
        self.time_limits += not preempted
        worker.kill()
        self._again()

    def _again(self) -> None:
        self._run += 1
        self._start()
