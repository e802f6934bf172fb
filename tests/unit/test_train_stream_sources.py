"""Streams that choose: groups without signal and failed ones are replaced, tasks come by weight or by value."""

from __future__ import annotations

from collections import Counter
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gymnast.errors import UserError
from gymnast.train import (
    BatchOptions,
    Curriculum,
    FewerRolloutsError,
    Group,
    MaskReason,
    NoSignalError,
    Select,
    StreamOptions,
    TaskMixture,
    collect_group,
    group_advantages,
    has_signal,
    sample_of,
    split_agents,
    stream,
)
from gymnast.train.group_selection import select_rollouts
from gymnast.train.stream_state import read_state
from gymnast.types.task import RolloutKey
from tests.helpers.train_records import Simulated, call, good, record, some_tasks


def easy_if(*tasks: int) -> Simulated:
    """All rollouts of these tasks are right; of the others, every second."""
    return Simulated(lambda key, _: good(key, reward=1.0 if key.task in tasks else float(key.rollout % 2)))


# --- dynamic sampling ------------------------------------------------------------------------------------------------


async def test_groups_without_variance_are_replaced_and_counted() -> None:
    options = StreamOptions(keep=has_signal, groups_in_flight=2)
    async with stream(easy_if(0, 3, 4), some_tasks(8), generations=4, options=options) as groups:
        tasks = [group.task async for group in groups]
        figures = groups.figures()
    assert sorted(tasks) == [1, 2, 5, 6, 7]
    assert (figures["stream/filtered"], figures["stream/delivered"], figures["stream/asked"]) == (3, 5, 8)
    assert figures["samples"] == 20, "figures are of what training sees"


async def test_groups_that_were_replaced_after_the_last_delivery_do_not_come_again(tmp_path: Path) -> None:
    path = tmp_path / "state.json"
    options = StreamOptions(keep=has_signal, groups_in_flight=1)
    async with stream(easy_if(2, 3), some_tasks(4), generations=4, options=options, state=path) as groups:
        assert [group.task async for group in groups] == [0, 1]
    with pytest.raises(UserError, match="all 2 groups of this stream have already been delivered"):
        async with stream(easy_if(), some_tasks(4), generations=4, options=options, state=path) as groups:
            _ = [group async for group in groups]


async def test_the_budget_of_replaced_groups_is_bounded_and_the_error_says_the_rewards() -> None:
    options = StreamOptions(keep=has_signal, max_filtered_groups=5)
    policy = easy_if(*range(1, 100))
    with pytest.raises(NoSignalError, match=r"the last 5 groups(.|\n)*5 × all 1"):
        async with stream(policy, some_tasks(100), generations=2, options=options) as groups:
            _ = [group async for group in groups]
    assert len(policy.runs) <= 5 + 1 + options.groups_in_flight


async def test_an_epoch_of_which_everything_is_dropped_is_an_error() -> None:
    options = StreamOptions(keep=has_signal)
    with pytest.raises(NoSignalError, match="no group of this stream was delivered: 3 without signal"):
        async with stream(easy_if(0, 1, 2), some_tasks(3), generations=2, options=options) as groups:
            _ = [group async for group in groups]


def test_a_group_of_one_has_no_variance() -> None:
    with pytest.raises(UserError, match="a group has 1 rollout"):
        stream(Simulated(), some_tasks(1), generations=1, options=StreamOptions(keep=has_signal))


def test_signal_is_that_of_trainable_rollouts() -> None:
    samples = [sample_of(good(RolloutKey(0, number), reward=reward)) for number, reward in enumerate((1.0, 1.0, 0.0))]
    assert has_signal(Group(0, tuple(samples)))
    masked = [*samples[:2], samples[2].masked(MaskReason.TRUNCATED)]
    assert not has_signal(Group(0, tuple(masked)))


def test_rewards_that_differ_by_the_rounding_of_a_sum_are_not_a_signal() -> None:
    samples = [sample_of(good(RolloutKey(0, n), reward=reward)) for n, reward in enumerate((0.1 + 0.2, 0.3, 0.3))]
    group = Group(0, tuple(samples))
    assert not has_signal(group)
    assert group_advantages(group) == [0.0, 0.0, 0.0]


