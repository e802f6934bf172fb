"""A custom generate function for slime: Gymnast runs turns, tools, environment and reward, slime trains.

    # my_rollouts.py, for slime's --custom-generate-function-path my_rollouts.generate
    generate = SlimeGenerate(lambda args: Collector(…))

slime calls it once for each sample of a group. The policy's endpoint is slime's router or a vLLM-like server.
"""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from gymnast.train.background_loop import BackgroundResource
from gymnast.train.batch import EmptyGroups, collect_batch
from gymnast.train.batch_progress import BatchOptions
from gymnast.train.prompt_files import row_of, with_sampling
from gymnast.train.sequences import TokenRow, reason_of, token_rows
from gymnast.types.responses import message_text, output_items

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from contextlib import AbstractAsyncContextManager

    from gymnast.train.batch_request import Rollouts
    from gymnast.types.json import JsonObject

_MAX_EMPTY: Final = 512
"""Consecutive rollouts without a trainable token after which training ends."""
_PAD: Final = 0
"""The token of a rollout without tokens; it is masked."""


class SlimeGenerate:
    """A function with slime's signature. The servers start with the first call and stop with `close`."""

    def __init__(
        self,
        rollouts: Callable[[Any], AbstractAsyncContextManager[Rollouts]],
        options: BatchOptions | None = None,
    ) -> None:
        """`rollouts`: makes the collector from slime's arguments, e.g. with the address of its router."""
        options = options or BatchOptions()
        self._make = rollouts
        self._options = replace(options, sample=replace(options.sample, keep_line=True))
        self._empty = EmptyGroups()
        self._servers: BackgroundResource[Rollouts] = BackgroundResource("gymnast-slime")

    async def __call__(
        self,
        args: Any,
        sample: Any,
        sampling_params: Mapping[str, Any],
        evaluation: bool = False,  # noqa: FBT001, FBT002 - slime's signature
    ) -> Any:
        """Fill a sample; a list of samples with one `rollout_id` if the rollout has several segments.

        In evaluation it is always one sample, because slime would count the reward of each.
        Raises FewerRolloutsError if the rollout fails. A masked one is removed from the loss (`remove_sample`);
        NothingToTrainError ends a training in which all are.
        """
        task = with_sampling(row_of(sample.metadata, "slime's dataset"), sampling_params)
        batch = await self._servers.run(
            lambda: self._make(args),
            lambda rollouts: collect_batch(
                rollouts, [task], generations=1, options=self._options, allow_untrainable=True
            ),
        )
        if not evaluation:
            self._empty.take(batch, _MAX_EMPTY)
        rows = list(token_rows(list(batch.samples), [0], _PAD, masked_vote=evaluation))
        filled = [_fill(sample if row.segment == 0 else copy.copy(sample), row) for row in rows]
        if evaluation or len(filled) == 1:
            return filled[0]
        for item in filled:
            item.rollout_id = sample.rollout_id if sample.rollout_id is not None else sample.index
        return filled

    def close(self) -> None:
        """Stop the servers."""
        self._servers.close()


def _fill(sample: Any, row: TokenRow) -> Any:
    """Write a row into one of slime's samples."""
    rollout = row.sample
    sample.tokens = [*row.prompt.tolist(), *row.response.tolist()]
    sample.response_length = len(row.response)
    sample.response = _text(rollout.record or {})
    sample.loss_mask = row.mask.tolist()
    sample.rollout_log_probs = row.logprobs.tolist()
    sample.weight_versions = list(rollout.versions)
    if row.experts is not None:
        sample.rollout_routed_experts = row.experts[:-1].astype(np.int32)  # the last token is never an input
    sample.reward = rollout.reward if rollout.reward is not None else row.score
    sample.remove_sample = not rollout.is_trainable
    sample.status = type(sample).Status.TRUNCATED if rollout.is_truncated else type(sample).Status.COMPLETED
    sample.metadata = {**sample.metadata, "gymnast_mask_reason": reason_of(row), **rollout.components}
    return sample


def _text(record: JsonObject) -> str:
    """What the policy wrote, for slime's logs."""
    return "".join(message_text(item) for item in output_items(record) if item.get("role") == "assistant")
