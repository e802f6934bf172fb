"""Streams groups to a trainer as they complete: bounded in number, fresh enough, each delivered once across restarts.

A task moves from waiting to running to ready to delivered. New groups start only while there is room, so a slow trainer
stops the stream instead of filling memory. A group that is stale when delivered is resampled or masked; one that failed
or that the filter drops is replaced by the next task, within a budget. The state file lists the tasks taken from the
source and those not delivered: a restart delivers exactly the latter.
"""

from __future__ import annotations

import asyncio
import secrets
from collections import deque
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from gymnast.errors import UserError
from gymnast.train.arguments import require_type
from gymnast.train.batch import collect_batch, collect_group
from gymnast.train.episode_agents import split_agents
from gymnast.train.errors import FewerRolloutsError
from gymnast.train.samples import Group, MaskReason
from gymnast.train.stream_metrics import StreamMetrics
from gymnast.train.stream_options import StreamCounts, StreamOptions, WhenStale
from gymnast.train.stream_state import SCHEMA_VERSION, OwedTask, StreamState, empty_stream, read_state, write_state
from gymnast.train.stream_tally import StreamTally
from gymnast.train.task_sources import as_source, other_tasks
from gymnast.train.versions import PolicySet, PolicyVersions
from gymnast.types.task import TASK_INDEX

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from os import PathLike
    from types import TracebackType

    from gymnast.train.batch_request import Rollouts
    from gymnast.train.task_sources import DrawnTask, TaskSource


@dataclass(slots=True)
class _PendingTask:
    """A task whose group has not been delivered."""

    index: int
    drawn: DrawnTask
    resamples: int = 0
    failures: int = 0
    updates: Mapping[str, int] = field(default_factory=dict)
    """The number of weight updates of each policy when its group was requested."""

    def as_owed(self) -> OwedTask:
        return OwedTask(self.index, self.drawn.environment, self.drawn.row, self.resamples, self.failures)


@dataclass(slots=True)
class _InHand:
    """The group that the trainer works on."""

    pending: _PendingTask
    episodes: Group
    """The rollouts as collected."""
    group: Group
    """What the trainer gets: the same, or one agent's part of them."""
    is_last: bool
    """False if the other agents' groups of the same episodes are still to be delivered."""


