"""A worker on the virtual clock: the package's own upkeep, finder, run store and leases, over real files.

Only the engine is simulated: it starts a row where a slot is free and keeps a record when the row's time is over.
"""

from __future__ import annotations

import asyncio
from array import array
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any

from simulated_cluster import Clock, Job

from gymnast.chunks import committer, heartbeat, supplier, upkeep
from gymnast.chunks.finder import Clock as WorkerClock
from gymnast.chunks.finder import Finder
from gymnast.chunks.lease import LeaseMonitor
from gymnast.chunks.planning import PlannedRun
from gymnast.chunks.run_store import ChunkRunStore
from gymnast.chunks.upkeep import ChunkUpkeep
from gymnast.chunks.worker_spec import WorkerOptions
from gymnast.rollouts.run_store import NOT_YET
from gymnast.store.chunk_files import Holder
from gymnast.types.task import ROLLOUT_INDEX, TASK_INDEX, RolloutKey
from gymnast.types.totals import RolloutFacts

TURN_S = 0.5


@dataclass
class Losses:
    """Rollout-seconds, over all workers."""

    useful_s: float = 0.0
    killed_s: float = 0.0
    """Begun and not ended when their worker was killed."""
    unsaved_s: float = 0.0
    """Ended, but not on disk when their worker was killed."""
    abandoned_s: float = 0.0
    """Begun by a worker whose lease went to another."""
    copied_s: float = 0.0
    """Copies of what others had in flight that were not needed."""

    @property
    def share(self) -> float:
        lost = self.killed_s + self.unsaved_s + self.abandoned_s + self.copied_s
        return lost / (lost + self.useful_s)


@dataclass
class World:
    """What all workers share."""

    clock: Clock
    planned: PlannedRun
    lengths: array[float]
    repeats: int
    slots: int
    options: WorkerOptions
    losses: Losses
    last_kept: float = 0.0
    """When the last record was on disk."""

    def length_s(self, key: RolloutKey) -> float:
        return self.lengths[key.task * self.repeats + key.rollout]


