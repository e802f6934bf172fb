"""verl's agent-loop manager backed by Gymnast, for the trainer that reads from TransferQueue (verl's default, v1).

    actor_rollout_ref.rollout.agent.agent_loop_manager_class: gymnast.train.verl_queue.GymnastQueueManager

Every segment of a rollout is a separate entry, so none is lost. A call returns immediately. With `trainer_mode: sync`
the sampler waits for the batch and raises its error (`verl_sampler`; with another sampler the call itself waits). In
the asynchronous modes verl's replay buffer drops a prompt whose rollouts failed and requests another; once more than
`max_failed_groups` fail in a row, that call raises the error. Validation always waits.
"""

from __future__ import annotations

import asyncio
import time
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

import torch
from omegaconf import OmegaConf
from verl.experimental.agent_loop import AgentLoopManager
from verl.experimental.agent_loop.agent_loop import AgentLoopMetrics, AgentLoopOutput
from verl.utils.ray_utils import auto_await
from verl.utils.tensordict_utils import list_of_dict_to_tensordict

from gymnast.errors import UserError
from gymnast.train.background_loop import run_in_daemon
from gymnast.train.errors import FewerRolloutsError
from gymnast.train.failure_budget import FailureBudget
from gymnast.train.sequences import ExpertColumns, TokenRow, group_indexes, reason_of, token_rows
from gymnast.train.verl_batch import REASON
from gymnast.train.verl_collector import VerlCollector, pad_id_of
from gymnast.train.verl_figures import ERROR, FACTS, batch_facts, reward_extra_info, step_range

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from concurrent.futures import Future

    from tensordict import TensorDict

    from gymnast.tokens.expert_arrays import Experts
    from gymnast.train.samples import Batch
    from gymnast.types.json import JsonObject

_DROPPED_COLUMNS: Final = frozenset({"dummy_tensor", "validate", "__rollout_n__", "__do_sample__"})
"""Columns that verl's own workers drop, too."""
_SAMPLER: Final = "gymnast.train.verl_sampler"


class GymnastQueueManager(AgentLoopManager):  # type: ignore[misc] # verl ships with the extra
    """Hands rollout collection to Gymnast and puts the results into TransferQueue."""

    def __init__(self, config: Any, llm_client: Any, *args: Any, queue: Any = None, **kwargs: Any) -> None:
        super().__init__(config, llm_client, *args, **kwargs)
        self._queue = queue if queue is not None else import_module("transfer_queue")
        self._pad_id = pad_id_of(str(self.model_config.path))
        self._waits = config.trainer.v1.trainer_mode == "sync" and not _has_own_sampler(config)
        # asynchronous modes and refills request single prompts
        self._step = int(config.data.train_batch_size)
        self._collector = VerlCollector(config, llm_client)
        self._in_flight: set[Future[None]] = set()
        self._experts = ExpertColumns()
        self._budget = FailureBudget(self._collector.settings.max_failed_groups)

    @classmethod
    @auto_await  # type: ignore[untyped-decorator]
    async def create(cls, *args: Any, **kwargs: Any) -> GymnastQueueManager:
        """Like verl's own, but starts Gymnast's servers instead of workers."""
        return await asyncio.to_thread(cls, *args, **kwargs)

    def generate_sequences(self, prompts: TensorDict) -> None:
        """Run every prompt of a batch. Raises FewerRolloutsError if rollouts of it or an earlier batch are missing."""
        for future in [future for future in self._in_flight if future.done()]:
            self._in_flight.discard(future)
            future.result()
        if self._budget.error is not None:
            raise self._budget.error
        columns = columns_of(prompts)
        validate = bool(columns.get("validate", [False])[0])
        tasks = self._collector.tasks(columns, validate=validate)
        if self._waits or validate:  # verl's validation treats failed groups as finished
            self._collector.background.start(self._deliver(tasks, columns, validate=validate)).result()
        elif self._collector.settings.max_failed_groups:
            for index, task in enumerate(tasks):  # a prompt that fails does not take the others with it
                own = {name: [values[index]] for name, values in columns.items()}
                self._in_flight.add(self._collector.background.start(self._deliver_or_drop([task], own)))
        else:
            self._in_flight.add(self._collector.background.start(self._deliver(tasks, columns, validate=False)))

    def close(self) -> None:
        """Stop Gymnast's servers."""
        self._collector.close()

    async def _deliver_or_drop(self, tasks: list[JsonObject], columns: dict[str, list[Any]]) -> None:
        """Deliver, or leave it to verl to replace what failed, within the budget."""
        try:
            await self._deliver(tasks, columns, validate=False)
        except FewerRolloutsError as error:
            self._budget.take_failure(error)
        else:
            self._budget.take_success()

    async def _deliver(self, tasks: list[JsonObject], columns: dict[str, list[Any]], *, validate: bool) -> None:
        uids: list[str] = columns["uid"]
        partition = "val" if validate else "train"

        async def put(**entries: Any) -> None:
            await run_in_daemon(partial(self._queue.kv_batch_put, partition_id=partition, **entries))

        await put(keys=uids, tags=[{"status": "running"} for _ in uids])
        try:
            generations = self._generations(columns, validate=validate)
            batch = await self._collector.collect(tasks, generations, validate=validate, step=self._step)
            keys, fields, tags = self._entries(batch, columns, validate=validate)
            await put(keys=keys, fields=list_of_dict_to_tensordict(fields), tags=tags)
        except BaseException as error:
            failed = [{"status": "failure", ERROR: f"{type(error).__name__}: {error}"} for _ in uids]
            await put(keys=uids, tags=failed)
            raise
        await put(keys=uids, tags=[{"status": "finished"} for _ in uids])

    def _generations(self, columns: dict[str, list[Any]], *, validate: bool) -> int:
        rollout = self._collector.rollout
        default = rollout["val_kwargs"]["n"] if validate else rollout["n"]
        counts = {int(count) for count in columns.get("__rollout_n__", [default])}
        if len(counts) > 1:
            raise UserError(
                f"prompts of one batch request different numbers of rollouts: {sorted(counts)}",
                where="__rollout_n__",
                next="use one number per batch",
            )
        return counts.pop()

    def _entries(
        self, batch: Batch, columns: dict[str, list[Any]], *, validate: bool
    ) -> tuple[list[str], list[dict[str, Any]], list[dict[str, Any]]]:
        """Keys, fields and tags. A masked rollout gets its own group, so that it does not count in a baseline."""
        samples, groups = list(batch.samples), group_indexes(batch)
        size = len(batch.groups[0])
        masked_vote = self._collector.masked_vote(validate=validate)
        facts = batch_facts(batch, time.time())  # a queue is restored in another process
        infos = [info for group in batch.groups for info in reward_extra_info(group.samples, validate=validate)]
        keys, fields, tags = [], [], []
        rows = list(token_rows(samples, groups, self._pad_id, masked_vote=masked_vote))
        for row, experts in zip(rows, self._experts.fill(rows), strict=True):
            group, session = divmod(row.index, size)
            values = {name: column[group] for name, column in columns.items() if name not in _DROPPED_COLUMNS}
            uid = values["uid"]
            is_separate = bool(reason_of(row)) and not masked_vote
            values |= {"session_id": session, "uid": f"{uid}-masked-{session}" if is_separate else uid}
            keys.append(f"{uid}_{session}_{row.segment}")
            extra = {"reward_extra_info": infos[row.index], FACTS: None if row.segment else facts[row.index]}
            fields.append(fields_of(row, values, extra, experts))
            tags.append(tag_of(row, values))
        return keys, fields, tags


