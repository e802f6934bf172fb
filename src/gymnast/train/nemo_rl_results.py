"""Converts samples into the form that NeMo RL's trainers expect. Pure except for making tensors.

`message_log` alternates sampled tokens (`assistant`) and everything else (`user`). A masked rollout is marked in both
fields that trainers read: `mask_sample` at the top level and in `instance_config` of its result. By default it carries
the mean reward of the trained rollouts, because NeMo RL's baselines count every row.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, Protocol

import numpy as np
import torch

from gymnast.train.metrics import batch_metrics
from gymnast.train.sequences import mask_forked, mean_of, require_no_media
from gymnast.types.items import ROUTED_EXPERTS, TRAINING_FIELDS
from gymnast.types.responses import output_items
from gymnast.types.task import AGENT_REF, INSTANCE, MASK
from gymnast.types.tokens import LEDGER, TOKEN_CALL

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from gymnast.train.samples import Group, Sample, Segment
    from gymnast.types.json import JsonObject

ROW_INDEX: Final = "_rowidx"
COMPONENTS: Final = "reward_components"


@dataclass(frozen=True, slots=True)
class TurnMarks:
    """Texts that mark a turn of the policy, for the penalties of NeMo RL."""

    tool_call_patterns: tuple[str, ...] = ("<tool_call>", "</tool_call>", "<function_call>", "</function_call>")
    """In the text of a turn: a tool call that could not be parsed and was never made."""
    thinking_tags: tuple[str, ...] = ("<think>", "</think>")
    """In an answer, or more than once in reasoning: thinking that was not closed or not opened properly."""

    @classmethod
    def from_config(cls, cfg: Mapping[str, Any]) -> TurnMarks:
        """The marks that NeMo RL's configuration names; where it names none, the usual ones."""
        patterns, tags = cfg.get("invalid_tool_call_patterns"), cfg.get("thinking_tags")
        return cls(tuple(patterns or cls().tool_call_patterns), tuple(tags or cls().thinking_tags))

    def find(self, item: Mapping[str, Any]) -> tuple[bool, bool]:
        """Whether the last item of a turn is an invalid tool call, and whether its thinking is malformed."""
        text, allowed = _first_text(item.get("content")), 0
        if text is None and item.get("type") == "reasoning":
            text, allowed = _first_text(item.get("summary")), 1
        if text is None:
            return False, False
        return (
            any(pattern in text for pattern in self.tool_call_patterns),
            any(text.count(tag) > allowed for tag in self.thinking_tags),
        )


def _first_text(parts: Any) -> str | None:
    part = parts[0] if isinstance(parts, list) and parts else None
    text = part.get("text") if isinstance(part, dict) else None
    return text if isinstance(text, str) else None


class Decoder(Protocol):
    """The part of a tokenizer that is used here."""

    def decode(self, ids: list[int]) -> str: ...


def scored_group(group: Group, *, masked_vote: bool = False) -> Group:
    """The group as NeMo RL counts it: rollouts that do not vote get the mean of those that do, in every component.

    A failed rollout has no reward and never votes; a masked one votes if `masked_vote` is set, or if otherwise none
    would, as in validation, where a group has one rollout.
    """
    require_no_media(group.samples)
    samples = mask_forked(group.samples)
    rewarded = [sample for sample in samples if sample.reward is not None]
    trained = [sample for sample in rewarded if sample.is_trainable]
    votes = rewarded if masked_vote or not trained else trained
    names = sorted({name for sample in samples for name in sample.components})
    mean = mean_of([sample.reward for sample in votes if sample.reward is not None])
    components = {name: mean_of([sample.components.get(name, 0.0) for sample in votes]) for name in names}
    voting = {sample.key for sample in votes}
    scored = [
        sample if sample.key in voting else replace(sample, reward=mean, components=components) for sample in samples
    ]
    return replace(group, samples=tuple(scored))


def group_results(
    group: Group,
    *,
    pad_id: int = 0,
    tokenizer: Decoder | None = None,
    masked_vote: bool = False,
    marks: TurnMarks | None = None,
) -> list[JsonObject]:
    """The results of a group's rows, in order, as NeMo RL's own environment returns them."""
    scored = scored_group(group, masked_vote=masked_vote).samples
    return [result_of(sample, pad_id=pad_id, tokenizer=tokenizer, marks=marks) for sample in scored]


