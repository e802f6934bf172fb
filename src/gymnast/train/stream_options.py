"""How a stream of groups behaves, and what it counts."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from enum import StrEnum
from inspect import iscoroutinefunction
from typing import TYPE_CHECKING

from gymnast.errors import UserError
from gymnast.train.arguments import choose, require_count, require_function, require_switch, require_type
from gymnast.train.batch_progress import BatchOptions
from gymnast.train.group_selection import Select

if TYPE_CHECKING:
    from collections.abc import Callable

    from gymnast.train.samples import Group


class WhenStale(StrEnum):
    """What to do with a group that is stale when it is delivered."""

    ASK_AGAIN = "ask_again"
    """Drop it and sample its task again; after `max_asked_again` times deliver it masked."""
    MASK = "mask"
    """Deliver it with its stale samples masked."""


@dataclass(frozen=True, slots=True)
class StreamOptions:
    """How far a stream may run ahead of its trainer, and which groups it replaces."""

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
    keep: Callable[[Group], bool] | None = None
    """Dynamic sampling: groups for which this is false are dropped and replaced, e.g. `has_signal`."""
    max_filtered_groups: int = 64
    """Consecutive groups dropped by `keep` after which the stream raises NoSignalError."""
    oversample: int = 0
    """Further rollouts started per group; the group has `generations` of them."""
    select: Select = Select.FIRST
    """Which rollouts of an oversampled group to use."""
    split_agents: bool = True
    """Deliver a group for each agent of episodes with several. Otherwise an episode is one rollout with one reward."""
    max_failed_groups: int = 0
    """Consecutive groups that may fail; they are replaced by other tasks. With 0, the first one ends the stream."""
    failed_group_retries: int = 1
    """How often the task of a failed group is sampled again, after the waiting ones, before it is dropped."""

    def __post_init__(self) -> None:
        require_type("batch", self.batch, BatchOptions)
        object.__setattr__(self, "when_stale", choose("when_stale", self.when_stale, WhenStale))
        object.__setattr__(self, "select", choose("select", self.select, Select))
        for name in ("autosave", "split_agents"):
            require_switch(name, getattr(self, name))
        if self.keep is not None:
            require_function("keep", self.keep)
        if iscoroutinefunction(self.keep):
            raise UserError("keep must return True or False, and an async function returns a coroutine")
        for name in ("groups_in_flight", "max_empty_groups", "max_filtered_groups"):
            require_count(name, getattr(self, name))
        for name in ("groups_ready", "oversample", "max_asked_again", "max_failed_groups", "failed_group_retries"):
            require_count(name, getattr(self, name), at_least=0)
        if self.max_age is not None:
            require_count("max_age", self.max_age, at_least=0)
        if self.select is not Select.FIRST and not self.oversample:
            raise UserError(
                f"select chooses among further rollouts, and oversample is {self.oversample}",
                next="set oversample to at least 1, or leave out select",
            )

    def check(self, generations: int) -> None:
        """Raise UserError if groups of so many rollouts contradict the options."""
        require_count("generations", generations)
        if generations < 2 and self.keep is not None and getattr(self.keep, "needs_pairs", False):
            raise UserError(
                f"has_signal compares the rewards of a group, and a group has {generations} rollout",
                next="use generations of at least 2, or no keep",
            )


@dataclass(slots=True)
class StreamCounts:
    """Counts of groups by what happened to them, over all restarts of a stream."""

    requested: int = 0
    delivered: int = 0
    stale_dropped: int = 0
    stale_masked: int = 0
    empty: int = 0
    """Delivered without a trainable token."""
    logprob_retries: int = 0
    filtered: int = 0
    """Dropped by `keep`."""
    failed: int = 0
    """Groups that failed, whether retried or dropped."""
    dropped: int = 0
    """Tasks given up because their groups failed."""
    surplus: int = 0
    """Rollouts of oversampled groups that were not used."""
    failed_kinds: Counter[str] = field(default_factory=Counter)
    """Rollouts without a reward in failed groups, by failure kind."""
