"""Streams groups to a trainer as they complete: bounded in number, fresh enough, each delivered once across restarts.

A task moves from waiting to running to ready to delivered. New groups start only while there is room, so a slow trainer
stops the stream instead of filling memory. A group that is stale when delivered is resampled or masked. The state file
lists the tasks taken from the source and those not delivered: a restart delivers exactly the latter.
"""

from __future__ import annotations

import asyncio
import secrets
from collections import deque
from dataclasses import dataclass, field, replace
from enum import StrEnum
from itertools import count
from typing import TYPE_CHECKING, Any, Self

from gymnast.train.batch import collect_batch, require_something_to_train
from gymnast.train.batch_progress import BatchOptions
from gymnast.train.errors import FewerRolloutsError
from gymnast.train.metrics import Metrics
from gymnast.train.samples import Batch, Group, MaskReason
from gymnast.train.stream_state import StreamState, TaskSource, empty_stream, read_state, write_state
from gymnast.train.versions import PolicyVersions
from gymnast.types.task import TASK_INDEX

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Mapping
    from pathlib import Path
    from types import TracebackType

    from gymnast.train.batch_request import Rollouts


class WhenStale(StrEnum):
    """What to do with a group that is stale when it is delivered."""

    ASK_AGAIN = "ask_again"
    """Drop it and sample its task again; after `max_asked_again` times deliver it masked."""
    MASK = "mask"
    """Deliver it with its stale samples masked."""


@dataclass(frozen=True, slots=True)
class StreamOptions:
    """How far a stream may run ahead of its trainer."""

    batch: BatchOptions = field(default_factory=BatchOptions)
    """Options of each group: attempts, deadlines, how samples are read."""
    groups_in_flight: int = 8
    groups_ready: int = 8
    """Maximum finished groups that wait for the trainer."""
    max_age: int | None = None
    """Maximum age of a group's oldest token in weight updates; None accepts any."""
    when_stale: WhenStale = WhenStale.ASK_AGAIN
    max_asked_again: int = 2
    max_empty_groups: int = 32
    """Consecutive groups without a trainable token after which the stream raises NothingToTrainError."""
    autosave: bool = True
    """Write the state file after each group. Otherwise the trainer calls `save(done=True)` with its checkpoints."""


@dataclass(slots=True)
class StreamCounts:
    """Counts of groups by what happened to them."""

    requested: int = 0
    delivered: int = 0
    stale_dropped: int = 0
    stale_masked: int = 0
    empty: int = 0
    """Delivered without a trainable token."""
    logprob_retries: int = 0


@dataclass(slots=True)
class _PendingTask:
    """A task whose group has not been delivered."""

    index: int
    task: Mapping[str, Any]
    resamples: int = 0


