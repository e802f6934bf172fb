"""Advantages within a group of rollouts of one task. Pure.

A masked or failed rollout has no advantage and, by default, does not count in the baseline either: one that was cut off
for technical reasons says nothing about the difficulty of the task.
"""

from __future__ import annotations

import math
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from gymnast.errors import UserError
from gymnast.train.arguments import choose

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gymnast.train.samples import Group

EPSILON: Final = 1e-6
"""Added to the standard deviation before dividing, as trainers do."""
_ROUNDING: Final = 1e-12
_MAX_REWARD: Final = 3.4e38


class Estimator(StrEnum):
    """How rewards become advantages."""

    GRPO = "grpo"
    """Minus the group's mean, divided by its standard deviation (ddof 1)."""
    DR_GRPO = "dr_grpo"
    """Minus the group's mean."""
    RLOO = "rloo"
    """Minus the mean of the others."""


def advantages(
    rewards: Sequence[float | None],
    trainable: Sequence[bool] | None = None,
    estimator: Estimator = Estimator.GRPO,
    *,
    masked_vote: bool = False,
    epsilon: float = EPSILON,
) -> list[float | None]:
    """One advantage per reward; None for those that are not trainable.

    `masked_vote`: the rewards of masked rollouts count in mean and deviation. A rollout without a reward (None) never
    does. In a group with fewer than two votes, or equal ones, all advantages are 0.
    """
    estimator = choose("estimator", estimator, Estimator)
    trained = list(trainable) if trainable is not None else [reward is not None for reward in rewards]
    if len(rewards) != len(trained):
        raise UserError(
            f"{len(rewards)} rewards and {len(trained)} values in trainable", next="pass one for each reward"
        )
    pairs = list(zip(rewards, trained, strict=True))
    if not all(is_finite_reward(reward) for reward in rewards if reward is not None):
        raise UserError("a reward is not finite", next="pass None for a rollout without a reward")
    votes = [reward for reward, is_trained in pairs if reward is not None and (is_trained or masked_vote)]
    shift, scale = _baseline(votes, estimator, epsilon)
    return [(reward - shift) * scale if is_trained and reward is not None else None for reward, is_trained in pairs]


def group_advantages(
    group: Group, estimator: Estimator = Estimator.GRPO, *, masked_vote: bool = False, epsilon: float = EPSILON
) -> list[float | None]:
    """The advantages of a group's samples, in order."""
    return advantages(group.rewards, group.trainable, estimator, masked_vote=masked_vote, epsilon=epsilon)


def is_finite_reward(reward: float) -> bool:
    """True if trainers, which compute in 32 bits, can compute with it; false for NaN."""
    return abs(reward) <= _MAX_REWARD


def are_equal(rewards: Sequence[float]) -> bool:
    """True if rewards differ by no more than the rounding of sums, as 0.1 + 0.2 and 0.3 do, or if there are none."""
    return not rewards or math.isclose(min(rewards), max(rewards), rel_tol=_ROUNDING, abs_tol=_ROUNDING)


def _baseline(votes: Sequence[float], estimator: Estimator, epsilon: float) -> tuple[float, float]:
    """The value to subtract and the factor to multiply with."""
    count = len(votes)
    if not count:
        return 0.0, 0.0
    mean = math.fsum(votes) / count
    if count < 2 or are_equal(votes):
        return mean, 0.0
    match estimator:
        case Estimator.DR_GRPO:
            return mean, 1.0
        case Estimator.RLOO:
            # equals reward - (sum - reward) / (n - 1) for those that vote
            return mean, count / (count - 1)
        case Estimator.GRPO:
            deviation = math.sqrt(math.fsum((vote - mean) ** 2 for vote in votes) / (count - 1))
            return mean, 1.0 / (deviation + epsilon)