# --- oversampling ----------------------------------------------------------------------------------------------------


async def test_the_first_n_of_m_are_a_group_and_stragglers_are_cancelled() -> None:
    policy = Simulated(delay_s=lambda key: float("inf") if key.rollout in {1, 4} else 0.0)
    options = StreamOptions(oversample=2)
    async with stream(policy, some_tasks(3), generations=4, options=options) as groups:
        found = [group async for group in groups]
    assert [[sample.key.rollout for sample in group.samples] for group in found] == [[0, 2, 3, 5]] * 3
    assert all(sample.is_scored for group in found for sample in group.samples)
    assert (groups.counts.surplus, policy.ended) == (6, 3)


async def test_extra_rollouts_replace_failed_ones_and_those_without_logprobs() -> None:
    bad = record([call([1], [2, 3], logprobs=[None, None])], rollout=2)
    acts: dict[int, Any] = {0: "agent_error", 2: bad}
    policy = Simulated(lambda key, _: acts.get(key.rollout, good(key)))
    group = await collect_group(policy, some_tasks(1)[0], generations=3, extra=2)
    assert [sample.key.rollout for sample in group.samples] == [1, 3, 4]
    assert all(group.trainable)
    with pytest.raises(FewerRolloutsError, match="agent_error"):
        await collect_group(
            Simulated(lambda *_: "agent_error"), some_tasks(1)[0], generations=3, extra=1, options=BatchOptions()
        )


@given(st.lists(st.sampled_from([0.0, 0.25, 0.5, 1.0]), min_size=2, max_size=8), st.integers(2, 8))
def test_the_widest_selection_has_the_largest_variance(rewards: list[float], count: int) -> None:
    count = min(count, len(rewards))
    samples = [sample_of(good(RolloutKey(0, number), reward=reward)) for number, reward in enumerate(rewards)]
    chosen = select_rollouts(samples, count, Select.SPREAD)
    assert len(chosen) == count
    assert [sample.key for sample in chosen] == sorted(sample.key for sample in chosen)
    best = max(np.var(some) for some in combinations(rewards, count))
    assert np.var([sample.reward or 0.0 for sample in chosen]) == pytest.approx(best)


async def test_spread_waits_for_all_and_uses_those_that_differ() -> None:
    policy = Simulated(lambda key, _: good(key, reward=float(key.rollout in {3, 5})))
    options = StreamOptions(oversample=4, select=Select.SPREAD)
    async with stream(policy, some_tasks(1), generations=2, options=options) as groups:
        (group,) = [group async for group in groups]
    assert sorted(group.rewards, key=str) == [0.0, 1.0]


async def test_spread_prefers_rollouts_that_can_be_trained_on() -> None:
    """A masked one has no advantage, however extreme its reward is."""

    def act(key: RolloutKey, _: int) -> bytes:
        reward = [9.0, 0.0, 1.0, 0.0, 1.0, -9.0][key.rollout]
        return record([call([1], [2])], reward, task=key.task, rollout=key.rollout, mask_sample=abs(reward) > 1)

    for extra, rewards in ((2, [0.0, 1.0, 0.0, 1.0]), (1, [0.0, 1.0, 0.0, 1.0]), (0, [9.0, 0.0, 1.0, 0.0])):
        group = await collect_group(
            Simulated(act), some_tasks(1)[0], generations=4, extra=extra, select=Select.SPREAD, options=BatchOptions()
        )
        assert group.rewards == rewards


# --- failed groups ---------------------------------------------------------------------------------------------------


async def test_a_failed_group_is_retried_then_dropped_and_the_stream_continues() -> None:
    def act(key: RolloutKey, nth: int) -> Any:
        if key.task == 2 or (key.task == 5 and key.rollout == nth == 0):
            return "agent_error"
        return good(key)

    policy = Simulated(act)
    options = StreamOptions(max_failed_groups=3, groups_in_flight=1)
    async with stream(policy, some_tasks(8), generations=2, options=options) as groups:
        tasks = [group.task async for group in groups]
        figures = groups.figures()
    assert sorted(tasks) == [0, 1, 3, 4, 5, 6, 7]
    assert (groups.counts.failed, groups.counts.dropped) == (3, 1)
    assert figures["stream/failed/agent_error"] >= 3


