"""GRPO for verl in which masked rollouts do not vote: `algorithm.adv_estimator: gymnast_grpo`.

verl's own `grpo` takes mean and standard deviation over all rows of a group. Masked rows get the others' mean as their
score, so its mean is right but its deviation too small; this estimator excludes them from both.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import torch
from verl.trainer.ppo.core_algos import register_adv_est

from gymnast.train.estimators import EPSILON, Estimator, advantages

if TYPE_CHECKING:
    from collections.abc import Sequence

NAME: Final = "gymnast_grpo"


def compute_masked_grpo(
    token_level_rewards: torch.Tensor,
    response_mask: torch.Tensor,
    index: Sequence[Any],
    config: Any = None,
    **_: Any,
) -> tuple[torch.Tensor, torch.Tensor]:
    """The advantages of rows, computed over the rows of each group that have trained tokens."""
    by_std = config is None or config.get("norm_adv_by_std_in_grpo", True)
    estimator = Estimator.GRPO if by_std else Estimator.DR_GRPO
    scores = token_level_rewards.sum(dim=-1).tolist()
    trained = (response_mask.sum(dim=-1) > 0).tolist()
    groups: dict[Any, list[int]] = {}
    for row, group in enumerate(index):
        groups.setdefault(group, []).append(row)
    values = torch.zeros_like(token_level_rewards[:, :1])
    for rows in groups.values():
        group_scores, group_trained = [scores[row] for row in rows], [trained[row] for row in rows]
        group_values = advantages(group_scores, group_trained, estimator, epsilon=EPSILON)
        for row, value in zip(rows, group_values, strict=True):
            values[row, 0] = value or 0.0
    per_token = values * response_mask
    return per_token, per_token


def register() -> None:
    """Register the estimator with verl. The manager calls this when it is created."""
    register_adv_est(NAME)(compute_masked_grpo)
