"""A batch is everything that was asked for, or an error that says what is missing, why, and what to do."""

from __future__ import annotations

import math
import pickle
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gymnast.errors import MissingRolloutsError, UserError
from gymnast.train import BatchOptions, FewerRolloutsError, MaskReason, NothingToTrainError, collect_batch
from gymnast.train.metrics import batch_metrics
from gymnast.types.failure import KINDS
from gymnast.types.task import RolloutKey
from gymnast.types.tokens import LEDGER
from tests.helpers.train_records import Simulated, good, record, shuffled_delays, some_tasks


def without_logprobs(key: RolloutKey) -> bytes:
    fields = orjson.loads(good(key))
    fields[LEDGER]["calls"][1]["logprobs"][0] = None
    return orjson.dumps(fields)


async def test_groups_come_in_the_order_of_tasks_whatever_the_order_of_rollouts() -> None:
    policy = Simulated(delay_s=shuffled_delays())
    batch = await collect_batch(policy, some_tasks(5), generations=4)
    assert len(batch) == 20
    assert [group.task for group in batch.groups] == [0, 1, 2, 3, 4]
    assert all([sample.key.rollout for sample in group.samples] == [0, 1, 2, 3] for group in batch.groups)
    assert all(sample.reward == sample.key.rollout % 2 for sample in batch.samples)
    assert len(set(policy.ids)) == 20


async def test_tasks_keep_their_index_and_may_be_asked_for_twice() -> None:
    tasks = [{**task, "_ng_task_index": 7} for task in some_tasks(2)]
    batch = await collect_batch(Simulated(), tasks, generations=2)
    assert [[str(sample.key) for sample in group.samples] for group in batch.groups] == [["7:0", "7:1"], ["7:2", "7:3"]]


async def test_fewer_rollouts_than_requested_is_an_error_that_explains_itself() -> None:
    dead = {RolloutKey(1, 0), RolloutKey(1, 3)}
    policy = Simulated(lambda key, _: "instance_died" if key in dead else good(key))
    with pytest.raises(FewerRolloutsError) as caught:
        await collect_batch(
            policy, some_tasks(3), generations=4, options=BatchOptions(concurrency=12, stop_early=False)
        )
    error = caught.value
    assert (error.requested, error.scored, error.failed, error.owed) == (12, 10, {"instance_died": 2}, 0)
    assert error.missing == ("1:0", "1:3")
    text = str(error)
    for said in (
        "10 of 12 rollouts were scored, 2 are missing",
        "missing: 1:0, 1:3",
        "2 × instance_died: instance_died happened",
        "killed, usually by the kernel's OOM killer, because prompts × generations (3 × 4 = 12)",
        "lower concurrency (rollouts in flight, now 12)",
    ):
        assert said in text
    assert isinstance(error, MissingRolloutsError)


@pytest.mark.parametrize("kind", list(KINDS))
async def test_whatever_went_wrong_the_error_says_what_to_do(kind: str) -> None:
    with pytest.raises(FewerRolloutsError, match=r"\n  next: \S"):
        await collect_batch(Simulated(lambda *_: kind), some_tasks(1), generations=2)


async def test_a_batch_that_cannot_be_complete_ends_at_once() -> None:
    policy = Simulated(
        lambda key, _: "verify_rejected" if key == (0, 0) else good(key),
        delay_s=lambda key: 0 if key == (0, 0) else math.inf,
    )
    with pytest.raises(FewerRolloutsError, match="3 × stopped") as caught:
        await collect_batch(policy, some_tasks(1), generations=4)
    assert (caught.value.failed, caught.value.owed, policy.ended) == ({"verify_rejected": 1}, 3, 1)


async def test_rollouts_that_never_came_back_are_missing_whatever_may_fail() -> None:
    policy = Simulated(lambda key, _: None if key.rollout == 1 else good(key))
    with pytest.raises(FewerRolloutsError) as caught:
        await collect_batch(policy, some_tasks(2), generations=2, options=BatchOptions(max_failed=4))
    assert (caught.value.owed, caught.value.missing) == (2, ("0:1", "1:1"))
    assert "why it ended: the agent was out of reach for 600 s" in str(caught.value)