async def test_an_outage_ends_the_stream_within_the_budget_and_loses_no_task(tmp_path: Path) -> None:
    state = tmp_path / "state.json"
    is_down = False
    policy = Simulated(lambda key, _: "model_unreachable" if is_down else good(key))
    options = StreamOptions(max_failed_groups=4, groups_in_flight=2, groups_ready=1)
    delivered: list[int] = []
    async with stream(policy, some_tasks(12), generations=2, options=options, state=state) as groups:
        with pytest.raises(FewerRolloutsError, match="model_unreachable"):  # noqa: PT012 - it fails in the middle
            async for group in groups:
                delivered.append(group.task)
                is_down = len(delivered) >= 3
    assert groups.counts.failed <= 6
    is_down = False
    async with stream(policy, some_tasks(12), generations=2, options=options, state=state) as groups:
        delivered += [group.task async for group in groups]
    assert set(delivered) == set(range(12))
    assert groups.counts.dropped == 0


async def test_a_bug_is_not_a_failed_group() -> None:
    class Broken:
        async def run(self, *_: Any, **__: Any) -> Any:
            raise ValueError("bug")
            yield

    with pytest.raises(ValueError, match="bug"):
        async with stream(Broken(), some_tasks(2), generations=2, options=StreamOptions(max_failed_groups=9)) as groups:
            _ = [group async for group in groups]


# --- mixtures --------------------------------------------------------------------------------------------------------


def labelled(name: str, number: int) -> list[dict[str, Any]]:
    return [{**task, "_ng_task_index": 1000 * len(name) + place} for place, task in enumerate(some_tasks(number))]


async def test_environments_are_mixed_by_weight_in_what_is_delivered() -> None:
    """One environment loses half of its groups to the filter, and has its share nevertheless."""

    def act(key: RolloutKey, _: int) -> bytes:
        is_lost = key.task < 3000 and key.task % 2
        return good(key, reward=1.0 if is_lost else float(key.rollout % 2))

    mixture = TaskMixture({"ab": (labelled("ab", 90), 2.0), "abc": (labelled("abc", 90), 1.0)})
    options = StreamOptions(keep=has_signal, groups_in_flight=3)
    counts: Counter[str] = Counter()
    async with stream(Simulated(act), mixture, generations=2, options=options) as groups:
        async for group in groups:
            counts[group.environment] += 1
            assert group.task // 1000 == len(group.environment)
            if counts.total() == 30:
                groups.save(done=True)
                figures = groups.figures()
                break
    assert counts["ab"] == pytest.approx(20, abs=2)
    assert figures["environment/ab/delivered"] == counts["ab"]
    assert figures["environment/ab/share"] == pytest.approx(2 / 3, abs=0.07)
    assert figures["environment/ab/filtered"] >= 18
    assert "environment/abc/filtered" not in figures
    assert figures["environment/abc/total_reward/mean"] == 0.5


async def test_a_mixture_continues_with_the_others_when_one_environment_ends() -> None:
    mixture = TaskMixture({"short": (some_tasks(2), 1.0), "long": (some_tasks(9), 1.0)})
    async with stream(Simulated(), mixture, generations=1) as groups:
        names = Counter([group.environment async for group in groups])
    assert names == {"short": 2, "long": 9}
    with pytest.raises(UserError, match="weight of 'a' must be above 0"):
        TaskMixture({"a": ([], 0.0)})


# --- curriculum ------------------------------------------------------------------------------------------------------


