"""The replay buffer with Gymnast's figures: made as verl makes one, and it says why rollouts failed."""

from __future__ import annotations

from typing import Any

import pytest
from omegaconf import OmegaConf
from verl.utils.import_utils import load_extern_type

from gymnast.train.errors import StepFailedError
from gymnast.train.verl_figures import ERROR
from gymnast.train.verl_sampler import require_rollouts

PROMPT = {"is_prompt": True, "global_steps": 1}


def make(mode: str, **filter_groups: Any) -> Any:
    """As PPOTrainer._build_replay_buffer does for a custom sampler."""
    make_sampler = load_extern_type("pkg://gymnast.train.verl_sampler", "make_sampler")
    return make_sampler(
        trainer_mode=mode,
        trainer_config=OmegaConf.create({}),
        max_off_policy_threshold=8,
        max_off_policy_strategy="drop",
        sampler_kwargs=OmegaConf.create({"train_batch_size": 4, "filter_groups": filter_groups}),
        refill_fn=lambda count: count,
    )


@pytest.mark.parametrize("mode", ["sync", "colocate_async", "separate_async"])
def test_the_filter_of_groups_is_verls(mode: str) -> None:
    assert make(mode, enable=False, metric="score").filter_groups_metric is None
    sampler = make(mode, enable=True, metric="score", max_inflight_gen_batches=3)
    assert sampler.filter_groups_metric == "score"
    if mode == "sync":
        assert (sampler.train_batch_size, sampler.gen_batch_size, sampler.max_inflight_gen_batches) == (4, 1, 3)
    else:
        assert callable(sampler.wait_for_sampleable), "what verl's hybrid mode asks for"


def test_a_failed_prompt_is_an_error_with_its_reason() -> None:
    tags: dict[str, dict[str, Any]] = {"a": {**PROMPT, "status": "finished"}, "b": {**PROMPT, "status": "failure"}}
    require_rollouts(tags)
    tags["b"][ERROR] = "FewerRolloutsError: 3 of 4 rollouts were scored"
    with pytest.raises(StepFailedError, match="3 of 4"):
        require_rollouts(tags)


class Queue:
    """TransferQueue's list of keys, which another process changes meanwhile."""

    def __init__(self, *states: str) -> None:
        self.states = list(states)

    def kv_list(self, partition_id: str) -> dict[str, Any]:
        state = self.states.pop(0)
        tags = {**PROMPT, "status": state} | ({ERROR: "OSError: gone"} if state == "failure" else {})
        return {partition_id: {"a": tags}}


def test_a_step_waits_for_its_rollouts() -> None:
    sampler = make("sync")
    sampler.poll_interval = 0.0
    sampler._queue = Queue("pending", "running", "finished")
    sampler._wait("train")
    assert not sampler._queue.states
    sampler._queue = Queue("running", "failure")
    with pytest.raises(StepFailedError, match="gone"):
        sampler._wait("train")
