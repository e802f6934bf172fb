"""verl's agent-loop manager with Gymnast behind it, for the trainer that reads from TransferQueue (verl's default, v1).

    actor_rollout_ref.rollout.agent.agent_loop_manager_class: gymnast.train.verl_queue.GymnastQueueManager

Every segment of a rollout is an entry of its own, so nothing is left out. With `trainer_mode: sync` a call returns when
the batch is in the queue, or raises; with the asynchronous modes it returns at once, and an error comes with the next,
which verl's replay buffer asks for in place of what failed. Validation is always waited for.
"""

from __future__ import annotations

import asyncio
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

import torch
from verl.experimental.agent_loop import AgentLoopManager
from verl.experimental.agent_loop.agent_loop import AgentLoopMetrics, AgentLoopOutput
from verl.utils.ray_utils import auto_await
from verl.utils.tensordict_utils import list_of_dict_to_tensordict

from gymnast.errors import UserError
from gymnast.train.sequences import TokenRow, group_names, reason_of, token_rows
from gymnast.train.verl_batch import REASON, step_range
from gymnast.train.verl_collecting import VerlCollecting, pad_id_of

if TYPE_CHECKING:
    from collections.abc import Sequence
    from concurrent.futures import Future

    from tensordict import TensorDict

    from gymnast.train.samples import Batch
    from gymnast.types.json import JsonObject

_OWN: Final = frozenset({"dummy_tensor", "validate", "__rollout_n__", "__do_sample__"})
"""Columns that verl's own workers do not pass on either."""


class GymnastQueueManager(AgentLoopManager):  # type: ignore[misc] # verl ships with the extra
    """Hands rollout collection to Gymnast and puts what comes back into TransferQueue."""

    def __init__(self, config: Any, llm_client: Any, *args: Any, queue: Any = None, **kwargs: Any) -> None:
        super().__init__(config, llm_client, *args, **kwargs)
        self._queue = queue if queue is not None else import_module("transfer_queue")
        self._pad_id = pad_id_of(str(self.model_config.path))
        self._waits = config.trainer.v1.trainer_mode == "sync"
        # its asynchronous modes, and refills, ask for single prompts
        self._step = int(config.data.train_batch_size)
        self._collecting = VerlCollecting(config, llm_client)
        self._under_way: set[Future[None]] = set()

    @classmethod
    @auto_await  # type: ignore[untyped-decorator]
    async def create(cls, *args: Any, **kwargs: Any) -> GymnastQueueManager:
        """As verl's own: no workers are started, Gymnast's servers are."""
        return await asyncio.to_thread(cls, *args, **kwargs)

    def generate_sequences(self, prompts: TensorDict) -> None:
        """Run every prompt of a batch. Raises FewerRolloutsError when rollouts of it, or of one before, are missing."""
        for future in [one for one in self._under_way if one.done()]:
            self._under_way.discard(future)
            future.result()
        columns = columns_of(prompts)
        validate = bool(columns.get("validate", [False])[0])
        tasks = self._collecting.tasks(columns, validate=validate)
        work = self._collecting.background.start(self._deliver(tasks, columns, validate=validate))
        if self._waits or validate:  # verl's validation takes failed groups for finished ones
            work.result()
        else:
            self._under_way.add(work)

    def close(self) -> None:
        """End Gymnast's servers."""
        self._collecting.close()

    async def _deliver(self, tasks: list[JsonObject], columns: dict[str, list[Any]], *, validate: bool) -> None:
        uids: list[str] = columns["uid"]
        partition = "val" if validate else "train"
        put = self._queue.kv_batch_put
        await asyncio.to_thread(put, keys=uids, partition_id=partition, tags=[{"status": "running"} for _ in uids])
        try:
            generations = self._generations(columns, validate=validate)
            batch = await self._collecting.collect(tasks, generations, validate=validate, step=self._step)
            keys, fields, tags = self._entries(batch, columns, validate=validate)
            await asyncio.to_thread(
                put, keys=keys, partition_id=partition, fields=list_of_dict_to_tensordict(fields), tags=tags
            )
        except BaseException:
            failed = [{"status": "failure"} for _ in uids]
            await asyncio.to_thread(put, keys=uids, partition_id=partition, tags=failed)
            raise
        done = [{"status": "finished"} for _ in uids]
        await asyncio.to_thread(put, keys=uids, partition_id=partition, tags=done)

    def _generations(self, columns: dict[str, list[Any]], *, validate: bool) -> int:
        rollout = self._collecting.rollout
        default = rollout["val_kwargs"]["n"] if validate else rollout["n"]
        asked = {int(number) for number in columns.get("__rollout_n__", [default])}
        if len(asked) > 1:
            raise UserError(
                f"prompts of one batch ask for different numbers of rollouts: {sorted(asked)}",
                where="__rollout_n__",
                next="use one number for a batch",
            )
        return asked.pop()

    def _entries(
        self, batch: Batch, columns: dict[str, list[Any]], *, validate: bool
    ) -> tuple[list[str], list[dict[str, Any]], list[dict[str, Any]]]:
        """Keys, fields and tags. A masked rollout is in a group of its own, and so votes in no other's baseline."""
        samples, groups = list(batch.samples), group_names(batch)
        size = len(batch.groups[0])
        vote = self._collecting.masked_vote(validate=validate)
        keys, fields, tags = [], [], []
        for row in token_rows(samples, groups, self._pad_id, masked_vote=vote):
            group, session = divmod(row.place, size)
            given = {name: values[group] for name, values in columns.items() if name not in _OWN}
            uid = given["uid"]
            is_apart = bool(reason_of(row)) and not vote
            given |= {"session_id": session, "uid": f"{uid}-masked-{session}" if is_apart else uid}
            found = fields_of(row, given)
            keys.append(f"{uid}_{session}_{row.segment}")
            fields.append(found)
            tags.append(tag_of(row, given))
        return keys, fields, tags


