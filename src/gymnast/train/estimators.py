"""Advantages within a group of rollouts of one task. Pure.

A rollout that is masked or failed has no advantage, and unless told otherwise it does not vote in the baseline either:
one that was cut off by the machinery says nothing about how hard the task is.
"""

from __future__ import annotations

import math
from enum import StrEnum
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gymnast.train.samples import Group

EPSILON: Final = 1e-6
"""Added to the spread before dividing, as the trainers do."""


class Estimator(StrEnum):
    """How rewards become advantages."""

    GRPO = "grpo"
    """Less the group's mean, divided by its spread (ddof 1)."""
    DR_GRPO = "dr_grpo"
    """Less the group's mean."""
    RLOO = "rloo"
    """Less the mean of the others."""


def advantages(
    rewards: Sequence[float | None],
    trainable: Sequence[bool] | None = None,
    estimator: Estimator = Estimator.GRPO,
    *,
    masked_vote: bool = False,
    epsilon: float = EPSILON,
) -> list[float | None]:
    """One advantage for each reward; None for those that are not trainable.

    `masked_vote`: the rewards of masked rollouts count in mean and spread. A rollout without a reward (None) never
    does. A group in which fewer than two vote, or all voted alike, teaches nothing: its advantages are 0.
    """
    trained = list(trainable) if trainable is not None else [reward is not None for reward in rewards]
    pairs = list(zip(rewards, trained, strict=True))
    votes = [reward for reward, is_trained in pairs if reward is not None and (is_trained or masked_vote)]
    shift, scale = _baseline(votes, estimator, epsilon)
    return [(reward - shift) * scale if is_trained and reward is not None else None for reward, is_trained in pairs]


def group_advantages(
    group: Group, estimator: Estimator = Estimator.GRPO, *, masked_vote: bool = False, epsilon: float = EPSILON
) -> list[float | None]:
    """The advantages of a group's samples, in their order."""
    return advantages(group.rewards, group.trainable, estimator, masked_vote=masked_vote, epsilon=epsilon)


def _baseline(votes: Sequence[float], estimator: Estimator, epsilon: float) -> tuple[float, float]:
    """What to subtract, and what to multiply with."""
    number = len(votes)
    if not number:
        return 0.0, 0.0
    mean = math.fsum(votes) / number
    if number < 2 or min(votes) == max(votes):
        return mean, 0.0
    match estimator:
        case Estimator.DR_GRPO:
            return mean, 1.0
        case Estimator.RLOO:
            # reward - (sum - reward) / (n - 1), which is the same for those who vote
            return mean, number / (number - 1)
        case Estimator.GRPO:
            spread = math.sqrt(math.fsum((vote - mean) ** 2 for vote in votes) / (number - 1))
            return mean, 1.0 / (spread + epsilon)
