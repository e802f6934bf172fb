"""Groups for a trainer as they complete: bounded in number, young enough, each delivered once, also over a restart.

Group after group is asked for while there is room. When the trainer is slow, finished groups wait, and nothing new is
started. What is too old when its turn comes is treated by a rule that is counted.
"""

from __future__ import annotations

import asyncio
import secrets
from collections import deque
from dataclasses import dataclass, field, replace
from enum import StrEnum
from itertools import count
from typing import TYPE_CHECKING, Any, Self

from gymnast.train.batch import collect_all, require_something_to_train
from gymnast.train.errors import FewerRolloutsError
from gymnast.train.gathering import BatchOptions
from gymnast.train.metrics import Metrics
from gymnast.train.samples import Batch, Group, MaskReason
from gymnast.train.stream_state import StreamState, TaskSource, empty_stream, read_state, write_state
from gymnast.train.versions import PolicyVersions
from gymnast.types.task import TASK_INDEX

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Mapping
    from pathlib import Path
    from types import TracebackType

    from gymnast.train.asking import Rollouts


class WhenStale(StrEnum):
    """What becomes of a group that is too old when its turn comes."""

    ASK_AGAIN = "ask_again"
    """It is dropped and its task asked for again; after `max_asked_again` times it is delivered masked."""
    MASK = "mask"
    """It is delivered, and those of its samples that are too old are masked."""


@dataclass(frozen=True, slots=True)
class StreamOptions:
    """How far a stream runs ahead of its trainer."""

    batch: BatchOptions = field(default_factory=BatchOptions)
    """For each group: attempts, deadlines, how samples are read."""
    groups_in_flight: int = 8
    groups_ready: int = 8
    """Finished groups that wait for the trainer at most."""
    max_age: int | None = None
    """How many weight updates old the oldest token of a group may be; None takes any."""
    when_stale: WhenStale = WhenStale.ASK_AGAIN
    max_asked_again: int = 2
    most_empty: int = 32
    """Groups in a row without a token to be trained on, after which the stream ends with NothingToTrainError."""
    autosave: bool = True
    """Write the state file after each group. Without, the trainer calls `save(done=True)` with its checkpoints."""


@dataclass(slots=True)
class StreamCounts:
    """What became of groups."""

    asked: int = 0
    delivered: int = 0
    stale_dropped: int = 0
    stale_masked: int = 0
    empty: int = 0
    """Delivered without a token to be trained on."""
    logprob_retries: int = 0


@dataclass(slots=True)
class _Wanted:
    """A task whose group is not delivered yet."""

    place: int
    task: Mapping[str, Any]
    asked_again: int = 0


