"""Advantages against formulas written otherwise: numpy's mean and spread, leave-one-out one by one."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gymnast.errors import UserError
from gymnast.train import Estimator, Group, MaskReason, advantages, failed_sample, group_advantages, sample_of
from gymnast.train.samples import RolloutFailure
from gymnast.types.task import RolloutKey
from tests.helpers.train_records import good

SECOND_MASKED = [True, False, True, True]
Rewards = st.lists(st.floats(-5, 5, allow_subnormal=False).map(lambda value: round(value, 3)), min_size=2, max_size=12)


def test_a_masked_rollout_has_no_advantage_and_does_not_shift_the_others() -> None:
    plain = advantages([1, 1, 0, 0], SECOND_MASKED, Estimator.DR_GRPO)
    assert plain == [pytest.approx(2 / 3), None, pytest.approx(-1 / 3), pytest.approx(-1 / 3)]
    normalised = advantages([1, 1, 0, 0], SECOND_MASKED)
    assert normalised == [
        pytest.approx(1.155, abs=1e-3),
        None,
        pytest.approx(-0.577, abs=1e-3),
        pytest.approx(-0.577, abs=1e-3),
    ]


def test_masked_rollouts_vote_where_that_is_said() -> None:
    voted = advantages([1, 1, 0, 0], SECOND_MASKED, Estimator.DR_GRPO, masked_vote=True)
    assert voted == [0.5, None, -0.5, -0.5]
    assert advantages([1, None, 0], [True, False, True], Estimator.DR_GRPO, masked_vote=True) == [0.5, None, -0.5]


def test_reference_values() -> None:
    rewards = [1.0, 0.0, 0.5, 0.25]
    assert advantages(rewards, estimator=Estimator.RLOO) == pytest.approx([0.75, -0.58333333, 0.08333333, -0.25])
    assert advantages(rewards, estimator=Estimator.DR_GRPO) == pytest.approx([0.5625, -0.4375, 0.0625, -0.1875])
    assert advantages(rewards) == pytest.approx([1.31745, -1.02468, 0.14638, -0.43915], abs=1e-4)


@pytest.mark.parametrize("estimator", list(Estimator))
@pytest.mark.parametrize("rewards", [[0.1] * 3, [1.0], [0.3] * 7])
def test_a_group_that_is_all_alike_teaches_nothing(estimator: Estimator, rewards: list[float]) -> None:
    assert advantages(rewards, estimator=estimator) == [0.0] * len(rewards)


def test_a_failed_rollout_is_not_a_reward_of_zero() -> None:
    key = RolloutKey(0, 0)
    samples = [sample_of(good(key, reward=reward)) for reward in (1.0, 0.5)]
    group = Group(0, (*samples, failed_sample(key, RolloutFailure("worker_died"))))
    assert group_advantages(group, Estimator.DR_GRPO) == [0.25, -0.25, None]
    assert group_advantages(group, Estimator.DR_GRPO, masked_vote=True) == [0.25, -0.25, None]
    masked = Group(0, (samples[0], samples[1].masked(MaskReason.STALE)))
    assert group_advantages(masked) == [0.0, None]


@given(Rewards, st.data())
def test_formulas_agree(rewards: list[float], data: Any) -> None:
    trained = data.draw(st.lists(st.booleans(), min_size=len(rewards), max_size=len(rewards)))
    kept = np.array([reward for reward, is_trained in zip(rewards, trained, strict=True) if is_trained])
    for estimator in Estimator:
        found = advantages(rewards, trained, estimator, epsilon=1e-6)
        assert [value is None for value in found] == [not is_trained for is_trained in trained]
        values = np.array([value for value in found if value is not None], dtype=float)
        if len(kept) < 2:
            assert not values.any()
            continue
        if estimator is Estimator.RLOO:
            wanted = np.array([kept[at] - np.delete(kept, at).mean() for at in range(len(kept))])
        else:
            wanted = kept - kept.mean()
            if estimator is Estimator.GRPO:
                wanted = wanted / (kept.std(ddof=1) + 1e-6)
        assert values == pytest.approx(wanted, abs=1e-6)
        assert values.sum() == pytest.approx(0, abs=1e-6)


@pytest.mark.parametrize("reward", [math.nan, math.inf, -math.inf, 1e39, -1e308])
def test_rewards_that_trainers_cannot_compute_with_are_refused(reward: float) -> None:
    with pytest.raises(UserError, match="a reward is not finite"):
        advantages([reward, 1.0])
    largest = advantages([3.4e38, -3.4e38, None])
    assert largest == [pytest.approx(0.7071, abs=1e-3), pytest.approx(-0.7071, abs=1e-3), None]
