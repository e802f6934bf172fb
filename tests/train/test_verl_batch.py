"""Batches in verl: its own advantages and loss on rollouts of several turns, and what must not move a weight."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from transformers import LlamaForCausalLM
from verl import DataProto
from verl.trainer.ppo.core_algos import (
    compute_grpo_outcome_advantage,
    compute_policy_loss_vanilla,
    get_adv_estimator_fn,
)

from gymnast.tokens.expert_arrays import pack_experts
from gymnast.train import Batch, MaskReason, group_advantages, sample_of, verl_advantage
from gymnast.train.samples import Sample
from gymnast.train.sequences import group_indexes, rollout_rows, token_rows
from gymnast.train.verl_batch import REASON, data_proto, log_figures
from gymnast.train.verl_queue import fields_of
from gymnast.types.task import RolloutKey
from tests.helpers.train_records import call, failure, good, record

PAD = 0
TENSORS = {
    "prompts", "responses", "response_mask", "input_ids", "attention_mask", "position_ids", "rollout_log_probs",
    "rm_scores",
}  # fmt: skip


def proto_of(batch: Batch, **options: Any) -> DataProto:
    groups = group_indexes(batch)
    proto = data_proto(list(batch.samples), groups, pad_id=PAD, columns={"uid": groups}, **options)
    assert len(proto) == len(batch)
    return proto


def grpo(proto: DataProto) -> torch.Tensor:
    found, _ = compute_grpo_outcome_advantage(
        proto.batch["rm_scores"].clone(), proto.batch["response_mask"], proto.non_tensor_batch["uid"]
    )
    return found


def loss_of(proto: DataProto, found: torch.Tensor, logprobs: torch.Tensor) -> torch.Tensor:
    config = SimpleNamespace(
        clip_ratio=0.2, clip_ratio_low=None, clip_ratio_high=None, global_batch_info={}, get=lambda _, value: value
    )
    loss, _ = compute_policy_loss_vanilla(
        proto.batch["rollout_log_probs"], logprobs, found, proto.batch["response_mask"], config=config
    )
    return loss


def model_logprobs(model: Any, proto: DataProto) -> torch.Tensor:
    """Of the response tokens, as verl's workers compute them."""
    ids, length = proto.batch["input_ids"], proto.batch["responses"].shape[1]
    logits = model(
        input_ids=ids, attention_mask=proto.batch["attention_mask"], position_ids=proto.batch["position_ids"]
    ).logits
    found = torch.log_softmax(logits[:, :-1], -1).gather(-1, ids[:, 1:, None])[..., 0]
    return found[:, -length:]


@pytest.fixture(scope="session")
def model(policy_folder: Path) -> Any:
    return LlamaForCausalLM.from_pretrained(policy_folder, dtype="float32").eval()


def sample(*tokens: int, reward: float = 1.0, prompt: int = 3, key: tuple[int, int] = (0, 0)) -> Sample:
    line = record([call(range(10, 10 + prompt), tokens)], reward, task=key[0], rollout=key[1])
    return sample_of(line)


def test_real_rollouts_of_several_turns_are_whole_in_a_data_proto(real_batch: Batch) -> None:
    proto = proto_of(real_batch)
    assert set(proto.batch.keys()) == TENSORS
    assert max(one.turns for one in real_batch.samples) > 1, "these must be conversations"
    for place, one in enumerate(real_batch.samples):
        row = proto[place].batch
        attended = row["attention_mask"].bool()
        segment = one.segments[0]
        assert row["input_ids"][attended].tolist() == segment.ids.tolist()
        assert row["position_ids"][attended].tolist() == list(range(len(segment.ids)))
        width = row["prompts"].shape[0]
        assert int(attended[:width].sum()) == segment.prompt_length
        answered = attended[width:]
        assert row["response_mask"][answered].tolist() == segment.mask[segment.prompt_length :].tolist()
        assert not row["response_mask"][~answered].any()
        assert int(row["response_mask"].sum()) == segment.trained
        assert row["rollout_log_probs"][answered].tolist() == pytest.approx(
            segment.logprobs[segment.prompt_length :].tolist()
        )
        assert row["rm_scores"].sum().item() == pytest.approx(one.reward)
        assert row["rm_scores"].nonzero().flatten().tolist() in ([], [int(answered.sum()) - 1])
    assert proto.non_tensor_batch["__num_turns__"].tolist() == [one.turns for one in real_batch.samples]
    assert set(proto.non_tensor_batch["multi_modal_inputs"][0]) == set()


