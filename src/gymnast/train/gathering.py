"""The account of a batch while its rollouts come in: each row gets one sample. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from gymnast.train.causes import GROUP_DEADLINE, NEVER_CAME, Circumstances, fewer_rollouts
from gymnast.train.reading import SampleOptions, failed_sample, sample_of
from gymnast.train.samples import RolloutFailure, Sample

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gymnast.train.asking import Asked, Outcome


@dataclass(frozen=True, slots=True)
class BatchOptions:
    """How a batch is collected. Every wait has a deadline."""

    concurrency: int | None = None
    """Rollouts in flight at most; None lets the engine find its level."""
    max_attempts: int = 3
    """Attempts at one rollout; which failures are worth another is in the table of failures."""
    max_failed: int = 0
    """Rollouts that may fail for good. They stay in their groups as samples without a reward."""
    row_timeout_s: float = 3600.0
    """For one attempt at a rollout."""
    group_timeout_s: float = 3600.0
    """From a group's first rollout that has ended to its last."""
    batch_timeout_s: float = 4 * 3600.0
    """For everything."""
    give_up_after_s: float = 600.0
    """How long something may be out of reach before its rollouts are given up."""
    stop_early: bool = True
    """End as soon as more rollouts have failed than may, instead of paying for the rest of a batch that will not be."""
    logprob_retries: int = 1
    """How often a rollout is run again whose logprobs are unusable, after its model calls were made again already."""
    sample: SampleOptions = field(default_factory=SampleOptions)


class Gathering:
    """Samples of a batch's rows."""

    def __init__(self, asked: Asked, options: BatchOptions, clock: Callable[[], float]) -> None:
        self._asked = asked
        self._options = options
        self._clock = clock
        self._places = {key: place for place, key in enumerate(asked.keys)}
        self._found: list[Sample | None] = [None] * len(asked)
        self._left = len(asked)
        self._failed = 0
        self._left_in_group: dict[int, int] = {}
        self._since: dict[int, float] = {}
        """When the first rollout of each unfinished group ended, in the order of that."""

    @property
    def is_done(self) -> bool:
        return self._left == 0

    @property
    def is_doomed(self) -> bool:
        """Whether more have failed than may."""
        return self._options.stop_early and self._failed > self._options.max_failed

    def take(self, outcome: Outcome) -> None:
        """A rollout has ended. One that was written off meanwhile stays so."""
        place = self._places[outcome.key]
        if self._found[place] is None:
            failed = outcome.failure_kind is not None
            self._keep(place, sample_of(outcome.line, self._options.sample, key=outcome.key, failed=failed))

    def write_off_late_groups(self) -> None:
        """Fail what is missing of groups whose first rollout ended too long ago."""
        limit = self._options.group_timeout_s
        now = self._clock()
        for group in [group for group, since in self._since.items() if now - since >= limit]:
            first = group * self._asked.generations
            self._write_off(
                range(first, first + self._asked.generations),
                RolloutFailure(GROUP_DEADLINE, f"not there {limit:g} s after the first of its group"),
            )

    def write_off_rest(self, kind: str, message: str) -> None:
        """Fail everything that is not there."""
        if self._left:
            self._write_off(range(len(self._found)), RolloutFailure(kind, message))

    def samples(self) -> list[Sample]:
        """One for each row, in order. Everything must be there or written off."""
        found = [sample for sample in self._found if sample is not None]
        assert len(found) == len(self._asked)
        return found

    def _write_off(self, places: range, failure: RolloutFailure) -> None:
        for place in places:
            if self._found[place] is None:
                self._keep(place, failed_sample(self._asked.keys[place], failure))

    def _keep(self, place: int, sample: Sample) -> None:
        self._found[place] = sample
        self._left -= 1
        self._failed += not sample.is_scored
        group = self._asked.group_of(place)
        left = self._left_in_group.get(group, self._asked.generations) - 1
        self._left_in_group[group] = left
        if left:
            self._since.setdefault(group, self._clock())
        else:
            self._since.pop(group, None)


def require_all(found: Sequence[Sample], asked: Asked, options: BatchOptions, note: str) -> None:
    """Raise FewerRolloutsError when more than may have no reward, or any never came back. `note`: why it ended."""
    missing = [(sample.key, sample.failure) for sample in found if sample.failure is not None]
    if len(missing) > options.max_failed or any(failure.kind == NEVER_CAME for _, failure in missing):
        about = Circumstances(asked.groups, asked.generations, options.concurrency, options.row_timeout_s)
        raise fewer_rollouts(missing, len(asked), about, note)