class GroupStream:
    """Streams groups of `generations` rollouts per task as they complete. `state`: a file to resume from.

    Use as `async with stream(…) as groups: async for group in groups: …`. `tasks` is an iterable, a `Curriculum` or a
    `TaskMixture`. Every task taken from it is in exactly one of `_waiting`, `_running`, `_ready` and `_in_hand`, or
    settled (delivered or dropped); `state` reads only these, so it may be saved at any time. Episodes of several agents
    are delivered as one group for each agent. `versions`: of the policy's weights, or a mapping from model servers to
    those of each, if several are trained.
    """

    def __init__(
        self,
        rollouts: Rollouts,
        tasks: Iterable[Mapping[str, Any]] | TaskSource,
        *,
        generations: int,
        options: StreamOptions | None = None,
        versions: PolicyVersions | Mapping[str, PolicyVersions] | None = None,
        state: str | PathLike[str] | None = None,
    ) -> None:
        self.options = options or StreamOptions()
        require_type("options", self.options, StreamOptions)
        self.options.check(generations)
        self.policies = PolicySet(PolicyVersions() if versions is None else versions)
        self._tally = StreamTally(self.options)
        self._metrics = StreamMetrics()
        self._rollouts = rollouts
        self._generations = generations
        self._state_path = Path(state) if state is not None else None
        self._source = as_source(tasks)
        self._taken = 0
        self._waiting: deque[_PendingTask] = deque()
        self._running: dict[asyncio.Task[Group], _PendingTask] = {}
        self._ready: deque[tuple[_PendingTask, Group]] = deque()
        self._parts: deque[_InHand] = deque()
        """The other agents' groups of the episodes in hand, still to be delivered."""
        self._in_hand: _InHand | None = None
        self._is_saved = True
        self._is_closed = False
        self._one_request = asyncio.Lock()
        """Several consumers take groups one after the other: each group is settled or in hand."""
        self._error: BaseException | None = None
        self._changed = asyncio.Event()
        self._names = (f"{run}-{number}" for run in [secrets.token_hex(4)] for number in count())

    @property
    def counts(self) -> StreamCounts:
        """What happened to the groups, over all restarts."""
        return self._tally.counts

    @property
    def versions(self) -> PolicyVersions:
        """The versions of the policy's weights, if one is trained."""
        return self.policies.of("")

    async def __aenter__(self) -> Self:
        if self._is_closed:
            raise UserError(
                "this stream is closed", next="make a new one for each epoch; `state` resumes an earlier one"
            )
        before = read_state(self._state_path) if self._state_path is not None else None
        if before is not None:
            owed = [item for item in before.owed if isinstance(item, OwedTask)]
            try:
                tasks = self._source.resume(before.source, [(item.environment, item.row) for item in owed])
            except (KeyError, TypeError) as error:
                raise other_tasks(before.taken) from error
            self._waiting.extend(
                _PendingTask(item.index, drawn, item.resamples, item.failures)
                for item, drawn in zip(owed, tasks, strict=True)
            )
            self._taken = before.taken
            self._tally.restore(before)
            self.policies.restore(before.policy_labels or {"": before.labels})
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._is_closed = True  # a group may complete while others are cancelled: nothing takes its place
        for task in self._running:
            task.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Group:
        """The next group, in order of completion. A group counts as delivered when the next one is requested.

        After a `break`, or a request that was cancelled or timed out, the next request continues.
        """
        async with self._one_request:
            self._settle_delivered()
            self._fill()
            in_hand = await self._take_next()
            if in_hand is not None:
                self._in_hand = in_hand
                self._metrics.add(in_hand.group)
                self._tally.check_trainable(in_hand.group)
                return in_hand.group
        before = self._tally.delivered_before
        if self.counts.delivered == before:
            raise empty_stream(self._state_path, before, self._tally.describe_dropped())
        self._tally.check_end()
        if self.options.autosave:
            self.save()  # what was filtered or dropped after the last delivery is settled, too
        raise StopAsyncIteration

    def state(self, *, done: bool = False) -> StreamState:
        """The stream's state. The group in the trainer's hands counts as delivered only if `done`, from then on.

        Of episodes with several agents, the last agent's group is the one that counts.
        """
        if done and self._in_hand is not None and self._in_hand.is_last:
            self._settle_in_hand()
        pending = [*self._waiting, *self._running.values(), *(task for task, _ in self._ready)]
        if self._in_hand is not None:
            pending.append(self._in_hand.pending)
        labels = self.policies.labels
        return StreamState(
            taken=self._taken,
            schema_version=SCHEMA_VERSION,
            owed=[task.as_owed() for task in sorted(pending, key=lambda task: task.index)],
            source=self._source.state(),
            labels=labels.pop("", []),
            policy_labels=labels,
            **self._tally.state(),
        )

    def save(self, *, done: bool = False) -> None:
        """Write the state file, if there is one. `done`: a checkpoint includes the group in the trainer's hands."""
        if self._state_path is not None:
            write_state(self._state_path, self.state(done=done))
            self._is_saved = True
        elif done and self._in_hand is not None and self._in_hand.is_last:
            self._settle_in_hand()

    def figures(self) -> dict[str, float]:
        """Metrics of the groups delivered since the last call, and counts since the start."""
        updates = self.policies.updates
        return {
            **self._metrics.take(),
            **self._tally.figures(),
            "stream/in_flight": len(self._running),
            "stream/ready": len(self._ready),
            "stream/weight_updates": sum(updates.values()),
            **{f"policy/{name}/weight_updates": number for name, number in updates.items() if name},
            **self._source.figures(),
        }

    # --- requesting --------------------------------------------------------------------------------------------------

    def _fill(self) -> None:
        """Request groups while there is room."""
        options = self.options
        while self._error is None and not self._is_closed and len(self._running) < options.groups_in_flight:
            if len(self._running) + len(self._ready) >= options.groups_in_flight + options.groups_ready:
                return
            try:
                pending = self._next()
            except Exception as error:  # noqa: BLE001 - of the dataset: the trainer must not take it for its end
                self._error = error
                return
            if pending is None:
                return
            self.counts.requested += 1
            task = asyncio.create_task(self._collect(pending))
            self._running[task] = pending
            task.add_done_callback(self._finish)

    def _next(self) -> _PendingTask | None:
        if self._waiting:
            return self._waiting.popleft()
        drawn = self._source.next()
        if drawn is None:
            return None
        self._taken += 1
        return _PendingTask(self._taken - 1, drawn)

    async def _collect(self, pending: _PendingTask) -> Group:
        pending.updates = self.policies.updates
        options, extra = self.options, self.options.oversample
        batch_options = replace(options.batch, concurrency=options.batch.concurrency or self._generations + extra)
        task = {TASK_INDEX: pending.index, **pending.drawn.task}
        try:
            if extra:
                group = await collect_group(
                    self._rollouts,
                    task,
                    generations=self._generations,
                    extra=extra,
                    select=options.select,
                    options=batch_options,
                    name=next(self._names),
                )
                self.counts.surplus += extra
            else:
                batch = await collect_batch(
                    self._rollouts,
                    [task],
                    generations=self._generations,
                    options=batch_options,
                    name=next(self._names),
                    allow_untrainable=True,
                )
                self.counts.logprob_retries += batch.logprob_retries
                group = batch.groups[0]
        except FewerRolloutsError as error:
            ahead = f"up to {options.groups_in_flight} concurrent groups of {self._generations + extra}"
            text = f"{error}\n  in a stream of {ahead} (groups_in_flight)"
            raise type(error)(text, error.requested, error.scored, error.failed, error.missing) from error
        return replace(group, environment=pending.drawn.environment)

    def _finish(self, task: asyncio.Task[Group]) -> None:
        pending = self._running.pop(task)
        self._changed.set()
        if task.cancelled():
            self._waiting.appendleft(pending)
            return
        error = task.exception()
        try:
            if error is not None:
                self._take_failure(pending, error)
            else:
                self._tally.add_complete()
                self._take_group(pending, task.result())
        except Exception as raised:  # noqa: BLE001 - of `keep` or a score: raised to the trainer, not in a callback
            self._waiting.appendleft(pending)
            self._error = self._error or raised
        self._fill()

    def _take_group(self, pending: _PendingTask, group: Group) -> None:
        if any(map(self._keeps, self._split(pending, group))):
            self._tally.add_kept()
            self._ready.append((pending, group))
            return
        self._filter(pending, group)
        no_signal = self._tally.find_no_signal(group)
        self._error = self._error or no_signal

    def _take_failure(self, pending: _PendingTask, error: BaseException) -> None:
        """Retry or drop the task of a failed group, or end the stream."""
        if not isinstance(error, FewerRolloutsError):
            self._waiting.appendleft(pending)
            self._error = self._error or error
            return
        if self._tally.add_failure(pending.drawn.environment, error):
            self._waiting.appendleft(pending)
            self._error = self._error or error
        elif pending.failures < self.options.failed_group_retries:
            self._waiting.append(replace(pending, failures=pending.failures + 1))
        else:
            self._tally.add_dropped(pending.drawn.environment)
            self._source.settle(pending.drawn, None, is_delivered=False)

    # --- delivering --------------------------------------------------------------------------------------------------

    async def _take_next(self) -> _InHand | None:
        """The next group for the trainer; None if there will be none."""
        while not self._parts:
            if self._error is not None:
                raise self._error
            if self._ready:
                pending, group = self._ready[0]
                parts = self._deliverable(pending, group)
                self._ready.popleft()
                self._parts.extend(
                    _InHand(pending, group, part, number == len(parts)) for number, part in enumerate(parts, start=1)
                )
                if not parts:
                    self._fill()
            elif self._running:
                self._changed.clear()
                await self._changed.wait()
            else:
                return None
        return self._parts.popleft()

    def _settle_delivered(self) -> None:
        """The trainer asks for more: it is done with the group in hand, unless other agents' groups are left."""
        if self._parts:
            return
        self._settle_in_hand()
        if self.options.autosave and not self._is_saved:
            self.save()

    def _deliverable(self, pending: _PendingTask, group: Group) -> list[Group]:
        """The groups to deliver: one, or one for each agent; none if the task is sampled again or filtered."""
        fresh = self._apply_max_age(pending, self._split(pending, group))
        if fresh is None:
            return []
        parts = [part for part in fresh if self._keeps(part)]
        if not parts:  # what was masked as stale made the difference
            self._filter(pending, group)
        return parts

    def _keeps(self, group: Group) -> bool:
        """Whether the filter keeps a group. Raises UserError for one that does not say."""
        if self.options.keep is None:
            return True
        is_kept: object = self.options.keep(group)
        if is_kept is None:
            raise UserError("keep returned None for a group", next="return True to keep it, or False to drop it")
        return bool(is_kept)

    def _split(self, pending: _PendingTask, group: Group) -> list[Group]:
        """One group for each agent, each with the weights of its policy at the time of the request."""
        parts = split_agents(group) if self.options.split_agents else [group]
        return [self.policies.with_request(part, pending.updates) for part in parts]

    def _filter(self, pending: _PendingTask, group: Group) -> None:
        self._tally.add_filtered(pending.drawn.environment)
        self._source.settle(pending.drawn, group, is_delivered=False)

    def _settle_in_hand(self) -> None:
        if self._in_hand is None:
            return
        pending, group = self._in_hand.pending, self._in_hand.episodes
        self._in_hand = None
        self._is_saved = False
        self._tally.add_delivered(pending.drawn.environment)
        self._source.settle(pending.drawn, group, is_delivered=True)

    def _apply_max_age(self, pending: _PendingTask, parts: list[Group]) -> list[Group] | None:
        """The groups to deliver, masked if stale, or None if their task is sampled again."""
        options = self.options
        if options.max_age is None or max(map(self.policies.age_of_group, parts)) <= options.max_age:
            return parts
        if options.when_stale is WhenStale.ASK_AGAIN and pending.resamples < options.max_asked_again:
            self.counts.stale_dropped += 1
            self._waiting.append(replace(pending, resamples=pending.resamples + 1))
            return None
        self.counts.stale_masked += 1
        return [self._mask_stale(part, options.max_age) for part in parts]

    def _mask_stale(self, group: Group, max_age: int) -> Group:
        if not any(group.trainable):
            return group
        versions = self.policies.of(group.policy)
        ages = [versions.age_of(sample, group.requested_at) for sample in group.samples]
        samples = [
            sample.masked(MaskReason.STALE, f"{age} weight updates old") if age > max_age else sample
            for sample, age in zip(group.samples, ages, strict=True)
        ]
        return replace(group, samples=tuple(samples))


stream = GroupStream