def columns_of(prompts: TensorDict) -> dict[str, list[Any]]:
    """The columns of a batch as lists; what holds for all is there for each."""
    found: dict[str, list[Any]] = {}
    for name in prompts.keys():  # noqa: SIM118 - a TensorDict iterates over rows
        values = prompts[name]
        if isinstance(values, torch.Tensor):
            found[name] = list(values)
        else:
            listed = values.tolist() if hasattr(values, "tolist") else values
            found[name] = listed if isinstance(listed, list) else [listed] * len(prompts)
    return found


def fields_of(row: TokenRow, given: dict[str, Any]) -> dict[str, Any]:
    """An entry as verl's own workers write it."""
    low, high = step_range(row, given.get("global_steps"))
    output = AgentLoopOutput(
        prompt_ids=row.prompt.tolist(),
        response_ids=row.response.tolist(),
        response_mask=row.mask.tolist(),
        response_logprobs=row.logprobs.tolist(),
        reward_score=row.score,
        num_turns=row.sample.turns,
        metrics=AgentLoopMetrics(),
        extra_fields={
            "min_global_steps": low,
            "max_global_steps": high,
            "reward_extra_info": {},
            REASON: reason_of(row),
        },
    )
    field: dict[str, Any] = output.as_dict() | given
    ids = torch.cat([field["prompts"], field["responses"]])
    return field | {
        "loss_mask": field["response_mask"],
        "input_ids": ids,
        "position_ids": torch.arange(len(ids)),
        "multi_modal_inputs": {},
    }


def tag_of(row: TokenRow, given: dict[str, Any]) -> dict[str, Any]:
    """What the replay buffer knows of an entry without reading it."""
    low, high = step_range(row, given.get("global_steps"))  # verl's metrics take no None
    lengths: Sequence[int] = (len(row.prompt), len(row.response))
    return {
        "status": "success",
        "prompt_len": lengths[0],
        "response_len": lengths[1],
        "seq_len": sum(lengths),
        "global_steps": given.get("global_steps"),
        "min_global_steps": low,
        "max_global_steps": high,
    }
