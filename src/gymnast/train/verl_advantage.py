"""GRPO for verl in which masked rollouts do not vote: `algorithm.adv_estimator: gymnast_grpo`.

verl's own `grpo` takes the mean and spread over all rows of a group. Masked rows are given the others' mean as a
score, so its mean is right and its spread too small; this one leaves them out of both.
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
    """Advantages of rows, over those rows of a group of which something is trained on."""
    by_std = config is None or config.get("norm_adv_by_std_in_grpo", True)
    estimator = Estimator.GRPO if by_std else Estimator.DR_GRPO
    scores = token_level_rewards.sum(dim=-1).tolist()
    trained = (response_mask.sum(dim=-1) > 0).tolist()
    groups: dict[Any, list[int]] = {}
    for place, group in enumerate(index):
        groups.setdefault(group, []).append(place)
    found = torch.zeros_like(token_level_rewards[:, :1])
    for places in groups.values():
        chosen = [scores[place] for place in places], [trained[place] for place in places]
        for place, value in zip(places, advantages(*chosen, estimator, epsilon=EPSILON), strict=True):
            found[place, 0] = value or 0.0
    spread = found * response_mask
    return spread, spread


def register() -> None:
    """Make verl know the name. The manager does so when it is made."""
    register_adv_est(NAME)(compute_masked_grpo)
