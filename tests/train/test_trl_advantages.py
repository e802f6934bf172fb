"""TRL's advantages and ours agree."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from trl.trainer.utils import nanstd

from gymnast.train import Estimator, advantages


def test_trl_gives_the_same_advantages_for_the_same_rewards() -> None:
    """TRL's formula on the rewards of groups, with None for masked ones, as its trainer computes it."""
    rewards = torch.tensor([[1.0, float("nan"), 0.0, 0.0], [0.2, 0.4, 0.9, 1.0]])
    mean, spread = rewards.nanmean(dim=1, keepdim=True), nanstd(rewards, dim=1).unsqueeze(1)
    theirs = torch.nan_to_num((rewards - mean) / (spread + 1e-4), nan=0.0)
    for row, expected in zip(rewards.tolist(), theirs.tolist(), strict=True):
        given = [None if np.isnan(value) else value for value in row]
        ours = advantages(given, estimator=Estimator.GRPO, epsilon=1e-4)
        assert [value or 0.0 for value in ours] == pytest.approx(expected, abs=1e-5)