class GroupStream:
    """Streams groups of `generations` rollouts per task as they complete. `state`: a file to resume from.

    Use as `async with stream(…) as groups: async for group in groups: …`. Every task taken from the source is in
    exactly one of `_waiting`, `_running`, `_ready` and `_in_hand`, or delivered; `state` reads only these, so it may be
    saved at any time.
    """

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
        self._waiting: deque[_PendingTask] = deque()
        self._running: dict[asyncio.Task[Group], _PendingTask] = {}
        self._ready: deque[tuple[_PendingTask, Group]] = deque()
        self._in_hand: _PendingTask | None = None
        self._error: BaseException | None = None
        self._changed = asyncio.Event()
        self._names = (f"{run}-{number}" for run in [secrets.token_hex(4)] for number in count())
        self._is_exhausted = False
        self._consecutive_empty = 0
        self._delivered_before = 0

    async def __aenter__(self) -> Self:
        before = read_state(self._state_path) if self._state_path is not None else None
        if before is not None:
            self._waiting.extend(_PendingTask(*item) for item in self._source.resume(before))
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
        """Yield groups in order of completion. A group counts as delivered when the next one is requested."""
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
            pending, group = self._ready.popleft()
            deliverable = self._apply_max_age(pending, group)
            if deliverable is not None:
                self._in_hand = pending
                self._count(deliverable)
                yield deliverable
                self._in_hand = None
                self.counts.delivered += 1
                if self.options.autosave:
                    self.save()
            self._fill()
        if not self.counts.delivered:
            raise empty_stream(self._state_path, self._delivered_before)

    def state(self, *, done: bool = False) -> StreamState:
        """The stream's state. The group in the trainer's hands counts as delivered only if `done`."""
        pending = [*self._waiting, *self._running.values(), *(task for task, _ in self._ready)]
        is_done = done and self._in_hand is not None
        if self._in_hand is not None and not done:
            pending.append(self._in_hand)
        return StreamState(
            self._source.taken,
            sorted(task.index for task in pending),
            self._source.digest,
            self.versions.labels,
            self._delivered_before + self.counts.delivered + is_done,
        )

    def save(self, *, done: bool = False) -> None:
        """Write the state file, if there is one. `done`: a checkpoint includes the group in the trainer's hands."""
        if self._state_path is not None:
            write_state(self._state_path, self.state(done=done))

    def figures(self) -> dict[str, float]:
        """Metrics of the groups delivered since the last call, and counts since the start."""
        counts, metrics = self.counts, self._metrics
        self._metrics = Metrics()
        return {
            **metrics.figures(),
            "stream/asked": counts.requested,
            "stream/delivered": counts.delivered,
            "stream/in_flight": len(self._running),
            "stream/ready": len(self._ready),
            "stream/stale_dropped": counts.stale_dropped,
            "stream/stale_masked": counts.stale_masked,
            "stream/empty": counts.empty,
            "stream/logprob_retries": counts.logprob_retries,
            "stream/weight_updates": self.versions.updates,
        }

    # --- requesting --------------------------------------------------------------------------------------------------

    def _fill(self) -> None:
        """Request groups while there is room."""
        options = self.options
        while self._error is None and len(self._running) < options.groups_in_flight:
            if len(self._running) + len(self._ready) >= options.groups_in_flight + options.groups_ready:
                return
            pending = self._next()
            if pending is None:
                return
            self.counts.requested += 1
            task = asyncio.create_task(self._collect(pending))
            self._running[task] = pending
            task.add_done_callback(self._finish)

    def _next(self) -> _PendingTask | None:
        if self._waiting:
            return self._waiting.popleft()
        item = None if self._is_exhausted else self._source.next()
        if item is None:
            self._is_exhausted = True
            return None
        return _PendingTask(*item)

    async def _collect(self, pending: _PendingTask) -> Group:
        requested_at = self.versions.updates
        ahead, options = self.options.groups_in_flight, self.options.batch
        options = replace(options, concurrency=options.concurrency or self._generations)
        task = {TASK_INDEX: pending.index, **pending.task}
        try:
            batch = await collect_batch(
                self._rollouts,
                [task],
                generations=self._generations,
                options=options,
                name=next(self._names),
                allow_untrainable=True,
            )
        except FewerRolloutsError as error:
            text = (
                f"{error}\n  in a stream of up to {ahead} concurrent groups of {self._generations} (groups_in_flight)"
            )
            raise type(error)(text, error.requested, error.scored, error.failed, error.missing) from error
        self.counts.logprob_retries += batch.logprob_retries
        return replace(batch.groups[0], requested_at=requested_at)

    def _finish(self, task: asyncio.Task[Group]) -> None:
        pending = self._running.pop(task)
        self._changed.set()
        if task.cancelled():
            self._waiting.appendleft(pending)
            return
        error = task.exception()
        if error is not None:
            self._waiting.appendleft(pending)
            self._error = self._error or error
            return
        self._ready.append((pending, task.result()))
        self._fill()

    # --- delivering --------------------------------------------------------------------------------------------------

    def _apply_max_age(self, pending: _PendingTask, group: Group) -> Group | None:
        """The group to deliver, masked if stale, or None if its task is sampled again."""
        options = self.options
        if options.max_age is None or self.versions.age_of_group(group) <= options.max_age:
            return group
        if options.when_stale is WhenStale.ASK_AGAIN and pending.resamples < options.max_asked_again:
            self.counts.stale_dropped += 1
            self._waiting.append(replace(pending, resamples=pending.resamples + 1))
            return None
        self.counts.stale_masked += 1
        return self._mask_stale(group, options.max_age)

    def _mask_stale(self, group: Group, max_age: int) -> Group:
        ages = [self.versions.age_of(sample, group.requested_at) for sample in group.samples]
        samples = [
            sample.masked(MaskReason.STALE, f"{age} weight updates old") if age > max_age else sample
            for sample, age in zip(group.samples, ages, strict=True)
        ]
        return replace(group, samples=tuple(samples))

    def _count(self, group: Group) -> None:
        self._metrics.add(group.samples)
        if any(group.trainable):
            self._consecutive_empty = 0
            return
        self.counts.empty += 1
        self._consecutive_empty += 1
        if self._consecutive_empty >= self.options.max_empty_groups:
            require_something_to_train(Batch((group,)))


stream = GroupStream
