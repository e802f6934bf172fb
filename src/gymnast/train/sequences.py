"""Converts samples into sequences that trainers pad into tensors: a prompt, and a response with its loss mask. Pure.

A masked rollout keeps its position with a mask of zeros. One without tokens gets a single padding token as prompt and
as response, because trainers do not accept empty rows; neither counts in the loss.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING

import numpy as np

from gymnast.errors import UserError
from gymnast.train.episode_agents import train_named_agents
from gymnast.train.samples import MaskReason

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Iterator, Sequence

    from gymnast.tokens.expert_arrays import Experts
    from gymnast.train.samples import Batch, Ids, Logprobs, Mask, Sample, Segment


@dataclass(frozen=True, slots=True)
class TokenRow:
    """One segment of a rollout."""

    index: int
    """The index of its rollout in the batch."""
    segment: int
    """Its index in the rollout."""
    sample: Sample
    prompt: Ids
    response: Ids
    """Everything after the first prompt: sampled tokens and those in between."""
    mask: Mask
    """Over the response: 1 exactly for trained tokens."""
    logprobs: Logprobs
    """Over the response; 0 where the mask is 0."""
    score: float
    """The reward; for a rollout that does not vote, the mean of those that do, so that the group's mean is unchanged.

    In a group without votes it is the batch's mean."""
    experts: Experts | None = None
    """By token of prompt and response, layer and rank, if the inference server reports them."""


def token_rows(
    samples: Sequence[Sample], groups: Sequence[Hashable], pad_id: int, *, masked_vote: bool = False
) -> Iterator[TokenRow]:
    """Every segment of every rollout in order, at least one row per rollout. `groups` has the group of each sample."""
    require_one_policy(samples)
    require_no_media(samples)
    samples = [train_named_agents(sample) for sample in samples]
    votes: dict[Hashable, list[float]] = {group: [] for group in groups}
    for sample, group in zip(samples, groups, strict=True):
        if sample.reward is not None and (masked_vote or sample.is_trainable):
            votes[group].append(sample.reward)
    batch_mean = mean_of([reward for rewards in votes.values() for reward in rewards])
    means = {group: mean_of(rewards, batch_mean) for group, rewards in votes.items()}
    for index, (sample, group) in enumerate(zip(samples, groups, strict=True)):
        is_vote = sample.reward is not None and (masked_vote or sample.is_trainable)
        score = sample.reward if is_vote and sample.reward is not None else means[group]
        if not sample.segments:
            yield TokenRow(index, 0, sample, *_placeholder(pad_id), score)
        for number, (segment, mask) in enumerate(zip(sample.segments, sample.loss_masks(), strict=True)):
            yield TokenRow(index, number, sample, *_split_prompt(segment, mask, pad_id), score, _expert_rows(segment))


def rollout_rows(
    samples: Sequence[Sample], groups: Sequence[Hashable], pad_id: int, *, masked_vote: bool = False
) -> list[TokenRow]:
    """One row per rollout, for trainers that accept no more."""
    rows = token_rows(mask_forked(samples), groups, pad_id, masked_vote=masked_vote)
    return [row for row in rows if row.segment == 0]


def mask_forked(samples: Sequence[Sample]) -> list[Sample]:
    """Mask samples with several segments: a single segment is not what was rewarded."""
    require_one_policy(samples)
    own = [train_named_agents(sample) for sample in samples]
    return [sample.masked(MaskReason.FORKED) if len(sample.segments) > 1 else sample for sample in own]


def require_one_policy(samples: Iterable[Sample]) -> None:
    """Raise UserError if a rollout was sampled by several policies: it is a sample for each."""
    for sample in samples:
        if len(sample.policies) > 1:
            raise UserError(
                f"rollout {sample.key} was sampled by several trained policies: {', '.join(sample.policies)}",
                next="train each on its own groups (split_agents, stream), or set return_token_id_information to false "
                "where a model is not trained",
            )