def test_verl_gives_the_advantages_that_we_give(real_batch: Batch) -> None:
    proto = proto_of(real_batch)
    advantages = grpo(proto)
    ours = [value for group in real_batch.groups for value in group_advantages(group)]
    assert any(ours), "some group must have rewards that differ"
    for place, value in enumerate(ours):
        mask = proto.batch["response_mask"][place].bool()
        assert advantages[place][mask].tolist() == pytest.approx([value or 0.0] * int(mask.sum()), abs=1e-4)
        assert not advantages[place][~mask].any()


def test_importance_ratios_are_one_and_the_loss_has_a_gradient(real_batch: Batch, model: Any) -> None:
    proto = proto_of(real_batch)
    logprobs = model_logprobs(model, proto)
    mask = proto.batch["response_mask"].bool()
    ratio = torch.exp(logprobs - proto.batch["rollout_log_probs"])[mask]
    assert float((ratio - 1).abs().max()) < 1e-3
    model.zero_grad()
    loss_of(proto, grpo(proto), logprobs).backward()
    assert any(float(one.grad.abs().max()) > 0 for one in model.parameters() if one.grad is not None)


def test_masked_rows_have_exactly_no_loss(real_batch: Batch, model: Any) -> None:
    """All of them masked: no advantage, and not one weight has a gradient other than 0."""
    masked = [
        replace(group, samples=tuple(one.masked(MaskReason.ENVIRONMENT) for one in group.samples))
        for group in real_batch.groups
    ]
    proto = proto_of(Batch(tuple(masked)))
    logprobs = model_logprobs(model, proto).requires_grad_()
    advantages = grpo(proto)
    assert not advantages.any()
    assert not proto.batch["response_mask"].any()
    model.zero_grad()
    total = (logprobs * advantages * proto.batch["response_mask"]).sum()
    total.backward()
    assert all(not one.grad.any() for one in model.parameters() if one.grad is not None)
    assert set(proto.non_tensor_batch[REASON]) == {"environment"}


def test_a_masked_row_gets_no_gradient_next_to_others(real_batch: Batch) -> None:
    samples = list(real_batch.samples)
    samples[1] = samples[1].masked(MaskReason.BAD_LOGPROBS, "call 0")
    proto = data_proto(samples, group_indexes(real_batch), pad_id=PAD, columns={"uid": group_indexes(real_batch)})
    logprobs = proto.batch["rollout_log_probs"].clone().requires_grad_()
    loss_of(proto, grpo(proto), logprobs).backward()
    assert logprobs.grad is not None
    assert not logprobs.grad[1].any()
    assert proto.non_tensor_batch[REASON].tolist()[:3] == ["", "bad_logprobs", ""]


def test_a_failed_row_is_a_padding_token_that_nothing_is_learned_from() -> None:
    lost = sample_of(failure("instance_died", task=0, rollout=1), failed=True)
    samples = [sample(1, 2), lost, sample(3, 4, reward=0.0)]
    proto = data_proto(samples, [0, 0, 0], pad_id=PAD, columns={"uid": [0, 0, 0]})
    assert proto.batch["response_mask"].sum(dim=1).tolist() == [2, 0, 2]
    assert proto.batch["attention_mask"][1].sum().item() == 2, "no engine of verl takes an empty row"
    assert proto.non_tensor_batch["gymnast_reward"].tolist() == [1.0, None, 0.0]
    advantages = grpo(proto)
    assert not advantages[1].any()
    assert advantages[0].max().item() > 0 > advantages[2].min().item(), "it did not shift its siblings' baseline"
    assert proto.batch["rm_scores"][1].sum().item() == 0.5


def test_the_estimator_without_masked_rows_has_the_reference_values() -> None:
    verl_advantage.register()
    verl_advantage.register()
    samples = [sample(1, reward=reward) for reward in (1.0, 1.0, 0.0, 0.0)]
    samples[1] = samples[1].masked(MaskReason.ENVIRONMENT)
    proto = data_proto(samples, "aaaa", pad_id=PAD, columns={"uid": list("aaaa")})
    arguments = {
        "token_level_rewards": proto.batch["rm_scores"],
        "response_mask": proto.batch["response_mask"],
        "index": proto.non_tensor_batch["uid"],
    }
    estimate = get_adv_estimator_fn(verl_advantage.NAME)
    found, _ = estimate(**arguments, config={"norm_adv_by_std_in_grpo": True})
    assert found.sum(dim=1).tolist() == pytest.approx([1.1547, 0.0, -0.57735, -0.57735], abs=1e-4)
    found, _ = estimate(**arguments, config={"norm_adv_by_std_in_grpo": False})
    assert found.sum(dim=1).tolist() == pytest.approx([2 / 3, 0.0, -1 / 3, -1 / 3])


