"""Figures of a step for verl's log: from facts that travel with rollouts, the same as from the rollouts."""

from __future__ import annotations

import json

import pytest

from gymnast.train import Batch, Group, MaskReason, batch_metrics, failed_sample, sample_of
from gymnast.train.samples import RolloutFailure, Sample
from gymnast.train.sequences import token_rows
from gymnast.train.verl_figures import PREFIX, batch_facts, reward_extra_info, step_figures, step_range
from gymnast.types.task import RolloutKey
from tests.helpers.train_records import call, good, record


def rollouts() -> list[Sample]:
    """Scored, masked, failed, of several versions, with components and numbers."""
    versions = ("3", "3-4", "5")
    samples = [sample_of(good(RolloutKey(0, place), version=version)) for place, version in enumerate(versions)]
    line = record([call([1], [2, 3])], 0.5, rollout=3, reward_components={"format": 0.25}, steps=7)
    samples.append(sample_of(line))
    samples[2] = samples[2].masked(MaskReason.ENVIRONMENT)
    return [*samples, failed_sample(RolloutKey(0, 4), RolloutFailure("worker_died", "killed"))]


def test_facts_say_what_samples_say() -> None:
    samples = rollouts()
    facts = json.loads(json.dumps(batch_facts(Batch((Group(0, tuple(samples)),), 4.0, 2), ended_at=100.0)))
    figures = step_figures(facts, step=6)
    for name, value in batch_metrics(samples).items():
        assert figures[f"{PREFIX}{name}"] == pytest.approx(value), name
    assert figures["gymnast/failed/worker_died"] == 1
    assert figures["gymnast/masked/environment"] == 1
    assert figures["gymnast/logprob_retries"] == 2
    assert figures["gymnast/seconds"] == pytest.approx(4.0)
    assert figures["gymnast/rollouts_per_second"] == pytest.approx(5 / 4)
    assert figures["gymnast/gen_tokens_per_second"] == pytest.approx((3 * 6 + 2) / 4)
    assert figures["gymnast/staleness/max"] == 2
    assert figures["gymnast/staleness/mean"] == pytest.approx((2 + 2 + 0) / 3)


def test_seconds_reach_from_the_first_request_to_the_last_delivery() -> None:
    samples = rollouts()[:1]
    batch = Batch((Group(0, tuple(samples)),), 4.0)
    facts = batch_facts(batch, ended_at=100.0) + batch_facts(batch, ended_at=103.0)
    assert step_figures(facts)["gymnast/seconds"] == pytest.approx(7.0)
    assert not any("staleness" in name for name in step_figures(facts)), "without the step's number"
    assert step_figures([]) == {}


def test_extra_info_of_a_masked_rollout_does_not_decide_for_its_group() -> None:
    lines = [record([call([1], [2])], 1.0, rollout=place, steps=7, found=place == 0) for place in range(3)]
    samples = [sample_of(line) for line in lines]
    samples[2] = samples[2].masked(MaskReason.ENVIRONMENT)
    samples.append(failed_sample(RolloutKey(0, 3), RolloutFailure("worker_died", "")))
    infos = reward_extra_info(samples, validate=False)
    assert [info["steps"] for info in infos] == [7, 7, 7, 7]
    assert [info["score"] for info in infos] == [1, 1, 1, 1]
    assert "reward" not in infos[0], "verl adds it itself"


@pytest.mark.parametrize("reward", [0.1, 0.2, 0.7])
@pytest.mark.parametrize("trained", [3, 6, 12])
def test_a_masked_rollout_gives_no_signal_to_a_group_of_equal_rewards(reward: float, trained: int) -> None:
    """verl's filter takes any difference for a signal: 0.1 + 0.1 + 0.1, divided by 3, is more than 0.1."""
    samples = [sample_of(record([call([1], [2])], reward)) for _ in range(trained)]
    samples.append(sample_of(record([call([1], [2])], 0.0, mask_sample=True)))
    assert {info["score"] for info in reward_extra_info(samples, validate=False)} == {reward}
    assert {row.score for row in token_rows(samples, [0] * len(samples), 0)} == {reward}


def test_validation_keeps_what_each_rollout_reports() -> None:
    line = record([call([1], [2])], 0.5, reward_components={"format": 0.25})
    failed = failed_sample(RolloutKey(0, 1), RolloutFailure("worker_died", ""))
    assert reward_extra_info([sample_of(line), failed], validate=True) == [{"format": 0.25}, {}]


@pytest.mark.parametrize(
    ("label", "steps"),
    [("7", (7, 7)), ("5-7", (5, 7)), ("step-7", (7, 7)), ("default", (None, None)), ("9" * 5000, (None, None))],
    ids=["step", "range", "named", "default", "digest"],
)
def test_the_steps_of_a_rollout_are_read_from_any_label(label: str, steps: tuple[int | None, int | None]) -> None:
    """A label with thousands of digits, as a digest may have, ended the step."""
    assert step_range(sample_of(record([call([1], [2, 3], version=label)]))) == steps