async def test_a_curriculum_draws_what_training_learns_from() -> None:
    """Two of ten tasks have variance; filtered groups teach it as well."""
    drawn: Counter[int] = Counter()

    class Noted(Curriculum):
        def next(self) -> Any:
            found = super().next()
            if found is not None:
                drawn[found.row] += 1
            return found

    def act(key: RolloutKey, _: int) -> bytes:
        return good(key, reward=float(key.rollout % 2) if key.task in {3, 7} else 0.0)

    tasks = [{**task, "_ng_task_index": place} for place, task in enumerate(some_tasks(10))]
    options = StreamOptions(keep=has_signal, groups_in_flight=1, groups_ready=1)
    curriculum = Noted(tasks, limit=300, floor=0.02)
    async with stream(Simulated(act), curriculum, generations=4, options=options) as groups:
        _ = [group async for group in groups]
        figures = groups.figures()
    assert drawn.total() == 300
    assert drawn[3] + drawn[7] > 200
    assert min(drawn[row] for row in range(10)) >= 1, "each is drawn now and then"
    assert (figures["curriculum/draws"], figures["curriculum/seen"]) == (300, 10)


async def test_no_task_is_in_flight_twice() -> None:
    curriculum = Curriculum(some_tasks(3), limit=12)
    policy = Simulated(delay_s=lambda _: 0.001)
    async with stream(policy, curriculum, generations=1, options=StreamOptions(groups_in_flight=8)) as groups:
        running = [len(groups._running) async for _ in groups]
    assert max(running) <= 2
    assert groups.counts.delivered == 12


# --- resume ----------------------------------------------------------------------------------------------------------


def full_mixture() -> TaskMixture:
    a = [{**task, "_ng_task_index": place} for place, task in enumerate(some_tasks(12))]
    b = [{**task, "_ng_task_index": 100 + place} for place, task in enumerate(some_tasks(40))]
    return TaskMixture({"a": (Curriculum(a, seed=3, limit=25), 2.0), "b": (b, 1.0)})


def reward_of(key: RolloutKey, nth: int) -> Any:
    if key.task % 11 == 5 and nth == 0:
        return "agent_error"
    return good(key, reward=1.0 if key.task % 3 == 0 else float(key.rollout % 2))


ALL = StreamOptions(
    keep=has_signal, max_failed_groups=6, groups_in_flight=1, groups_ready=1, autosave=False, max_filtered_groups=40
)


async def part_of(path: Path, stop: int | None) -> tuple[list[tuple[str, int]], dict[str, float]]:
    """What is delivered until the trainer saves with its checkpoint and dies."""
    found: list[tuple[str, int]] = []
    policy = Simulated(lambda key, _: reward_of(key, 1))
    async with stream(policy, full_mixture(), generations=2, options=ALL, state=path) as groups:
        async for group in groups:
            found.append((group.environment, group.task))
            if len(found) == stop:
                groups.save(done=True)
                break
        figures = {name: value for name, value in groups.figures().items() if "delivered" in name or "share" in name}
    return found, figures


@pytest.mark.parametrize("stops", [[1], [3, 4], [7, 1, 1, 6]])
async def test_a_resumed_stream_delivers_what_an_unbroken_one_does(tmp_path: Path, stops: list[int]) -> None:
    whole, figures = await part_of(tmp_path / "whole.json", None)
    parts: list[tuple[str, int]] = []
    for stop in [*stops, None]:
        found, last = await part_of(tmp_path / "parts.json", stop)
        parts += found
    assert Counter(parts) == Counter(whole)
    assert last == figures


async def test_the_state_is_what_the_stream_has_in_memory(tmp_path: Path) -> None:
    path = tmp_path / "state.json"
    await part_of(path, 9)
    saved = read_state(path)
    async with stream(Simulated(), full_mixture(), generations=2, options=ALL, state=path) as groups:
        assert groups.state() == saved, "reading and writing it again changes nothing"


async def test_other_tasks_are_refused_whatever_their_source(tmp_path: Path) -> None:
    path = tmp_path / "state.json"
    await part_of(path, 9)
    tasks = some_tasks(12)
    renamed = TaskMixture({"a": (Curriculum(tasks), 2.0), "c": (some_tasks(40), 1.0)})
    changed = TaskMixture({"a": (Curriculum(tasks, limit=25), 2.0), "b": (some_tasks(40), 1.0)})
    others: list[tuple[Any, str]] = [
        (renamed, "mixed a, b, and now a, c"),
        (changed, "differ from those"),
        (tasks, "differ from those"),
        (Curriculum(tasks), "differ from those"),
    ]
    for source, message in others:
        with pytest.raises(UserError, match=message):
            async with stream(Simulated(), source, generations=2, state=path):
                pass


