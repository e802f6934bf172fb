"""Samples in the form in which NeMo RL's trainers take rollouts. Pure but for making tensors.

`message_log` alternates what was sampled (`assistant`) and everything else (`user`). A rollout that must not be trained
on says so in both places that are read: `mask_sample` at the top and in `instance_config` of its result. Unless told
otherwise it carries the mean reward of those that are trained on, because NeMo RL's baselines count every row.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final, Protocol

import torch

from gymnast.tokens.items import BUNDLE
from gymnast.train.metrics import batch_metrics
from gymnast.train.sequences import mean_of, whole_samples
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
    """What is needed of a tokenizer."""

    def decode(self, ids: list[int]) -> str: ...


def scored_group(group: Group, *, masked_vote: bool = False) -> Group:
    """The group as NeMo RL counts it: those that do not vote have the mean of those who do, in every component.

    A failure has no reward and never votes; a masked rollout does with `masked_vote`.
    """
    samples = whole_samples(group.samples)
    votes = [one for one in samples if one.reward is not None and (masked_vote or one.is_trainable)]
    names = sorted({name for one in samples for name in one.components})
    neutral = mean_of([one.reward for one in votes if one.reward is not None])
    parts = {name: mean_of([one.components.get(name, 0.0) for one in votes]) for name in names}
    voting = {one.key for one in votes}
    scored = [one if one.key in voting else replace(one, reward=neutral, components=parts) for one in samples]
    return replace(group, samples=tuple(scored))


def group_results(
    group: Group, *, pad_id: int = 0, tokenizer: Decoder | None = None, masked_vote: bool = False
) -> list[JsonObject]:
    """What NeMo RL's own environment returns for each row of a group, in order."""
    scored = scored_group(group, masked_vote=masked_vote).samples
    return [result_of(one, pad_id=pad_id, tokenizer=tokenizer) for one in scored]


def result_of(sample: Sample, *, pad_id: int = 0, tokenizer: Decoder | None = None) -> JsonObject:
    """One row's result: message_log, input_message_log and full_result."""
    if sample.segments:
        # of a rollout that forked the trainer sees the longest part, and trains on none
        segment = max(sample.segments, key=lambda one: one.trained)
        log = message_log(segment)
    else:
        log = _placeholder(pad_id)
    return {
        "message_log": log,
        "input_message_log": [one for one in log if one["role"] == "user"][:1],
        "full_result": _full_result(sample, log, tokenizer),
    }


def message_log(segment: Segment) -> list[JsonObject]:
    """The turns of a segment. Their ids, put together, are the segment's."""
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
    """The columns of a group's batch."""
    full = [result["full_result"] for result in results]
    lengths = [sum(len(one["token_ids"]) for one in result["message_log"]) for result in results]
    parts: list[dict[str, float]] = [one.get(COMPONENTS) or {} for one in full]
    columns: JsonObject = {
        AGENT_REF: [{"name": sample.agent} for sample in group.samples],
        "message_log": [result["message_log"] for result in results],
        "length": torch.tensor(lengths),
        "loss_multiplier": torch.tensor([0.0 if one[MASK] else 1.0 for one in full]),
        "total_reward": torch.tensor([float(one["reward"]) for one in full]),
        "truncated": torch.tensor([
            sample.is_truncated or (max_length is not None and length >= max_length)
            for sample, length in zip(group.samples, lengths, strict=True)
        ]),
        MASK: torch.tensor([bool(one[MASK]) for one in full]),
    }  # fmt: skip
    names = sorted({name for one in parts for name in one})
    return columns | {f"reward/{name}": torch.tensor([one.get(name, 0.0) for one in parts]) for name in names}


def group_batch(group: Group, results: Sequence[JsonObject], *, max_length: int | None = None) -> JsonObject:
    """A group as the trainer's step takes it: batch, metrics, and whose task it is."""
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
        # said, because a list without numbers would be one of floats
        "token_ids": torch.tensor(ids, dtype=torch.int64),
        "generation_logprobs": torch.tensor(logprobs, dtype=torch.float32),
        "is_invalid_tool_call": False,
        "has_malformed_thinking": False,
    }


def _placeholder(pad_id: int) -> list[JsonObject]:
    """Rows cannot be empty. Nothing of this is trained on: its sample is masked."""
    return [_user([pad_id]), _assistant([pad_id], [0.0])]


def _full_result(sample: Sample, log: Sequence[JsonObject], tokenizer: Decoder | None) -> JsonObject:
    record = sample.record or {}
    record.pop(LEDGER, None)
    for item in (record.get("response") or {}).get("output") or ():
        for name in BUNDLE:
            item.pop(name, None)
    masked = not sample.is_trainable
    instance = record.get(INSTANCE) if isinstance(record.get(INSTANCE), dict) else {}
    found = record | {
        "reward": sample.reward if sample.reward is not None else 0.0,
        "gymnast_reward": record.get("reward"),
        MASK: masked,
        INSTANCE: {**(instance or {}), MASK: masked},
        "mask_reason": sample.mask_reason.value if sample.mask_reason is not None else None,
        "failure_kind": sample.failure.kind if sample.failure is not None else None,
    }
    if sample.components:
        found[COMPONENTS] = sample.components
    if tokenizer is not None:
        found["turns"] = [{"role": one["role"], "text": tokenizer.decode(one["token_ids"].tolist())} for one in log]
    return found
