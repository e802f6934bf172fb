"""Advantages within a group of rollouts of one task. A masked rollout has none and does not shift the others'. Pure."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


def group_advantages(
    rewards: Sequence[float], masked: Sequence[bool] | None = None, *, normalise: bool = False
) -> list[float | None]:
    """Reward less the mean of the group, over those that are not masked; normalised, divided by their spread (ddof 1).

    None for a masked one. A group whose rewards are all alike teaches nothing: all 0.
    """
    hidden = masked if masked is not None else [False] * len(rewards)
    seen = [reward for reward, is_hidden in zip(rewards, hidden, strict=True) if not is_hidden]
    if not seen:
        return [None] * len(rewards)
    mean = math.fsum(seen) / len(seen)
    spread = 1.0
    if normalise:
        spread = math.sqrt(math.fsum((reward - mean) ** 2 for reward in seen) / max(1, len(seen) - 1)) or 1.0
    return [None if is_hidden else (reward - mean) / spread for reward, is_hidden in zip(rewards, hidden, strict=True)]