class GroupStream:
    """Use as `async with stream(…) as groups: async for group in groups: …`."""

    def __init__(
        self,
        rollouts: Rollouts,
        tasks: Iterable[Mapping[str, Any]],
        *,
        generations: int,
        options: StreamOptions | None = None,
        versions: PolicyVersions | None = None,
        state: Path | None = None,
    ) -> None:
        self.options = options or StreamOptions()
        self.versions = versions or PolicyVersions()
        self.counts = StreamCounts()
        self._metrics = Metrics()
        self._rollouts = rollouts
        self._generations = generations
        self._state_path = state
        self._source = TaskSource(iter(tasks))
        self._waiting: deque[_Wanted] = deque()
        self._running: dict[asyncio.Task[Group], _Wanted] = {}
        self._ready: deque[tuple[_Wanted, Group]] = deque()
        self._handed_out: _Wanted | None = None
        self._error: BaseException | None = None
        self._changed = asyncio.Event()
        self._names = (f"{run}-{number}" for run in [secrets.token_hex(4)] for number in count())
        self._is_exhausted = False
        self._empty_in_a_row = 0
        self._delivered_before = 0

    async def __aenter__(self) -> Self:
        before = read_state(self._state_path) if self._state_path is not None else None
        if before is not None:
            self._waiting.extend(_Wanted(*item) for item in self._source.go_on(before))
            self._delivered_before = before.delivered
            if not self.versions.labels:
                for label in before.labels:
                    self.versions.advance(label)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for task in self._running:
            task.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)

    async def __aiter__(self) -> AsyncIterator[Group]:
        """Groups in the order in which they complete. A group is delivered when the next one is asked for."""
        self._fill()
        while True:
            if self._error is not None:
                raise self._error
            if not self._ready:
                if not self._running:
                    break
                self._changed.clear()
                await self._changed.wait()
                continue
            wanted, group = self._ready.popleft()
            checked = self._young_enough(wanted, group)
            if checked is not None:
                self._handed_out = wanted
                self._count(checked)
                yield checked
                self._handed_out = None
                self.counts.delivered += 1
                if self.options.autosave:
                    self.save()
            self._fill()
        if not self.counts.delivered:
            raise empty_stream(self._state_path, self._delivered_before)

    def state(self, *, done: bool = False) -> StreamState:
        """Where the stream stands. A group in the trainer's hands is not delivered yet, unless it is `done`."""
        wanted = [*self._waiting, *self._running.values(), *(one for one, _ in self._ready)]
        is_done = done and self._handed_out is not None
        if self._handed_out is not None and not done:
            wanted.append(self._handed_out)
        return StreamState(
            self._source.taken,
            sorted(one.place for one in wanted),
            self._source.digest,
            self.versions.labels,
            self._delivered_before + self.counts.delivered + is_done,
        )

    def save(self, *, done: bool = False) -> None:
        """Write the state file, if there is one. `done`: what was learned of the group in hand is in a checkpoint."""
        if self._state_path is not None:
            write_state(self._state_path, self.state(done=done))

    def figures(self) -> dict[str, float]:
        """Metrics of what was delivered since they were last asked for, and what became of groups from the start."""
        counts, metrics = self.counts, self._metrics
        self._metrics = Metrics()
        return {
            **metrics.figures(),
            "stream/asked": counts.asked,
            "stream/delivered": counts.delivered,
            "stream/in_flight": len(self._running),
            "stream/ready": len(self._ready),
            "stream/stale_dropped": counts.stale_dropped,
            "stream/stale_masked": counts.stale_masked,
            "stream/empty": counts.empty,
            "stream/logprob_retries": counts.logprob_retries,
            "stream/weight_updates": self.versions.updates,
        }

    # --- asking ------------------------------------------------------------------------------------------------------

    def _fill(self) -> None:
        """Ask for groups while there is room."""
        options = self.options
        while self._error is None and len(self._running) < options.groups_in_flight:
            if len(self._running) + len(self._ready) >= options.groups_in_flight + options.groups_ready:
                return
            wanted = self._next()
            if wanted is None:
                return
            self.counts.asked += 1
            task = asyncio.create_task(self._collect(wanted))
            self._running[task] = wanted
            task.add_done_callback(self._ended)

    def _next(self) -> _Wanted | None:
        if self._waiting:
            return self._waiting.popleft()
        item = None if self._is_exhausted else self._source.next()
        if item is None:
            self._is_exhausted = True
            return None
        return _Wanted(*item)

    async def _collect(self, wanted: _Wanted) -> Group:
        asked_at = self.versions.updates
        ahead, options = self.options.groups_in_flight, self.options.batch
        options = replace(options, concurrency=options.concurrency or self._generations)
        task = {TASK_INDEX: wanted.place, **wanted.task}
        try:
            batch = await collect_all(
                self._rollouts, [task], generations=self._generations, options=options, name=next(self._names)
            )
        except FewerRolloutsError as error:
            text = f"{error}\n  in a stream: up to {ahead} groups of {self._generations} at once (groups_in_flight)"
            raise FewerRolloutsError(text, error.requested, error.scored, error.failed, error.missing) from error
        self.counts.logprob_retries += batch.logprob_retries
        return replace(batch.groups[0], asked_at=asked_at)

    def _ended(self, task: asyncio.Task[Group]) -> None:
        wanted = self._running.pop(task)
        self._changed.set()
        if task.cancelled():
            self._waiting.appendleft(wanted)
            return
        error = task.exception()
        if error is not None:
            self._waiting.appendleft(wanted)
            self._error = self._error or error
            return
        self._ready.append((wanted, task.result()))
        self._fill()

    # --- delivering --------------------------------------------------------------------------------------------------

    def _young_enough(self, wanted: _Wanted, group: Group) -> Group | None:
        """The group as it may be delivered, or None when it is asked for again."""
        options = self.options
        if options.max_age is None or self.versions.age_of_group(group) <= options.max_age:
            return group
        if options.when_stale is WhenStale.ASK_AGAIN and wanted.asked_again < options.max_asked_again:
            self.counts.stale_dropped += 1
            self._waiting.append(replace(wanted, asked_again=wanted.asked_again + 1))
            return None
        self.counts.stale_masked += 1
        return self._with_old_masked(group, options.max_age)

    def _with_old_masked(self, group: Group, max_age: int) -> Group:
        ages = [self.versions.age_of(sample, group.asked_at) for sample in group.samples]
        samples = [
            sample.masked(MaskReason.STALE, f"{age} weight updates old") if age > max_age else sample
            for sample, age in zip(group.samples, ages, strict=True)
        ]
        return replace(group, samples=tuple(samples))

    def _count(self, group: Group) -> None:
        self._metrics.add(group.samples)
        if any(group.trainable):
            self._empty_in_a_row = 0
            return
        self.counts.empty += 1
        self._empty_in_a_row += 1
        if self._empty_in_a_row >= self.options.most_empty:
            require_something_to_train(Batch((group,)))


def stream(
    rollouts: Rollouts,
    tasks: Iterable[Mapping[str, Any]],
    *,
    generations: int,
    options: StreamOptions | None = None,
    versions: PolicyVersions | None = None,
    state: Path | None = None,
) -> GroupStream:
    """Groups of `generations` rollouts for each task, as they complete. `state`: a file to go on from later."""
    return GroupStream(rollouts, tasks, generations=generations, options=options, versions=versions, state=state)