def test_a_long_prompt_elsewhere_does_not_cut_other_rows() -> None:
    """The verl recipe for NeMo Gym cut responses to what the longest prompt of the batch left of the context."""
    samples = [sample(*range(500), prompt=2), sample(1, 2, prompt=4000, key=(1, 0))]
    proto = data_proto(samples, [0, 1], pad_id=PAD)
    assert proto.batch["response_mask"].sum(dim=1).tolist() == [500, 2]
    attended = proto.batch["attention_mask"][0].bool()
    assert proto.batch["input_ids"][0][attended].tolist() == [10, 11, *range(500)]


def test_an_empty_result_puts_no_token_into_the_loss() -> None:
    """The recipe made one up, with mask 1 and logprob 0, and GRPO gave it an advantage of -0.7071."""
    nothing = sample_of(record([], 0.0))
    assert nothing.mask_reason in {MaskReason.NO_TOKENS, MaskReason.NOTHING_SAMPLED}
    proto = data_proto([nothing, sample(5, 6)], [0, 0], pad_id=PAD, columns={"uid": [0, 0]})
    assert proto.batch["response_mask"][0].sum().item() == 0
    advantages = grpo(proto)
    assert not advantages[0].any()
    assert not advantages[1].any(), "alone in its group it has nothing to be better than"


def test_a_rollout_that_forked_is_masked_and_counted_here() -> None:
    calls = [call([1, 2], [3, 4]), call([7, 8, 9], [5, 6])]
    forked = sample_of(record(calls, 1.0))
    assert len(forked.segments) == 2
    proto = data_proto([forked, sample(1, reward=0.0)], [0, 0], pad_id=PAD)
    assert proto.non_tensor_batch[REASON].tolist() == ["forked", ""]
    assert proto.batch["response_mask"][0].sum().item() == 0
    assert len(list(token_rows([forked], [0], PAD))) == 2, "a trainer that can gets both"
    assert rollout_rows([forked], [0], PAD)[0].score == 0.0, "alone it has no group to be compared with"


def test_columns_of_lists_and_figures_of_the_log(real_batch: Batch) -> None:
    proto = data_proto([sample(1), sample(2)], [0, 1], pad_id=PAD, columns={"raw_prompt": [[1, 2], [3, 4]]})
    assert proto.non_tensor_batch["raw_prompt"].shape == (2,)
    figures = log_figures(real_batch, ended_at=100.0, step=5)
    assert figures["gymnast/samples"] == len(real_batch)
    assert figures["gymnast/turns_per_sample/mean"] > 1


def test_router_replay_gets_the_experts_of_each_token_where_its_id_is() -> None:
    rows = np.arange(1, 19).reshape(3, 3, 2)
    known = sample_of(record([call([1, 2], [7, 8], experts=pack_experts(rows))]))
    failed = sample_of(failure("agent_error"), failed=True)
    proto = data_proto([known, failed], [0, 0], pad_id=PAD)
    experts = proto.batch["routed_experts"]
    assert experts.shape == (2, proto.batch["input_ids"].shape[1], 3, 2)
    attended = proto.batch["attention_mask"][0].bool()
    assert experts[0][attended].tolist() == [*rows.tolist(), [[0, 0]] * 3]
    assert not experts[1].any()


def test_verls_own_entries_have_them_as_well() -> None:
    rows = np.arange(1, 19).reshape(3, 3, 2)
    known = sample_of(record([call([1, 2], [7, 8], experts=pack_experts(rows))]))
    [row] = token_rows([known], [0], PAD)
    entry = fields_of(row, {}, {}, row.experts)
    assert entry["routed_experts"].shape == (len(entry["input_ids"]), 3, 2)
    assert entry["routed_experts"][:3].tolist() == rows.tolist()


def test_weights_of_rows_are_reported_where_the_engine_counts_them() -> None:
    versions = ("7", "v0", "3-4")
    samples = [sample_of(good(RolloutKey(0, place), version=version)) for place, version in enumerate(versions)]
    proto = data_proto(samples, [0, 0, 0], pad_id=PAD)
    assert proto.non_tensor_batch["min_global_steps"].tolist() == [7, None, 3]
    assert proto.non_tensor_batch["max_global_steps"].tolist() == [7, None, 4]
