"""Several trained policies: merged ledgers, groups by policy, and weights that grow old separately."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gymnast.errors import UserError
from gymnast.tokens.export import pack_ledger, read_ledger
from gymnast.tokens.merge import first_call_of, merge_ledgers, renumber_calls
from gymnast.train import Group, MaskReason, PolicyVersions, StreamOptions, WhenStale, sample_of, split_agents, stream
from gymnast.train.sequences import token_rows
from gymnast.types.task import RolloutKey
from gymnast.types.tokens import LEDGER, TokenLedger
from tests.helpers.train_records import Simulated, call, failure, record, some_tasks

WHITE, BLACK = "white_model", "black_model"


def game(key: RolloutKey, *, swapped: bool = False, white: str = "w0", black: str = "b0") -> bytes:
    """A move of each policy; white has another one."""
    calls = [
        call([1, 2], [3, 4], version=white, policy=WHITE),
        call([5], [6], before=4, parent=0, version=white, policy=WHITE),
        call([7, 8], [9], version=black, policy=BLACK),
    ]
    first, second = {"reward": 1.0, "calls": [0, 1]}, {"reward": 0.0, "calls": [2]}
    agents = {"first": second, "second": first} if swapped else {"first": first, "second": second}
    return record(calls, 0.5, task=key.task, rollout=key.rollout, episode_agents=agents)


def ledger(*calls: Any, model: str) -> dict[str, Any]:
    return pack_ledger(TokenLedger(list(calls), model))


def test_ledgers_of_several_models_become_one() -> None:
    white = ledger(call([1], [2]), call([3], [4], before=2, parent=0), model="qwen")
    black = ledger(call([5], [6]), call([7], [8], before=2, parent=0), model="llama")
    second = first_call_of(1)
    result: dict[str, Any] = {
        "response": {"output": [{"token_call": 1}, {"type": "message"}, {"token_call": second}]},
        "others": [{"turn": {"output": [{"token_call": second + 1}, {"token_call": "kept"}]}}],
        "episode_agents": {"a": {"calls": [0, 1]}, "b": {"calls": [second, second + 1]}, "odd": {"calls": "x"}},
    }
    ledgers = {WHITE: white, BLACK: black}
    renumber_calls(result, {WHITE: 0, BLACK: 1}, ledgers)
    assert [item.get("token_call") for item in result["response"]["output"]] == [1, None, 2]
    assert [item["token_call"] for item in result["others"][0]["turn"]["output"]] == [3, "kept"]
    assert [result["episode_agents"][name]["calls"] for name in ("a", "b")] == [[0, 1], [2, 3]]
    merged = read_ledger({LEDGER: merge_ledgers(ledgers)})
    assert merged is not None
    assert [(one.parent, one.policy) for one in merged.calls] == [(None, WHITE), (0, WHITE), (None, BLACK), (2, BLACK)]
    assert merged.model == "qwen, llama"


def test_numbers_of_a_model_that_alone_was_called() -> None:
    result: dict[str, Any] = {"response": {"output": [{"token_call": first_call_of(2) + 1}]}}
    renumber_calls(result, {"a": 0, "b": 1, "c": 2}, {"c": ledger(call([1], [2]), call([3], [4]), model="m")})
    assert result["response"]["output"][0]["token_call"] == 1


def test_a_number_of_a_model_that_kept_nothing_is_unknown_afterwards() -> None:
    result: dict[str, Any] = {"episode_agents": {"a": {"calls": [first_call_of(1)]}}}
    renumber_calls(result, {"a": 0, "b": 1}, {"a": ledger(call([1], [2]), model="m")})
    assert result["episode_agents"]["a"]["calls"] == [1]


def test_a_group_for_each_policy_of_an_agent() -> None:
    samples = tuple(sample_of(game(RolloutKey(0, index), swapped=bool(index))) for index in range(2))
    parts = split_agents(Group(0, samples))
    assert [(part.agent, part.policy) for part in parts] == [
        ("first", WHITE),
        ("first", BLACK),
        ("second", BLACK),
        ("second", WHITE),
    ]
    assert [part.rewards for part in parts] == [[1.0, None], [None, 0.0], [0.0, None], [None, 1.0]]
    assert all(sample.policies in {(part.policy,), ()} for part in parts for sample in part.samples)
    failed = sample_of(failure("model_error", rollout=2))
    parts = split_agents(Group(0, (samples[0], failed)))
    assert [part.trainable for part in parts] == [[True, False]] * 2


def test_agents_of_several_policies_and_policies_without_agents_are_masked() -> None:
    calls = [call([1], [2], policy=WHITE), call([3], [4], policy=BLACK)]
    mixed = sample_of(record(calls, 1.0, episode_agents={"a": {"reward": 1.0, "calls": [0, 1]}}))
    assert (mixed.mask_reason, f"{BLACK}, {WHITE}" in mixed.mask_detail) == (MaskReason.BAD_LEDGER, True)
    unnamed = sample_of(record(calls, 1.0))
    assert (unnamed.mask_reason, "several models" in unnamed.mask_detail) == (MaskReason.BAD_LEDGER, True)


def test_a_trainer_of_one_policy_refuses_rollouts_of_several() -> None:
    whole = sample_of(game(RolloutKey(3, 1)))
    with pytest.raises(UserError, match="rollout 3:1 was sampled by several trained policies"):
        list(token_rows([whole], [0], 0))
    for part in split_agents(Group(0, (whole,))):
        assert len(list(token_rows(part.samples, [0], 0))) == 1


async def test_each_policy_grows_old_by_its_own_updates() -> None:
    versions = {WHITE: PolicyVersions(["w0"]), BLACK: PolicyVersions(["b0"])}
    for label in ("b1", "b2"):
        versions[BLACK].advance(label)
    options = StreamOptions(max_age=1, when_stale=WhenStale.MASK)
    policy = Simulated(lambda key, _: game(key))
    async with stream(policy, some_tasks(1), generations=2, options=options, versions=versions) as groups:
        white, black = [group async for group in groups]
        figures = groups.figures()
    assert (white.policy, white.trainable) == (WHITE, [True, True])
    assert [sample.mask_reason for sample in black.samples] == [MaskReason.STALE] * 2
    assert figures["stream/weight_updates"] == 4
    assert (figures[f"policy/{WHITE}/weight_updates"], figures[f"policy/{BLACK}/weight_updates"]) == (1, 3)
    assert figures[f"policy/{BLACK}/masked/stale"] == 2


async def test_a_stream_that_does_not_know_a_policy_says_which() -> None:
    options = StreamOptions(max_age=1)
    policy = Simulated(lambda key, _: game(key))
    async with stream(policy, some_tasks(1), generations=1, options=options, versions={WHITE: PolicyVersions()}) as one:
        with pytest.raises(UserError, match=f"model server '{BLACK}'"):
            _ = [group async for group in one]


async def test_the_labels_of_all_policies_go_on_after_a_restart(tmp_path: Path) -> None:
    path = tmp_path / "state.json"
    versions = {WHITE: PolicyVersions(["w0", "w1"]), BLACK: PolicyVersions(["b0"])}
    policy = Simulated(lambda key, _: game(key))
    async with stream(policy, some_tasks(1), generations=1, versions=versions, state=path) as groups:
        _ = [group async for group in groups]
    again = {WHITE: PolicyVersions(), BLACK: PolicyVersions(["b7"])}
    async with stream(policy, some_tasks(2), generations=1, versions=again, state=path) as groups:
        assert [group.policy async for group in groups] == [WHITE, BLACK]
    assert (again[WHITE].labels, again[BLACK].labels) == (["w0", "w1"], ["b7"])


@pytest.mark.parametrize(
    ("opponent", "response", "mask"),
    [
        ({"reward": 0.0, "calls": [1]}, [3, 4, 5, 6, 7, 8], [1, 1, 0, 1, 0, 1]),
        ({"reward": 0.0, "calls": [1], "mask": True}, [3, 4, 5, 6, 7, 8], [1, 1, 0, 0, 0, 1]),
        (None, [3, 4, 5, 6, 7, 8], [1, 1, 0, 0, 0, 1]),
        ({"reward": 0.0, "calls": [1, 2], "mask": True}, [3, 4], [1, 1]),
    ],
)
def test_trainers_of_one_policy_train_on_no_agent_that_is_masked_or_not_named(
    opponent: dict[str, Any] | None, response: list[int], mask: list[int]
) -> None:
    """They trained on the tokens of a masked opponent."""
    own = [0, 2] if opponent is None or opponent["calls"] == [1] else [0]
    agents = {"own": {"reward": 1.0, "calls": own}} | ({"opponent": opponent} if opponent else {})
    calls = [
        call([1, 2], [3, 4]),
        call([5], [6], before=4, parent=0),
        call([7], [8], before=6, parent=1),
    ]
    (row,) = token_rows([sample_of(record(calls, 0.5, episode_agents=agents))], [0], 0)
    assert (row.response.tolist(), row.mask.tolist(), row.score) == (response, mask, 0.5)
    assert (row.logprobs != 0).tolist() == [bool(value) for value in mask]
    assert row.sample.is_trainable


def test_an_episode_in_which_no_agent_is_trained_is_masked() -> None:
    agents = {"opponent": {"reward": 0.0, "calls": [0], "mask": True}}
    (row,) = token_rows([sample_of(record([call([1], [2])], 0.5, episode_agents=agents))], [0], 0)
    assert (row.mask.tolist(), row.sample.mask_reason) == ([0], MaskReason.ENVIRONMENT)
