"""Which groups a trainer learns from, and which rollouts of an oversampled group. Pure."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Final

from gymnast.train.estimators import are_equal
from gymnast.train.samples import MaskReason

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gymnast.train.samples import Group, Sample

RETRYABLE: Final = frozenset({MaskReason.BAD_LOGPROBS, MaskReason.BAD_LEDGER})
"""Masks that another rollout of the task may not get. A record without tokens is a configuration error."""


class Select(StrEnum):
    """Which rollouts of an oversampled group to use."""

    FIRST = "first"
    """The first to finish; the others are cancelled. Stragglers do not hold the group up, which favours short ones."""
    SPREAD = "spread"
    """All are awaited; of those that can be trained on, the ones whose rewards vary most are used."""


def has_signal(group: Group) -> bool:
    """True if two trainable rollouts of the group have different rewards: otherwise all advantages are 0."""
    rewards = [sample.reward for sample in group.samples if sample.is_trainable and sample.reward is not None]
    return not are_equal(rewards)


has_signal.needs_pairs = True  # type: ignore[attr-defined] # a stream of single rollouts would drop every group


def select_rollouts(samples: Sequence[Sample], count: int, select: Select) -> list[Sample]:
    """`count` of the samples of a group, in their order: trainable ones before masked ones, failed ones last."""
    ranked = sorted(samples, key=_rank)
    trainable = [sample for sample in ranked if sample.is_trainable]
    is_choice = select is Select.SPREAD and len(trainable) > count
    chosen = _widest(trainable, count) if is_choice else ranked[:count]
    identities = {id(sample) for sample in chosen}
    return [sample for sample in samples if id(sample) in identities]


def is_usable(sample: Sample) -> bool:
    """True if the rollout need not be replaced by another."""
    return sample.is_scored and sample.mask_reason not in RETRYABLE


def _rank(sample: Sample) -> int:
    if sample.is_trainable:
        return 0
    if not sample.is_scored:
        return 3
    return 1 if is_usable(sample) else 2


def _widest(samples: Sequence[Sample], count: int) -> list[Sample]:
    """The samples with the largest variance of rewards: it is always some of the lowest and some of the highest."""
    ordered = sorted(samples, key=lambda sample: sample.reward or 0.0)
    candidates = [[*ordered[:low], *ordered[len(ordered) - (count - low) :]] for low in range(count + 1)]
    return max(candidates, key=_variance)


def _variance(samples: Sequence[Sample]) -> float:
    rewards = [sample.reward or 0.0 for sample in samples]
    mean = sum(rewards) / len(rewards)
    return sum((reward - mean) ** 2 for reward in rewards)