def columns_of(prompts: TensorDict) -> dict[str, list[Any]]:
    """The columns of a batch as lists; a value for the whole batch is repeated for each row."""
    columns: dict[str, list[Any]] = {}
    for name in prompts.keys():  # noqa: SIM118 - a TensorDict iterates over rows
        values = prompts[name]
        if isinstance(values, torch.Tensor):
            columns[name] = list(values)
        else:
            plain = values.tolist() if hasattr(values, "tolist") else values
            columns[name] = plain if isinstance(plain, list) else [plain] * len(prompts)
    return columns


def fields_of(
    row: TokenRow, values: dict[str, Any], extra: Mapping[str, Any], experts: Experts | None = None
) -> dict[str, Any]:
    """An entry in the form of verl's own workers. `extra`: further values of its `extra_fields`."""
    low, high = step_range(row.sample, values.get("global_steps"))
    output = AgentLoopOutput(
        prompt_ids=row.prompt.tolist(),
        response_ids=row.response.tolist(),
        response_mask=row.mask.tolist(),
        response_logprobs=row.logprobs.tolist(),
        routed_experts=experts,
        reward_score=row.score,
        num_turns=row.sample.turns,
        metrics=AgentLoopMetrics(),
        extra_fields={
            "min_global_steps": low,
            "max_global_steps": high,
            REASON: reason_of(row),
            **extra,
        },
    )
    field: dict[str, Any] = output.as_dict() | values
    ids = torch.cat([field["prompts"], field["responses"]])
    return field | {
        "loss_mask": field["response_mask"],
        "input_ids": ids,
        "position_ids": torch.arange(len(ids)),
        "multi_modal_inputs": {},
    }


def tag_of(row: TokenRow, values: dict[str, Any]) -> dict[str, Any]:
    """What the replay buffer knows about an entry without reading it."""
    low, high = step_range(row.sample, values.get("global_steps"))  # verl's metrics do not accept None
    lengths: Sequence[int] = (len(row.prompt), len(row.response))
    return {
        "status": "success",
        "prompt_len": lengths[0],
        "response_len": lengths[1],
        "seq_len": sum(lengths),
        "global_steps": values.get("global_steps"),
        "min_global_steps": low,
        "max_global_steps": high,
    }


def _has_own_sampler(config: Any) -> bool:
    """True if the sampler is Gymnast's, which waits for batches and knows their errors."""
    return _SAMPLER in str(OmegaConf.select(config, "trainer.v1.sampler.custom_sampler.path") or "")