def require_no_media(samples: Iterable[Sample]) -> None:
    """Raise UserError for images and videos: without their pixels a trainer would learn from bare placeholders."""
    for sample in samples:
        kinds = {one.kind for segment in sample.segments for one in segment.media}
        if sample.is_trainable and kinds:
            raise UserError(
                f"rollout {sample.key} has {' and '.join(f'{kind}s' for kind in sorted(kinds))} in its prompts, "
                "and this trainer gets token ids only",
                next="train with collect_batch or stream, whose segments have `media`, or leave such tasks out",
            )


class ExpertColumns:
    """Experts for trainers that request single groups, of which one may have none, e.g. because it failed."""

    def __init__(self) -> None:
        self._known: Experts | None = None

    def fill(self, rows: Sequence[TokenRow]) -> list[Experts | None]:
        """As `fill_experts`, with zeros if earlier rows had experts and these have not."""
        experts = fill_experts(rows, self._known)
        if experts and experts[0] is not None:
            self._known = experts[0][:0]
        return experts


def fill_experts(rows: Sequence[TokenRow], known: Experts | None = None) -> list[Experts | None]:
    """The experts of each row: of all rows or of none, as trainers take them. Those of masked rows may be zeros.

    `known`: experts of earlier rows. Raises UserError if only some of the trained rows have them.
    """
    known = next((row.experts for row in rows if row.experts is not None), known)
    if known is None:
        return [None] * len(rows)
    lacking = [row.sample.key for row in rows if row.experts is None and row.mask.any()]
    if lacking:
        raise UserError(
            f"the inference server reported experts for some rollouts, but not for {len(lacking)}, e.g. {lacking[0]}",
            next="start every inference server with the same options",
        )
    return [
        row.experts
        if row.experts is not None
        else np.zeros((len(row.prompt) + len(row.response), *known.shape[1:]), known.dtype)
        for row in rows
    ]


def reason_of(row: TokenRow) -> str:
    """Why a row is masked; empty if it is not."""
    return row.sample.mask_reason.value if row.sample.mask_reason is not None else ""


def group_indexes(batch: Batch) -> list[int]:
    """The index of the group of each sample in a batch."""
    return [index for index, group in enumerate(batch.groups) for _ in group.samples]


def generations_of(groups: Sequence[Hashable]) -> int:
    """The number of consecutive rollouts per group, if equal for all groups and none is split; else 1."""
    sizes = [len(list(run)) for _, run in groupby(groups)]
    is_uniform = len(set(sizes)) == 1 and len(sizes) == len(set(groups))
    return sizes[0] if is_uniform else 1


def mean_of(values: Sequence[float], default: float = 0.0) -> float:
    """The mean, or `default` if there are no values. That of equal values is exactly that value."""
    if not values:
        return default
    return min(max(math.fsum(values) / len(values), min(values)), max(values))


def _placeholder(pad_id: int) -> tuple[Ids, Ids, Mask, Logprobs]:
    pad = np.array([pad_id], dtype=np.int32)
    return pad, pad, np.zeros(1, dtype=np.uint8), np.zeros(1, dtype=np.float32)


def _split_prompt(segment: Segment, mask: Mask, pad_id: int) -> tuple[Ids, Ids, Mask, Logprobs]:
    at = segment.prompt_length
    pad, _, no_mask, no_logprobs = _placeholder(pad_id)
    prompt = segment.ids[:at] if at else pad
    if at == len(segment.ids):
        return prompt, pad, no_mask, no_logprobs
    return prompt, segment.ids[at:], mask[at:], segment.logprobs[at:] * mask[at:]


def _expert_rows(segment: Segment) -> Experts | None:
    """The experts of a row: zeros for the padding token of an empty prompt or response."""
    experts, at = segment.expert_rows, segment.prompt_length
    if experts is None or 0 < at < len(segment.ids):
        return experts
    return np.pad(experts, ((int(at == 0), int(at == len(segment.ids))), (0, 0), (0, 0)))