async def test_failures_that_may_be_stay_in_their_groups_without_a_reward() -> None:
    policy = Simulated(lambda key, _: "worker_died" if key == (0, 1) else good(key))
    batch = await collect_batch(policy, some_tasks(2), generations=2, options=BatchOptions(max_failed=1))
    assert len(batch) == 4
    assert batch.groups[0].rewards == [1.0, None]
    assert batch.masked() == {"failed": 1}


@pytest.mark.parametrize("mended_by", [1, 2, 9])
async def test_unusable_logprobs_are_asked_for_again_and_then_masked_and_counted(mended_by: int) -> None:
    bad = RolloutKey(0, 1)
    policy = Simulated(lambda key, nth: without_logprobs(key) if key == bad and nth < mended_by else good(key))
    batch = await collect_batch(policy, some_tasks(2), generations=2, options=BatchOptions(logprob_retries=2))
    assert policy.runs[1:] == [[bad]] * min(mended_by, 2)
    assert batch.logprob_retries == min(mended_by, 2)
    assert len(set(policy.ids)) == 4 + min(mended_by, 2)
    sample = batch.groups[0].samples[1]
    assert sample.is_trainable == (mended_by <= 2)
    assert batch.masked() == ({} if mended_by <= 2 else {"bad_logprobs": 1})
    assert batch_metrics(batch.samples).get("masked/bad_logprobs", 0) == (mended_by > 2)


async def test_missing_rollouts_are_noticed_before_logprobs_are_looked_at() -> None:
    """An agent that dies while other rows have NaN: those must not be asked for again, nor hide the death."""
    policy = Simulated(lambda key, _: without_logprobs(key) if key.rollout == 0 else None)
    with pytest.raises(FewerRolloutsError, match="2 of 4 rollouts were scored"):
        await collect_batch(policy, some_tasks(2), generations=2)
    assert len(policy.runs) == 1


async def test_a_server_that_dies_during_the_retry_is_not_hidden_by_the_masked_row() -> None:
    policy = Simulated(lambda key, nth: "instance_died" if nth else without_logprobs(key) if key.rollout else good(key))
    with pytest.raises(FewerRolloutsError, match="2 of 4 rollouts were scored, 2 are missing") as caught:
        await collect_batch(policy, some_tasks(2), generations=2, options=BatchOptions(stop_early=False))
    assert (caught.value.requested, caught.value.failed) == (4, {"instance_died": 2})
    assert "prompts × generations (2 × 2 = 4)" in str(caught.value), "of the batch, not of what was run again"

    def spends_the_allowance_twice(key: RolloutKey, nth: int) -> bytes | str:
        if nth or key == (0, 0):
            return "instance_died"
        return without_logprobs(key) if key == (0, 1) else good(key)

    used_up = Simulated(spends_the_allowance_twice)
    with pytest.raises(FewerRolloutsError):
        await collect_batch(used_up, some_tasks(2), generations=2, options=BatchOptions(max_failed=1))


async def test_a_batch_without_a_token_to_train_on_is_an_error() -> None:
    policy = Simulated(lambda key, _: record(None, task=key.task, rollout=key.rollout))
    with pytest.raises(NothingToTrainError, match="4 × no_tokens") as caught:
        await collect_batch(policy, some_tasks(2), generations=2)
    assert "return_token_id_information" in str(caught.value)
    assert pickle.loads(pickle.dumps(caught.value)).masked == {"no_tokens": 4}
    assert len(policy.runs) == 1


@pytest.mark.parametrize(("tasks", "generations"), [(0, 4), (2, 0)])
async def test_an_empty_batch_cannot_be_asked_for(tasks: int, generations: int) -> None:
    with pytest.raises(UserError):
        await collect_batch(Simulated(), some_tasks(tasks), generations=generations)


async def test_a_group_has_a_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gymnast.train.batch._TICK_S", 0.01)
    policy = Simulated(delay_s=lambda key: math.inf if key == (1, 1) else 0.0)
    options = BatchOptions(group_timeout_s=0.05)
    with pytest.raises(FewerRolloutsError, match="1 × group_deadline") as caught:
        await collect_batch(policy, some_tasks(2), generations=2, options=options)
    assert caught.value.missing == ("1:1",)
    batch = await collect_batch(
        policy, some_tasks(2), generations=2, options=BatchOptions(group_timeout_s=0.05, max_failed=1)
    )
    assert batch.groups[1].rewards == [0.0, None]
    assert policy.ended == 2


