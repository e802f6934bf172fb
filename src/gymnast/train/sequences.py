"""Samples as the sequences that trainers pad into tensors: a prompt, and a response with its loss mask. Pure.

A rollout that must not be trained on stays in its place with a mask of zeros. One without tokens gets a single padding
token for a prompt and one for a response, because trainers cannot hold an empty row; neither counts in a loss.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING

import numpy as np

from gymnast.train.samples import MaskReason

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator, Sequence

    from gymnast.train.samples import Batch, Ids, Logprobs, Mask, Sample, Segment


@dataclass(frozen=True, slots=True)
class TokenRow:
    """One segment of a rollout."""

    place: int
    """The place of its rollout in the batch."""
    segment: int
    """Its place in the rollout."""
    sample: Sample
    prompt: Ids
    response: Ids
    """Everything after the first prompt: what was sampled, and what came in between."""
    mask: Mask
    """Over the response: 1 exactly on what is to be trained on."""
    logprobs: Logprobs
    """Over the response; 0 where the mask is."""
    score: float
    """The reward, or where the rollout does not vote the mean of those who do: so the group's mean stays theirs.

    In a group where nobody votes it is the batch's mean."""


def token_rows(
    samples: Sequence[Sample], groups: Sequence[Hashable], pad_id: int, *, masked_vote: bool = False
) -> Iterator[TokenRow]:
    """Every segment of every rollout, in order; at least one row for each rollout. `groups` names each one's group."""
    votes: dict[Hashable, list[float]] = {group: [] for group in groups}
    for sample, group in zip(samples, groups, strict=True):
        if sample.reward is not None and (masked_vote or sample.is_trainable):
            votes[group].append(sample.reward)
    everybody = mean_of([reward for found in votes.values() for reward in found])
    means = {group: mean_of(found, everybody) for group, found in votes.items()}
    for place, (sample, group) in enumerate(zip(samples, groups, strict=True)):
        is_vote = sample.reward is not None and (masked_vote or sample.is_trainable)
        score = sample.reward if is_vote and sample.reward is not None else means[group]
        if not sample.segments:
            yield TokenRow(place, 0, sample, *_placeholder(pad_id), score)
        for number, (segment, mask) in enumerate(zip(sample.segments, sample.loss_masks(), strict=True)):
            yield TokenRow(place, number, sample, *_cut(segment, mask, pad_id), score)


def whole_rows(
    samples: Sequence[Sample], groups: Sequence[Hashable], pad_id: int, *, masked_vote: bool = False
) -> list[TokenRow]:
    """One row for each rollout, for trainers that take no more."""
    rows = token_rows(whole_samples(samples), groups, pad_id, masked_vote=masked_vote)
    return [row for row in rows if row.segment == 0]


def whole_samples(samples: Sequence[Sample]) -> list[Sample]:
    """Those of several segments masked as forked: a part of a rollout is not what was rewarded."""
    return [one.masked(MaskReason.FORKED) if len(one.segments) > 1 else one for one in samples]


def reason_of(row: TokenRow) -> str:
    """Why a row is masked; empty if it is not."""
    return row.sample.mask_reason.value if row.sample.mask_reason is not None else ""


def group_names(batch: Batch) -> list[int]:
    """For each sample of a batch the place of its group."""
    return [place for place, group in enumerate(batch.groups) for _ in group.samples]


def generations_of(groups: Sequence[Hashable]) -> int:
    """How many rollouts of a group follow each other, if it is as many everywhere and none comes back; else 1."""
    sizes = [len(list(run)) for _, run in groupby(groups)]
    alike = len(set(sizes)) == 1 and len(sizes) == len(set(groups))
    return sizes[0] if alike else 1


def mean_of(values: Sequence[float], otherwise: float = 0.0) -> float:
    """Their mean, or something else where there are none."""
    return math.fsum(values) / len(values) if values else otherwise


def _placeholder(pad_id: int) -> tuple[Ids, Ids, Mask, Logprobs]:
    pad = np.array([pad_id], dtype=np.int32)
    return pad, pad, np.zeros(1, dtype=np.uint8), np.zeros(1, dtype=np.float32)


def _cut(segment: Segment, mask: Mask, pad_id: int) -> tuple[Ids, Ids, Mask, Logprobs]:
    at = segment.prompt_length
    pad, _, no_mask, no_logprobs = _placeholder(pad_id)
    prompt = segment.ids[:at] if at else pad
    if at == len(segment.ids):
        return prompt, pad, no_mask, no_logprobs
    return prompt, segment.ids[at:], mask[at:], segment.logprobs[at:] * mask[at:]