async def test_a_state_file_of_version_1_is_resumed(tmp_path: Path) -> None:
    path = tmp_path / "state.json"
    options = StreamOptions(autosave=False, groups_in_flight=1)
    async with stream(Simulated(), some_tasks(4), generations=1, state=path, options=options) as groups:
        async for group in groups:
            if group.task == 1:
                groups.save(done=True)
                break
    state = read_state(path)
    assert state is not None
    digest = state.source["digest"]
    text = f'{{"taken":{state.taken},"owed":[2],"digest":"{digest}","labels":["a"],"delivered":2,"schema_version":1}}'
    path.write_text(text)
    async with stream(Simulated(), some_tasks(4), generations=1, state=path) as groups:
        assert sorted([group.task async for group in groups]) == [2, 3]


# --- several agents --------------------------------------------------------------------------------------------------


def game(key: RolloutKey) -> bytes:
    """Two agents in one conversation: white has calls 0 and 2, black call 1; black wins every second game."""
    calls = [
        call([1, 2], [3, 4]),
        call([5], [6, 7], before=4, parent=0, version="v1"),
        call([8], [9], before=7, parent=1, version="v2"),
    ]
    won = float(key.rollout % 2)
    agents = {"white": {"reward": 1 - won, "calls": [0, 2]}, "black": {"reward": won, "calls": [1]}}
    return record(calls, 0.5, task=key.task, rollout=key.rollout, episode_agents=agents)


async def test_episodes_of_several_agents_are_a_group_for_each() -> None:
    async with stream(Simulated(lambda key, _: game(key)), some_tasks(2), generations=4) as groups:
        found = [group async for group in groups]
    assert [(group.task, group.agent) for group in found] == [(0, "white"), (0, "black"), (1, "white"), (1, "black")]
    white, black = found[0], found[1]
    assert white.rewards == [1.0, 0.0, 1.0, 0.0]
    assert black.rewards == [0.0, 1.0, 0.0, 1.0]
    advantages = group_advantages(white)
    assert advantages[0] == -(advantages[1] or 0.0)
    [segment] = white.samples[0].segments
    assert segment.ids.tolist() == [1, 2, 3, 4, 5, 6, 7, 8, 9]
    assert segment.mask.tolist() == [0, 0, 1, 1, 0, 0, 0, 0, 1]
    assert (segment.prompt_length, [span.version for span in segment.versions]) == (2, ["v0", "v2"])
    [segment] = black.samples[0].segments
    assert segment.ids.tolist() == [1, 2, 3, 4, 5, 6, 7]
    assert segment.mask.tolist() == [0, 0, 0, 0, 0, 1, 1]
    assert (segment.prompt_length, segment.trained, segment.share) == (5, 2, 1.0)
    assert segment.logprobs[:5].tolist() == [0.0] * 5
    assert groups.counts.delivered == 2, "tasks, not agents"


async def test_an_episode_is_delivered_with_its_last_agents_group(tmp_path: Path) -> None:
    path = tmp_path / "state.json"
    for stop, again in ((1, 2), (2, 0)):
        path.unlink(missing_ok=True)
        options = StreamOptions(autosave=False)
        async with stream(
            Simulated(lambda key, _: game(key)), some_tasks(2), generations=2, state=path, options=options
        ) as groups:
            number = 0
            async for _ in groups:
                number += 1
                if number == stop:
                    groups.save(done=True)
                    break
        async with stream(Simulated(lambda key, _: game(key)), some_tasks(2), generations=2, state=path) as groups:
            assert sum([group.task == 0 async for group in groups]) == again