def here_and_now() -> None:
    """File work of workers happens in this thread: it takes no virtual time."""

    async def inline(function: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        return function(*arguments, **options)

    for module in (committer, heartbeat, supplier, upkeep):
        module.asyncio = _Inline(inline)  # type: ignore[attr-defined]


class _Inline:
    """asyncio, as far as upkeep uses it outside `run`."""

    def __init__(self, to_thread: Callable[..., Any]) -> None:
        self.to_thread = to_thread
        self.sleep = asyncio.sleep


def _finish(work: Coroutine[Any, Any, object]) -> None:
    """Run something that never waits."""
    try:
        work.send(None)
    except StopIteration:
        return
    raise AssertionError("it waits")


@dataclass
class _Limit:
    current: int


@dataclass
class _Tally:
    done: int = 0


class Worker:
    """The simulated engine and the real upkeep of one worker."""

    is_paused = False

    def __init__(self, name: str, job: Job, world: World) -> None:
        self._world = world
        self._job = job
        options, planned, clock = world.options, world.planned, world.clock
        self.limit, self.tally = _Limit(world.slots), _Tally()
        self.drain_reason: str | None = None
        self.is_held = False
        self.in_flight: dict[RolloutKey, float] = {}
        """When each was begun."""
        self._copies: set[RolloutKey] = set()
        self._kept = 0
        self.has_left = False
        self._is_dead = self._has_all = False
        self._turn_at = clock.now
        worker_clock = WorkerClock(lambda: clock.now, lambda: clock.now)
        finder = Finder(
            planned.layout,
            planned.plan,
            planned.paths.materialized_inputs,
            Holder(worker=f"w{name}", host=f"n{name}", job=name),
            LeaseMonitor(options.lease_s),
            worker_clock,
            speculates=options.speculates,
        )
        self._store = ChunkRunStore(planned.plan.run_id, "run", planned.plan.requested)
        self._owed = self._store.owed_inputs()
        self._upkeep = ChunkUpkeep(planned.layout, self._store, self, finder, options, worker_clock, lambda _: None)  # type: ignore[arg-type]
        self._turn()

    # --- what the scheduler does to it -------------------------------------------------------------------------------

    def drain(self, grace_s: float) -> None:
        """Begin nothing more; give up what is still in flight when the grace is over."""
        self.drain_reason = "its time is nearly up"
        self._leave_if_done()
        self._world.clock.after(grace_s, self._give_up)

    def _give_up(self) -> None:
        if not (self.has_left or self._is_dead):
            self._lose_in_flight()
            self._leave_if_done()

    def _lose_in_flight(self) -> None:
        for key in list(self.in_flight):
            self._lose(key, "killed_s")

    def kill(self) -> None:
        if self.has_left or self._is_dead:
            return
        self._is_dead = True
        losses = self._world.losses
        self._lose_in_flight()
        for held in self._store.held.values():
            lines = bytes(held.scored.take_pending()).split(b"\n")[:-1]
            losses.unsaved_s += sum(self._world.length_s(_key(line)) for line in lines)
            held.close()

    # --- what upkeep uses of an engine -------------------------------------------------------------------------------

    @property
    def is_idle(self) -> bool:
        return not self.in_flight

    def refill(self) -> None:
        """Begin rows while slots are free."""
        while len(self.in_flight) < self._world.slots and self.drain_reason is None and not self.is_held:
            owed = next(self._owed, None)
            if owed is None or owed is NOT_YET:
                self._has_all = owed is None
                return
            key, _ = owed
            self.in_flight[key] = self._world.clock.now
            if self._store.is_speculative(key):
                self._copies.add(key)
            self._world.clock.after(self._world.length_s(key), lambda key=key: self._ended(key))  # type: ignore[misc]

    def hold(self, *, held: bool) -> None:
        self.is_held = held

    def abandon(self, is_lost: Callable[[RolloutKey], bool]) -> None:
        for key in [key for key in self.in_flight if is_lost(key)]:
            self._lose(key, "abandoned_s")
        self.refill()

    def _lose(self, key: RolloutKey, how: str) -> None:
        how = "copied_s" if key in self._copies else how
        self._copies.discard(key)
        losses, lost_s = self._world.losses, self._world.clock.now - self.in_flight.pop(key)
        setattr(losses, how, getattr(losses, how) + lost_s)

    # --- time --------------------------------------------------------------------------------------------------------

    def _ended(self, key: RolloutKey) -> None:
        if self._is_dead or key not in self.in_flight:
            return
        if self._store.is_speculative(key):
            self._lose(key, "copied_s")
        else:
            del self.in_flight[key]
            self._copies.discard(key)
        line = b'{"reward":1.0,"%b":%d,"%b":%d}' % (TASK_INDEX.encode(), key.task, ROLLOUT_INDEX.encode(), key.rollout)
        self._store.record_scored(key, line, RolloutFacts("", 1.0))
        self.tally.done += 1
        self._look_what_is_kept()
        self.refill()
        self._turn_within(TURN_S)

    def _look_what_is_kept(self) -> None:
        """A copy that counts now is kept when its chunk is claimed, without anything having ended."""
        if (kept := self._store.counts().scored) > self._kept:
            self._kept, self._world.last_kept = kept, self._world.clock.now + TURN_S

    def _turn_within(self, delay_s: float) -> None:
        """Take a turn soon. Turns in which nothing would be due are left out: they touch no files."""
        at = self._world.clock.now + delay_s
        if self._turn_at <= self._world.clock.now or at < self._turn_at:
            self._turn_at = at
            self._world.clock.at(at, lambda: self._turn() if self._turn_at == at else None)

    def _turn(self) -> None:
        if self._is_dead or self.has_left:
            return
        _finish(self._upkeep.step())
        _finish(self._upkeep.supplier.supply())
        self._look_what_is_kept()
        self.refill()
        self._leave_if_done()
        is_busy = self._store.pending_bytes or (self._store.needs_rows.is_set() and self.drain_reason is None)
        self._turn_within(TURN_S if is_busy else self._world.options.heartbeat_s / 4)

    def _leave_if_done(self) -> None:
        if not self.in_flight and (self.drain_reason is not None or self._has_all) and not self.has_left:
            _finish(self._upkeep.hand_back(self.drain_reason))
            self.has_left = True
            self._job.left(drained=self.drain_reason is not None)


def _key(line: bytes) -> RolloutKey:
    numbers = line.rstrip(b"}").split(b":")
    return RolloutKey(int(numbers[2].split(b",")[0]), int(numbers[3]))
