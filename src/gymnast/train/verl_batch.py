"""Converts a batch into verl's DataProto, in the form that its agent loops return. Pure: samples in, tensors out.

Prompts are padded on the left and responses on the right, each to the longest in the batch; no row is truncated. The
reward is on the last token of a row.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
import torch
from tensordict import TensorDict
from verl import DataProto

from gymnast.train.sequences import TokenRow, fill_experts, reason_of, rollout_rows
from gymnast.train.verl_figures import PREFIX, batch_facts, step_figures, step_range

if TYPE_CHECKING:
    from collections.abc import Hashable, Mapping, Sequence

    from gymnast.train.samples import Batch, Sample

REASON: Final = "gymnast_mask_reason"
"""The column with the mask reason; empty for trained rows."""
_DEFAULT_COLUMNS: Final = ("turn_scores", "tool_rewards", "min_global_steps", "max_global_steps", "extras")
"""Columns that verl's own agent loops always return."""


def data_proto(
    samples: Sequence[Sample],
    groups: Sequence[Hashable],
    *,
    pad_id: int,
    masked_vote: bool = False,
    columns: Mapping[str, Sequence[Any]] | None = None,
) -> DataProto:
    """One row per rollout, in order. `groups` has the group of each, like verl's `uid`.

    `columns`: further columns, one value per rollout. A rollout with several segments does not fit into a row and is
    masked with the reason `forked`. (TransferQueue accepts all segments; see `verl_queue`.)
    """
    rows = rollout_rows(samples, groups, pad_id, masked_vote=masked_vote)
    extra = {name: _object_array(values) for name, values in (columns or {}).items()}
    return DataProto(
        batch=TensorDict(_tensors(rows, pad_id), batch_size=len(rows)),
        non_tensor_batch=extra | _columns(rows),
        meta_info={"reward_extra_keys": []},
    )


def log_figures(batch: Batch, ended_at: float, step: int | None = None) -> dict[str, float]:
    """Metrics for the trainer's log. verl logs what it finds under `timing`, with the prefix `timing_s/`."""
    forked = sum(sample.is_trainable and len(sample.segments) > 1 for sample in batch.samples)
    return {**step_figures(batch_facts(batch, ended_at), step), f"{PREFIX}masked/forked": float(forked)}


def _tensors(rows: Sequence[TokenRow], pad_id: int) -> dict[str, torch.Tensor]:
    prompt_length, length = max(len(row.prompt) for row in rows), max(len(row.response) for row in rows)
    ids = np.full((len(rows), prompt_length + length), pad_id, dtype=np.int64)
    attention = np.zeros_like(ids)
    mask, logprobs, scores = (np.zeros((len(rows), length), kind) for kind in (np.int64, np.float32, np.float32))
    for index, row in enumerate(rows):
        start, end = prompt_length - len(row.prompt), len(row.response)
        ids[index, start:prompt_length], ids[index, prompt_length : prompt_length + end] = row.prompt, row.response
        attention[index, start : prompt_length + end] = 1
        mask[index, :end], logprobs[index, :end] = row.mask, row.logprobs
        scores[index, end - 1] = row.score
    arrays = {
        "prompts": ids[:, :prompt_length],
        "responses": ids[:, prompt_length:],
        "response_mask": mask,
        "input_ids": ids,
        "attention_mask": attention,
        "position_ids": np.maximum(attention.cumsum(axis=1) - 1, 0),
        "rollout_log_probs": logprobs,
        "rm_scores": scores,
    }
    experts = _experts(rows, prompt_length, prompt_length + length)
    return {name: torch.from_numpy(np.ascontiguousarray(values)) for name, values in (arrays | experts).items()}


def _experts(rows: Sequence[TokenRow], prompt_length: int, length: int) -> dict[str, np.ndarray[Any, Any]]:
    """The column that verl's router replay reads, if the inference server reports experts."""
    known = [experts for experts in fill_experts(rows) if experts is not None]
    if not known:
        return {}
    column = np.zeros((len(rows), length, *known[0].shape[1:]), dtype=np.int16)
    for index, (row, experts) in enumerate(zip(rows, known, strict=True)):
        start = prompt_length - len(row.prompt)
        column[index, start : start + len(experts)] = experts
    return {"routed_experts": column}


def _columns(rows: Sequence[TokenRow]) -> dict[str, np.ndarray[Any, Any]]:
    columns: dict[str, Sequence[Any]] = {name: [None] * len(rows) for name in _DEFAULT_COLUMNS}
    ranges = [step_range(row.sample) for row in rows]
    columns["min_global_steps"], columns["max_global_steps"] = [low for low, _ in ranges], [high for _, high in ranges]
    columns["multi_modal_inputs"] = [{} for _ in rows]
    columns[REASON] = [reason_of(row) for row in rows]
    columns["gymnast_reward"] = [row.sample.reward for row in rows]
    columns["gymnast_termination"] = [row.sample.termination.value for row in rows]
    turns = np.array([row.sample.turns for row in rows], dtype=np.int32)
    return {"__num_turns__": turns, **{name: _object_array(values) for name, values in columns.items()}}


def _object_array(values: Sequence[Any]) -> np.ndarray[Any, Any]:
    """A one-dimensional object array; numpy would make lists of equal length two-dimensional."""
    array = np.empty(len(values), dtype=object)
    array[:] = list(values)
    return array