async def test_the_other_agents_groups_come_after_a_break() -> None:
    learned: list[Group] = []

    def learn(group: Group) -> float:
        learned.append(group)
        return 1.0

    tasks = Curriculum(some_tasks(2), limit=2, score=learn)
    async with stream(Simulated(lambda key, _: game(key)), tasks, generations=2) as groups:
        found: list[tuple[int, str]] = []
        while len(found) < 4:
            async for group in groups:
                found.append((group.task, group.agent))
                break
        assert [group async for group in groups] == []
    assert [agent for _, agent in found] == ["white", "black"] * 2
    assert [len(group.samples[0].agents) for group in learned] == [2, 2], "a curriculum learns from whole episodes"


def test_agents_that_are_missing_masked_or_wrongly_declared() -> None:
    calls = [call([1], [2]), call([5], [6])]
    only = record(calls, 0.0, episode_agents={"a": {"reward": 1.0, "calls": [0]}})
    both = record(
        calls,
        0.0,
        rollout=1,
        episode_agents={"a": {"reward": 1.0, "calls": [0]}, "b": {"reward": 2.0, "calls": [1], "mask": True}},
    )
    first, second = split_agents(Group(0, (sample_of(only), sample_of(both))))
    assert (first.agent, second.agent) == ("a", "b")
    assert [sample.mask_reason for sample in second.samples] == [MaskReason.NOTHING_SAMPLED, MaskReason.ENVIRONMENT]
    assert second.rewards == [None, 2.0]
    for agents, message in (
        ({"a": {"reward": 1.0, "calls": [0]}, "b": {"reward": 0.0, "calls": [0]}}, "the same model call"),
        ({"a": {"calls": [0]}}, "reward"),
        ([1], "episode_agents"),
    ):
        sample = sample_of(record(calls, 0.0, episode_agents=agents))
        assert sample.failure is not None
        assert message in sample.failure.message
    unknown = sample_of(record(calls, 0.0, episode_agents={"a": {"reward": 1.0, "calls": [7]}}))
    assert (unknown.mask_reason, "call 7" in unknown.mask_detail) == (MaskReason.BAD_LEDGER, True)
    ordinary = Group(0, (sample_of(record(calls, 0.0)),))
    assert split_agents(ordinary) == [ordinary]


async def test_groups_come_as_they_finish_however_late_the_first_one_is() -> None:
    policy = Simulated(delay_s=lambda key: 0.02 if key.task == 0 else 0.0)
    async with stream(policy, some_tasks(6), generations=2, options=StreamOptions(groups_in_flight=3)) as groups:
        tasks = [group.task async for group in groups]
    assert sorted(tasks) == list(range(6))
    assert tasks[0] != 0


# --- what is refused -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("score", [float("nan"), float("inf"), None])
async def test_a_score_that_is_not_a_number_ends_the_stream(score: Any) -> None:
    for options in (StreamOptions(), StreamOptions(keep=lambda _: False)):
        tasks = Curriculum(some_tasks(3), limit=8, score=lambda _: score)
        with pytest.raises(UserError, match="the score of a group must be a finite number"):
            async with stream(Simulated(), tasks, generations=2, options=options) as groups:
                _ = [group async for group in groups]


@pytest.mark.parametrize("limit", [0, -1, 2.5])
def test_a_limit_is_a_count(limit: Any) -> None:
    with pytest.raises(UserError, match="limit must be a whole number of at least 1"):
        Curriculum(some_tasks(2), limit=limit)


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("a", (some_tasks(1), float("nan")), "must be above 0 and finite"),
        ("a", (some_tasks(1), float("inf")), "must be above 0 and finite"),
        ("a", (some_tasks(1), "1"), "must be above 0 and finite"),
        ("a", some_tasks(1), "expected tasks and a weight for 'a'"),
        ("a", some_tasks(2), "the weight of 'a' must be above 0 and finite"),
        ("a", (TaskMixture({"b": (some_tasks(1), 1.0)}), 1.0), "'a' is a mixture itself"),
        ("", (some_tasks(1), 1.0), "has no name"),
    ],
)
def test_what_a_mixture_cannot_mix_is_refused(name: str, value: Any, message: str) -> None:
    with pytest.raises(UserError, match=message):
        TaskMixture({name: value})
