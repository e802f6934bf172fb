"""verl's agent-loop manager backed by Gymnast, for the trainer that passes DataProto (`trainer.use_v1: false`).

    actor_rollout_ref.rollout.agent.agent_loop_manager_class: gymnast.train.verl_manager.GymnastAgentLoopManager

Gymnast runs the rollouts (turns, tools, harness, environment, reward); verl does inference, weights and training.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

from verl.experimental.agent_loop import AgentLoopManager
from verl.utils.ray_utils import auto_await

from gymnast.train import verl_advantage
from gymnast.train.sequences import generations_of
from gymnast.train.verl_batch import data_proto, log_figures
from gymnast.train.verl_collector import VerlCollector, pad_id_of

if TYPE_CHECKING:
    from verl import DataProto


class GymnastAgentLoopManager(AgentLoopManager):  # type: ignore[misc] # verl ships with the extra
    """Hands rollout collection to Gymnast."""

    def __init__(self, config: Any, llm_client: Any, *args: Any, **kwargs: Any) -> None:
        super().__init__(config, llm_client, *args, **kwargs)
        verl_advantage.register()
        self._pad_id = pad_id_of(str(self.model_config.path))
        self._collector = VerlCollector(config, llm_client)

    @classmethod
    @auto_await  # type: ignore[untyped-decorator]
    async def create(cls, *args: Any, **kwargs: Any) -> GymnastAgentLoopManager:
        """Like verl's own, but starts Gymnast's servers instead of workers."""
        return await asyncio.to_thread(cls, *args, **kwargs)

    @auto_await  # type: ignore[untyped-decorator]
    async def generate_sequences(self, prompts: DataProto) -> DataProto:
        """Collect one row per prompt. Raises FewerRolloutsError if rollouts are missing."""
        columns = prompts.non_tensor_batch
        validate = bool(prompts.meta_info.get("validate", False))
        tasks = self._collector.tasks(columns, validate=validate)
        groups = [str(uid) for uid in columns.get("uid", range(len(tasks)))]
        generations = generations_of(groups)
        work = self._collector.collect(tasks[::generations], generations, validate=validate)
        batch = await asyncio.wrap_future(self._collector.background.start(work))
        masked_vote = self._collector.masked_vote(validate=validate)
        proto = data_proto(list(batch.samples), groups, pad_id=self._pad_id, masked_vote=masked_vote)
        # verl does not keep the prompt's columns itself when it joins prompts and results
        proto.non_tensor_batch = {**columns, **proto.non_tensor_batch}
        proto.meta_info["timing"] = log_figures(batch, time.monotonic(), prompts.meta_info.get("global_steps"))
        return proto

    def close(self) -> None:
        """Stop Gymnast's servers."""
        self._collector.close()
