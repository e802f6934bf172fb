"""Tracks a batch while its rollouts arrive, and gives each row exactly one sample. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from gymnast.train.arguments import require_count, require_seconds, require_switch, require_type
from gymnast.train.causes import GROUP_DEADLINE, NEVER_CAME, BatchContext, fewer_rollouts
from gymnast.train.sample_reader import SampleOptions, failed_sample, sample_of
from gymnast.train.samples import RolloutFailure, Sample

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gymnast.train.batch_request import BatchRequest, Outcome


@dataclass(frozen=True, slots=True)
class BatchOptions:
    """How to collect a batch. Every wait has a deadline."""

    concurrency: int | None = None
    """Maximum rollouts in flight; None tunes it automatically."""
    max_attempts: int = 3
    """Attempts per rollout; the failure table decides which failures are retried."""
    max_failed: int = 0
    """Rollouts that may fail permanently. They stay in their groups as samples without a reward."""
    row_timeout_s: float = 3600.0
    """Time limit of one attempt."""
    group_timeout_s: float = 3600.0
    """Time limit from a group's first finished rollout to its last."""
    batch_timeout_s: float = 4 * 3600.0
    """Time limit of the whole batch."""
    give_up_after_s: float = 30.0
    """How long a server or endpoint may be unreachable before its rollouts are given up and the trainer is told."""
    stop_early: bool = True
    """Stop as soon as more than `max_failed` rollouts have failed, instead of finishing a batch that is lost."""
    logprob_retries: int = 1
    """How often to rerun a rollout with unusable logprobs, after retries of its model calls did not help."""
    sample: SampleOptions = field(default_factory=SampleOptions)

    def __post_init__(self) -> None:
        if self.concurrency is not None:
            require_count("concurrency", self.concurrency)
        require_count("max_attempts", self.max_attempts)
        for name in ("max_failed", "logprob_retries"):
            require_count(name, getattr(self, name), at_least=0)
        for name in ("row_timeout_s", "group_timeout_s", "batch_timeout_s", "give_up_after_s"):
            require_seconds(name, getattr(self, name))
        require_switch("stop_early", self.stop_early)
        require_type("sample", self.sample, SampleOptions)


class BatchProgress:
    """The samples of a batch so far.

    Each row gets one sample, from its outcome or by being written off, and keeps the first one. A group is late if it
    is unfinished `group_timeout_s` after its first sample. A batch is done when every row has a sample, and doomed when
    more than `max_failed` rows have failed and `stop_early` is set.
    """

    def __init__(
        self,
        request: BatchRequest,
        options: BatchOptions,
        clock: Callable[[], float],
        *,
        is_enough: Callable[[Sequence[Sample]], bool] | None = None,
    ) -> None:
        """`is_enough`: ends the batch early, given what has arrived."""
        self._is_enough = is_enough
        self._has_enough = False
        self._request = request
        self._options = options
        self._clock = clock
        self._indexes = {key: index for index, key in enumerate(request.keys)}
        self._samples: list[Sample | None] = [None] * len(request)
        self._remaining = len(request)
        self._failed = 0
        self._remaining_in_group: dict[int, int] = {}
        self._first_ended_at: dict[int, float] = {}
        """When the first rollout of each unfinished group ended, in that order."""

    @property
    def is_done(self) -> bool:
        return self._remaining == 0 or self._has_enough

    @property
    def is_doomed(self) -> bool:
        """True if more rollouts have failed than allowed."""
        return self._options.stop_early and self._failed > self._options.max_failed

    def take(self, outcome: Outcome) -> None:
        """Record the outcome of a rollout, unless it has been written off."""
        index = self._indexes[outcome.key]
        if self._samples[index] is None:
            failed = outcome.failure_kind is not None
            self._add(index, sample_of(outcome.line, self._options.sample, key=outcome.key, failed=failed))
            if self._is_enough is not None:
                self._has_enough = self._is_enough([sample for sample in self._samples if sample is not None])

    def write_off_late_groups(self) -> None:
        """Fail the missing rollouts of groups whose first rollout ended too long ago."""
        limit = self._options.group_timeout_s
        now = self._clock()
        for group in [group for group, ended_at in self._first_ended_at.items() if now - ended_at >= limit]:
            first = group * self._request.generations
            self._write_off(
                range(first, first + self._request.generations),
                RolloutFailure(GROUP_DEADLINE, f"not done {limit:g} s after the first of its group"),
            )

    def write_off_rest(self, kind: str, message: str) -> None:
        """Fail all missing rollouts."""
        if self._remaining:
            self._write_off(range(len(self._samples)), RolloutFailure(kind, message))

    def samples(self) -> list[Sample]:
        """One sample per row, in order. Every row must have arrived or been written off."""
        samples = [sample for sample in self._samples if sample is not None]
        assert len(samples) == len(self._request)
        return samples

    def _write_off(self, indexes: range, failure: RolloutFailure) -> None:
        for index in indexes:
            if self._samples[index] is None:
                self._add(index, failed_sample(self._request.keys[index], failure))

    def _add(self, index: int, sample: Sample) -> None:
        self._samples[index] = sample
        self._remaining -= 1
        self._failed += not sample.is_scored
        group = self._request.group_of(index)
        remaining = self._remaining_in_group.get(group, self._request.generations) - 1
        self._remaining_in_group[group] = remaining
        if remaining:
            self._first_ended_at.setdefault(group, self._clock())
        else:
            self._first_ended_at.pop(group, None)


def require_complete(samples: Sequence[Sample], request: BatchRequest, options: BatchOptions, note: str) -> None:
    """Raise FewerRolloutsError if more than `max_failed` have no reward, or any is lost. `note`: why the run ended."""
    missing = [(sample.key, sample.failure) for sample in samples if sample.failure is not None]
    if len(missing) > options.max_failed or any(failure.kind == NEVER_CAME for _, failure in missing):
        context = BatchContext(request.groups, request.generations, options.concurrency, options.row_timeout_s)
        raise fewer_rollouts(missing, len(request), context, note)