async def test_a_batch_has_a_deadline() -> None:
    policy = Simulated(delay_s=lambda key: math.inf if key.task else 0.0)
    with pytest.raises(FewerRolloutsError, match="2 × batch_deadline: not done after"):
        await collect_batch(policy, some_tasks(2), generations=2, options=BatchOptions(batch_timeout_s=0.1))
    assert policy.ended == 1


async def test_deadlines_and_attempts_of_rows_are_passed_on() -> None:
    policy = Simulated()
    options = BatchOptions(concurrency=3, max_attempts=5, row_timeout_s=7, give_up_after_s=8)
    await collect_batch(policy, some_tasks(1), generations=1, options=options)
    assert policy.asked == [{"concurrency": 3, "max_attempts": 5, "rollout_timeout_s": 7, "give_up_after_s": 8}]


Fates = st.lists(st.sampled_from(["good", "bad", "worker_died", "never"]), min_size=1, max_size=12)


@given(fates=Fates, allowed=st.integers(0, 4), stop_early=st.booleans())
async def test_every_rollout_is_there_or_nothing_is(fates: list[str], allowed: int, *, stop_early: bool) -> None:
    def act(key: RolloutKey, nth: int) -> Any:
        fate = fates[key.task]
        if fate == "never":
            return None
        return good(key) if fate == "good" else without_logprobs(key) if fate == "bad" else fate

    died, never = fates.count("worker_died"), fates.count("never")
    options = BatchOptions(max_failed=allowed, stop_early=stop_early)
    policy, tasks = Simulated(act), some_tasks(len(fates))
    if never or died > allowed:
        with pytest.raises(FewerRolloutsError) as caught:
            await collect_batch(policy, tasks, generations=1, options=options)
        error = caught.value
        assert error.requested == len(fates)
        assert len(error.missing) == error.requested - error.scored == sum(error.failed.values()) + error.owed
        assert stop_early or len(error.missing) == died + never
    elif "good" not in fates:
        with pytest.raises(NothingToTrainError):
            await collect_batch(policy, tasks, generations=1, options=options)
    else:
        batch = await collect_batch(policy, tasks, generations=1, options=options)
        reasons = {"good": None, "bad": MaskReason.BAD_LOGPROBS, "worker_died": MaskReason.FAILED}
        assert [sample.mask_reason for sample in batch.samples] == [reasons[fate] for fate in fates]


@pytest.mark.parametrize("name", ["row_timeout_s", "group_timeout_s", "batch_timeout_s", "give_up_after_s"])
@pytest.mark.parametrize("value", [0, -1.0, float("nan"), None, "60"])
def test_every_wait_has_a_deadline(name: str, value: Any) -> None:
    with pytest.raises(UserError, match=f"{name} must be a number of seconds above 0"):
        BatchOptions(**{name: value})


@pytest.mark.parametrize(
    ("name", "value"),
    [("max_failed", -1), ("max_failed", 0.5), ("max_attempts", 0), ("concurrency", "512"), ("logprob_retries", -1)],
)
def test_counts_are_checked_before_anything_runs(name: str, value: Any) -> None:
    with pytest.raises(UserError, match=f"{name} must be a whole number of at least"):
        BatchOptions(**{name: value})


async def test_a_batch_of_tolerated_failures_says_what_failed() -> None:
    """It said that all rollouts came back, and to look at their tokens."""
    options = BatchOptions(max_failed=4, batch_timeout_s=0.2)
    policy = Simulated(delay_s=lambda key: 0.0 if key.rollout else math.inf)
    untrained = Simulated(
        lambda key, _: "agent_error" if key.task else record(None, task=key.task, rollout=key.rollout)
    )
    with pytest.raises(NothingToTrainError, match=r"are settled, and none(.|\n)*batch_deadline: not done after 0.2 s"):
        await collect_batch(Simulated(delay_s=lambda _: math.inf), some_tasks(2), generations=2, options=options)
    with pytest.raises(NothingToTrainError, match=r"2 × agent_error: agent_error happened(.|\n)*return_token_id"):
        await collect_batch(untrained, some_tasks(2), generations=2, options=options)
    batch = await collect_batch(policy, some_tasks(2), generations=2, options=options)
    assert [sample.is_scored for sample in batch.samples] == [False, True] * 2
