"""Converts samples into the form that NeMo RL's trainers expect. Pure except for making tensors.

`message_log` alternates sampled tokens (`assistant`) and everything else (`user`). A masked rollout is marked in both
fields that trainers read: `mask_sample` at the top level and in `instance_config` of its result. By default it carries
the mean reward of the trained rollouts, because NeMo RL's baselines count every row.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final, Protocol

import torch

from gymnast.tokens.items import TRAINING_FIELDS
from gymnast.train.metrics import batch_metrics
from gymnast.train.sequences import mask_forked, mean_of
from gymnast.types.task import AGENT_REF
from gymnast.types.tokens import LEDGER

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gymnast.train.samples import Group, Sample, Segment
    from gymnast.types.json import JsonObject

ROW_INDEX: Final = "_rowidx"
MASK: Final = "mask_sample"
INSTANCE: Final = "instance_config"
COMPONENTS: Final = "reward_components"


class Decoder(Protocol):
    """The part of a tokenizer that is used here."""

    def decode(self, ids: list[int]) -> str: ...


def scored_group(group: Group, *, masked_vote: bool = False) -> Group:
    """The group as NeMo RL counts it: rollouts that do not vote get the mean of those that do, in every component.

    A failed rollout has no reward and never votes; a masked one votes if `masked_vote` is set.
    """
    samples = mask_forked(group.samples)
    votes = [sample for sample in samples if sample.reward is not None and (masked_vote or sample.is_trainable)]
    names = sorted({name for sample in samples for name in sample.components})
    mean = mean_of([sample.reward for sample in votes if sample.reward is not None])
    components = {name: mean_of([sample.components.get(name, 0.0) for sample in votes]) for name in names}
    voting = {sample.key for sample in votes}
    scored = [
        sample if sample.key in voting else replace(sample, reward=mean, components=components) for sample in samples
    ]
    return replace(group, samples=tuple(scored))


def group_results(
    group: Group, *, pad_id: int = 0, tokenizer: Decoder | None = None, masked_vote: bool = False
) -> list[JsonObject]:
    """The results of a group's rows, in order, as NeMo RL's own environment returns them."""
    scored = scored_group(group, masked_vote=masked_vote).samples
    return [result_of(sample, pad_id=pad_id, tokenizer=tokenizer) for sample in scored]


def result_of(sample: Sample, *, pad_id: int = 0, tokenizer: Decoder | None = None) -> JsonObject:
    """The result of a row: message_log, input_message_log and full_result."""
    if sample.segments:
        # the trainer sees the longest segment of a forked rollout, and trains on none
        segment = max(sample.segments, key=lambda part: part.trained)
        log = message_log(segment)
    else:
        log = _placeholder(pad_id)
    return {
        "message_log": log,
        "input_message_log": [message for message in log if message["role"] == "user"][:1],
        "full_result": _full_result(sample, log, tokenizer),
    }


def message_log(segment: Segment) -> list[JsonObject]:
    """The messages of a segment. Their ids, concatenated, are the segment's."""
    log: list[JsonObject] = []
    at = 0
    for start, end in segment.turns:
        log.append(_user(segment.ids[at:start].tolist()))
        log.append(_assistant(segment.ids[start:end].tolist(), segment.logprobs[start:end].tolist()))
        at = end
    if at < len(segment.ids):
        log.append(_user(segment.ids[at:].tolist()))
    return log


def final_batch(group: Group, results: Sequence[JsonObject], *, max_length: int | None = None) -> JsonObject:
    """The batch columns of a group."""
    full = [result["full_result"] for result in results]
    lengths = [sum(len(message["token_ids"]) for message in result["message_log"]) for result in results]
    components: list[dict[str, float]] = [result.get(COMPONENTS) or {} for result in full]
    columns: JsonObject = {
        AGENT_REF: [{"name": sample.agent} for sample in group.samples],
        "message_log": [result["message_log"] for result in results],
        "length": torch.tensor(lengths),
        "loss_multiplier": torch.tensor([0.0 if result[MASK] else 1.0 for result in full]),
        "total_reward": torch.tensor([float(result["reward"]) for result in full]),
        "truncated": torch.tensor([
            sample.is_truncated or (max_length is not None and length >= max_length)
            for sample, length in zip(group.samples, lengths, strict=True)
        ]),
        MASK: torch.tensor([bool(result[MASK]) for result in full]),
    }  # fmt: skip
    names = sorted({name for rewards in components for name in rewards})
    return columns | {
        f"reward/{name}": torch.tensor([rewards.get(name, 0.0) for rewards in components]) for name in names
    }


def group_batch(group: Group, results: Sequence[JsonObject], *, max_length: int | None = None) -> JsonObject:
    """A group as a training step expects it: batch, metrics and task index."""
    return {
        "input_ids": [result["input_message_log"][0]["token_ids"] for result in results],
        "final_batch": final_batch(group, results, max_length=max_length),
        "rollout_metrics": batch_metrics(group.samples),
        "task_index": group.task,
    }


def _user(ids: list[int]) -> JsonObject:
    return {"role": "user", "content": "", "token_ids": torch.tensor(ids, dtype=torch.int64)}


def _assistant(ids: list[int], logprobs: list[float]) -> JsonObject:
    return {
        "role": "assistant",
        "content": "",
        # explicit dtype: an empty list would become floats
        "token_ids": torch.tensor(ids, dtype=torch.int64),
        "generation_logprobs": torch.tensor(logprobs, dtype=torch.float32),
        "is_invalid_tool_call": False,
        "has_malformed_thinking": False,
    }


def _placeholder(pad_id: int) -> list[JsonObject]:
    """Rows cannot be empty. This one is never trained on, because its sample is masked."""
    return [_user([pad_id]), _assistant([pad_id], [0.0])]


def _full_result(sample: Sample, log: Sequence[JsonObject], tokenizer: Decoder | None) -> JsonObject:
    record = sample.record or {}
    record.pop(LEDGER, None)
    for item in (record.get("response") or {}).get("output") or ():
        for name in TRAINING_FIELDS:
            item.pop(name, None)
    masked = not sample.is_trainable
    instance = record.get(INSTANCE) if isinstance(record.get(INSTANCE), dict) else {}
    result = record | {
        "reward": sample.reward if sample.reward is not None else 0.0,
        "gymnast_reward": record.get("reward"),
        MASK: masked,
        INSTANCE: {**(instance or {}), MASK: masked},
        "mask_reason": sample.mask_reason.value if sample.mask_reason is not None else None,
        "failure_kind": sample.failure.kind if sample.failure is not None else None,
    }
    if sample.components:
        result[COMPONENTS] = sample.components
    if tokenizer is not None:
        result["turns"] = [
            {"role": message["role"], "text": tokenizer.decode(message["token_ids"].tolist())} for message in log
        ]
    return result