def result_of(
    sample: Sample, *, pad_id: int = 0, tokenizer: Decoder | None = None, marks: TurnMarks | None = None
) -> JsonObject:
    """The result of a row: message_log, input_message_log and full_result."""
    record = sample.record or {}
    items = _last_items(record)
    flags = {number: (marks or TurnMarks()).find(item) for number, item in items.items()}
    if sample.segments:
        # the trainer sees the longest segment of a forked rollout, and trains on none
        segment = max(sample.segments, key=lambda part: part.trained)
        log = message_log(segment, flags)
    else:
        log = _placeholder(pad_id)
    if tokenizer is not None:
        _add_texts(items, sample.segments, tokenizer)
    return {
        "message_log": log,
        "input_message_log": [message for message in log if message["role"] == "user"][:1],
        "full_result": _full_result(sample, record),
    }


def message_log(segment: Segment, flags: Mapping[int, tuple[bool, bool]] | None = None) -> list[JsonObject]:
    """The messages of a segment. Their ids, concatenated, are the segment's. `flags` by number of the model call."""
    log: list[JsonObject] = []
    at = 0
    for index, (start, end) in enumerate(segment.turns):
        number = segment.calls[index] if segment.calls else index
        found = (flags or {}).get(number, (False, False))
        log.append(_user(segment.ids[at:start].tolist()))
        log.append(_assistant(segment.ids[start:end].tolist(), segment.logprobs[start:end].tolist(), found))
        at = end
    if at < len(segment.ids):
        log.append(_user(segment.ids[at:].tolist()))
    _add_experts(log, segment)
    return log


def _add_experts(log: Sequence[JsonObject], segment: Segment) -> None:
    """Give each message the experts of its tokens, if the inference server reports them."""
    if segment.expert_rows is None:
        return
    # One type for all rollouts: how many bytes its numbers need differs between them.
    experts = segment.expert_rows.astype(np.int32 if segment.expert_rows.itemsize > 2 else np.int16)
    at = 0
    for message in log:
        end = at + len(message["token_ids"])
        message[ROUTED_EXPERTS] = torch.from_numpy(experts[at:end])
        at = end


def final_batch(group: Group, results: Sequence[JsonObject], *, max_length: int | None = None) -> JsonObject:
    """The batch columns of a group."""
    full = [result["full_result"] for result in results]
    totals = [sum(len(message["token_ids"]) for message in result["message_log"]) for result in results]
    lengths = [len(result["input_message_log"][0]["token_ids"]) for result in results]
    components: list[dict[str, float]] = [result.get(COMPONENTS) or {} for result in full]
    columns: JsonObject = {
        AGENT_REF: [{"name": sample.agent} for sample in group.samples],
        "message_log": [result["message_log"] for result in results],
        "length": torch.tensor(lengths),
        "loss_multiplier": torch.tensor([0.0 if result[MASK] else 1.0 for result in full]),
        "total_reward": torch.tensor([float(result["reward"]) for result in full]),
        "truncated": torch.tensor([
            sample.is_truncated or (max_length is not None and total >= max_length)
            for sample, total in zip(group.samples, totals, strict=True)
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


def _assistant(ids: list[int], logprobs: list[float], flags: tuple[bool, bool] = (False, False)) -> JsonObject:
    return {
        "role": "assistant",
        "content": "",
        # explicit dtype: an empty list would become floats
        "token_ids": torch.tensor(ids, dtype=torch.int64),
        "generation_logprobs": torch.tensor(logprobs, dtype=torch.float32),
        "is_invalid_tool_call": flags[0],
        "has_malformed_thinking": flags[1],
    }


def _placeholder(pad_id: int) -> list[JsonObject]:
    """Rows cannot be empty. This one is never trained on, because its sample is masked."""
    return [_user([pad_id]), _assistant([pad_id], [0.0])]


def _last_items(record: JsonObject) -> dict[int, JsonObject]:
    """The last item of each model call, by the call's number."""
    items = output_items(record)
    numbered = {item[TOKEN_CALL]: item for item in items if isinstance(item.get(TOKEN_CALL), int)}
    return numbered or dict(enumerate(item for item in items if item.get("generation_token_ids")))


def _add_texts(items: Mapping[int, JsonObject], segments: Sequence[Segment], tokenizer: Decoder) -> None:
    """Decode the prompt and the generation of each call, for logs and penalties that look at texts."""
    for segment in segments:
        for number, (start, end) in zip(segment.calls, segment.turns, strict=True):
            if number in items:
                items[number]["prompt_str"] = tokenizer.decode(segment.ids[:start].tolist())
                items[number]["generation_str"] = tokenizer.decode(segment.ids[start:end].tolist())


def _full_result(sample: Sample, record: JsonObject) -> JsonObject:
    record.pop(LEDGER, None)
    record.pop(COMPONENTS, None)  # of another form than trainers can compute with, if the sample has none
    for item in output_items(record):
        for name in (*TRAINING_FIELDS, ROUTED_EXPERTS, TOKEN_CALL):
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
    return result
