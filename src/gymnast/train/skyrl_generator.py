"""A generator for SkyRL's trainers: Gymnast runs turns, tools, environment and reward, SkyRL trains.

    class Experiment(BasePPOExp):
        def get_generator(self, cfg, tokenizer, inference_engine_client):
            return GymnastGenerator(Collector(…), pad_id=tokenizer.pad_token_id)

It implements SkyRL's `GeneratorInterface` by its method; SkyRL's inference servers are the policy's endpoint.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from gymnast.train.background_loop import BackgroundResource
from gymnast.train.batch import EmptyGroups, collect_batch
from gymnast.train.batch_progress import BatchOptions
from gymnast.train.metrics import batch_metrics
from gymnast.train.prompt_files import row_of, with_sampling
from gymnast.train.samples import Termination
from gymnast.train.sequences import ExpertColumns, generations_of, rollout_rows, token_rows

if TYPE_CHECKING:
    from collections.abc import Mapping
    from contextlib import AbstractAsyncContextManager

    from gymnast.tokens.expert_arrays import Experts
    from gymnast.train.batch_request import Rollouts
    from gymnast.train.sequences import TokenRow

_MAX_EMPTY_GROUPS: Final = 32
"""Consecutive groups without a trainable token, where a trainer requests single groups (fully asynchronous)."""
_STOP_REASONS: Final = {Termination.LENGTH: "length", Termination.TURN_LIMIT: "length"}


class GymnastGenerator:
    """Runs the rollouts of SkyRL's batches. The servers start with the first batch and stop with `close`."""

    def __init__(
        self,
        rollouts: AbstractAsyncContextManager[Rollouts],
        *,
        pad_id: int,
        options: BatchOptions | None = None,
        step_wise: bool = False,
    ) -> None:
        """`step_wise`: as `generator.step_wise_trajectories`; a rollout with several segments is then several steps.

        Otherwise such a rollout is masked, because SkyRL takes one sequence per prompt.
        """
        self._resource = rollouts
        self._pad_id = pad_id
        self._options = options or BatchOptions()
        self._step_wise = step_wise
        self._empty_groups = EmptyGroups()
        self._experts = ExpertColumns()
        self._servers: BackgroundResource[Rollouts] = BackgroundResource("gymnast-skyrl")

    async def generate(
        self,
        input_batch: Mapping[str, Any],
        disable_tqdm: bool = True,  # noqa: FBT001, FBT002 - SkyRL's signature
    ) -> dict[str, Any]:
        """SkyRL's `generate`: outputs in the order of the prompts. Raises FewerRolloutsError if any is missing.

        In evaluation, every rollout is scored by its own reward, including those that would be masked in training.
        """
        extras = input_batch.get("env_extras") or [None] * len(input_batch["prompts"])
        sampling = input_batch.get("sampling_params")
        ids = input_batch.get("trajectory_ids") or [None] * len(extras)
        uids = [getattr(item, "instance_id", index) for index, item in enumerate(ids)]
        generations = generations_of(uids)
        tasks = [with_sampling(row_of(extra, "SkyRL's dataset"), sampling) for extra in extras[::generations]]
        batch = await self._servers.run(
            lambda: self._resource,
            lambda rollouts: collect_batch(
                rollouts, tasks, generations=generations, options=self._options, allow_untrainable=True
            ),
        )
        is_evaluation = getattr(input_batch.get("batch_metadata"), "training_phase", "train") == "eval"
        if not is_evaluation:
            self._empty_groups.take(batch, len(tasks) if len(tasks) > 1 else _MAX_EMPTY_GROUPS)
        samples = list(batch.samples)
        make_rows = token_rows if self._step_wise else rollout_rows
        rows = list(make_rows(samples, uids, self._pad_id, masked_vote=is_evaluation))
        figures = {f"gymnast/{name}": value for name, value in batch_metrics(samples).items()}
        columns = _columns(rows, self._experts.fill(rows))
        return {**columns, **_trajectories(rows, ids, step_wise=self._step_wise), "rollout_metrics": figures}

    async def ask(self, instance: str, path: str, body: Any = None) -> Any:
        """Send a request to a server outside of rollouts; see `gymnast.Collector.ask`."""

        async def send(rollouts: Any) -> Any:
            return await rollouts.ask(instance, path, body)

        return await self._servers.run(lambda: self._resource, send)

    def close(self) -> None:
        """Stop the servers."""
        self._servers.close()


def _columns(rows: list[TokenRow], experts: list[Experts | None]) -> dict[str, Any]:
    return {
        "prompt_token_ids": [row.prompt.tolist() for row in rows],
        "response_ids": [row.response.tolist() for row in rows],
        "rewards": [float(row.score) for row in rows],
        "loss_masks": [row.mask.tolist() for row in rows],
        "rollout_logprobs": [row.logprobs.tolist() for row in rows],
        "stop_reasons": [_STOP_REASONS.get(row.sample.termination, "stop") for row in rows],
        "env_metrics": [dict(row.sample.components) for row in rows],
        "rollout_expert_indices": experts if experts[0] is not None else None,
        "trajectory_generation_times": None,
        "trajectory_time_splits": None,
        "pixel_values": None,
        "image_grid_thw": None,
    }


def _trajectories(rows: list[TokenRow], ids: list[Any], *, step_wise: bool) -> dict[str, Any]:
    is_last = [index + 1 == len(rows) or rows[index + 1].index != row.index for index, row in enumerate(rows)]
    has_ids = all(item is not None for item in ids)
    return {
        "trajectory_ids": [ids[row.index] for row in rows] if has_ids else None,
        "is_last_step": is_last if step_wise else None,
    }
