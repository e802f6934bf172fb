"""verl's agent-loop manager with Gymnast behind it: engines are asked with ids, rows come back, or an error does."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from omegaconf import DictConfig, OmegaConf
from verl import DataProto
from verl.experimental.agent_loop import AgentLoopManager
from verl.utils.dataset.rl_dataset import collate_fn
from verl.utils.import_utils import load_class_from_fqn
from verl.workers.rollout.llm_server import LLMServerClient

from gymnast.errors import UserError
from gymnast.train import FewerRolloutsError, NothingToTrainError
from gymnast.train.verl_batch import REASON
from gymnast.train.verl_dataset import GymnastDataset
from gymnast.train.verl_endpoint import finish_of
from tests.helpers.train_tasks import EmbeddedLlmClient, shop_tasks, sum_tasks, written

ROLLOUT = {
    "n": 4,
    "temperature": 1.0,
    "top_p": 1.0,
    "top_k": -1,
    "prompt_length": 600,
    "response_length": 400,
    "max_model_len": None,
    "logprobs_mode": "processed_logprobs",
    "val_kwargs": {"n": 1, "temperature": 0.0, "top_p": 1.0, "do_sample": False},
    "agent": {"num_workers": 1},
}
ONE_TRY = "++policy_model.responses_api_models.vllm_model.max_attempts=1"


class Client(EmbeddedLlmClient, LLMServerClient):  # type: ignore[misc] # verl ships with the extra
    """verl's class, so that its signature is the real one."""


@pytest.fixture
def config(policy_folder: Path) -> DictConfig:
    return OmegaConf.create({
        "actor_rollout_ref": {"rollout": ROLLOUT, "model": {"path": str(policy_folder)}},
        "trainer": {"v1": {"trainer_mode": "sync"}},
        "gymnast": {"environments": ["shop_lookup", "arithmetic"], "concurrency": 16, "logprob_retries": 0},
    })  # fmt: skip


@pytest.fixture
def manage(config: DictConfig) -> Iterator[Callable[..., Any]]:
    made: list[Any] = []

    def make(client: Any, **changes: Any) -> Any:
        config.gymnast = {**config.gymnast, **changes}
        kind = load_class_from_fqn("gymnast.train.verl_manager.GymnastAgentLoopManager", "AgentLoopManager")
        assert issubclass(kind, AgentLoopManager)
        made.append(kind.create(config=config, llm_client=client, teacher_client=None, reward_loop_worker_handles=None))
        return made[-1]

    yield make
    for manager in made:
        manager.close()


def questions(folder: Path, rows: list[dict[str, Any]], repeats: int) -> DataProto:
    """A batch as verl's trainer makes it of what its loader yields."""
    dataset = GymnastDataset(str(written(folder, rows)))
    batch = DataProto.from_single_dict(collate_fn([dataset[place] for place in range(len(dataset))]))
    batch.non_tensor_batch["uid"] = np.array([f"uid-{place}" for place in range(len(rows))], dtype=object)
    return batch.repeat(repeats, interleave=True)


def test_a_step_of_the_trainer(tmp_path: Path, manage: Callable[..., Any]) -> None:
    client = Client()
    manager = manage(client)
    asked = questions(tmp_path, [*shop_tasks(3), *sum_tasks(1)], 4)
    output = manager.generate_sequences(asked)
    assert len(output) == 16
    assert output.non_tensor_batch["__num_turns__"].max() > 1
    assert output.batch["response_mask"].sum(dim=1).min() > 0
    assert set(output.non_tensor_batch["min_global_steps"]) == {3}, "verl's steps are the weights of the tokens"
    assert output.meta_info["timing"]["gymnast/drift_rate"] == 0.0
    joined = asked.union(output)
    assert joined.non_tensor_batch["uid"].tolist() == [f"uid-{place}" for place in range(4) for _ in range(4)]
    # conversations stay where their prefix is cached: fewer names than calls
    assert len({name for name, _ in client.calls}) < len(client.calls)


def test_validation_is_asked_for_as_its_settings_say(tmp_path: Path, manage: Callable[..., Any]) -> None:
    manager = manage(Client())
    asked = questions(tmp_path, sum_tasks(2), 2)
    asked.meta_info["validate"] = True
    output = manager.generate_sequences(asked)
    for first in (0, 2):  # greedy: repeats are the same
        assert torch.equal(output.batch["responses"][first], output.batch["responses"][first + 1])


def test_validation_measures_masked_rollouts_by_their_own_reward(tmp_path: Path, manage: Callable[..., Any]) -> None:
    """A score that stands in for a masked one keeps a baseline right; as a result of validation it would be made up."""
    client = Client()
    manager = manage(client)
    asked = questions(tmp_path, sum_tasks(6, levels=(1, 2)), 1)
    asked.meta_info["validate"] = True
    before = manager.generate_sequences(asked)

    def spoil(output: Any, *_: int) -> Any:
        output.log_probs = [math.nan] * len(output.token_ids)
        return output

    client.broken = spoil
    found = manager.generate_sequences(asked)
    assert set(found.non_tensor_batch[REASON]) == {"bad_logprobs"}, "nothing to train on, and no error"
    scores = found.batch["rm_scores"].sum(dim=1).tolist()
    assert scores == found.non_tensor_batch["gymnast_reward"].tolist() == before.batch["rm_scores"].sum(dim=1).tolist()
    assert max(scores) == 1.0
    asked.meta_info["validate"] = False
    with pytest.raises(NothingToTrainError):
        manager.generate_sequences(asked)


def test_an_engine_that_fails_for_one_row_is_an_error_that_names_it(tmp_path: Path, manage: Callable[..., Any]) -> None:
    """The recipe turned the error of one row into the loss of all, without saying which, or into a made-up sample."""

    class Failing(Client):
        async def generate(self, request_id: str, *, prompt_ids: list[int], sampling_params: dict[str, Any]) -> Any:
            if len(prompt_ids) == self.longest:
                raise RuntimeError("CUDA error: device-side assert triggered")
            return await super().generate(request_id, prompt_ids=prompt_ids, sampling_params=sampling_params)

        longest = -1

    client = Failing()
    rows = sum_tasks(2)
    rows[1]["responses_create_params"]["input"][0]["content"] += " Think of nothing else but this very sum."
    manager = manage(client, max_attempts=1, stop_early=False, overrides=[ONE_TRY])
    manager.generate_sequences(questions(tmp_path, rows, 1))
    client.longest = max(length for _, length in client.calls)
    with pytest.raises(FewerRolloutsError, match="1 of 2 rollouts were scored") as caught:
        manager.generate_sequences(questions(tmp_path, rows, 1))
    assert caught.value.missing == ("1:0",)
    assert "device-side assert" in str(caught.value)


def test_a_row_that_may_fail_is_masked_and_the_others_are_trained_on(
    tmp_path: Path, manage: Callable[..., Any]
) -> None:
    client = Client()
    client.broken = lambda output, number, _: (_ for _ in ()).throw(RuntimeError("gone")) if number == 1 else output
    manager = manage(client, max_attempts=1, max_failed=1, overrides=[ONE_TRY])
    found = manager.generate_sequences(questions(tmp_path, sum_tasks(1), 4))
    assert sorted(found.non_tensor_batch[REASON]) == ["", "", "", "failed"]
    lost = found.non_tensor_batch[REASON].tolist().index("failed")
    assert found.batch["response_mask"][lost].sum().item() == 0
    assert found.meta_info["timing"]["gymnast/masked/failed"] == 1


def test_logprobs_that_are_not_numbers_are_asked_for_again_and_then_masked(
    tmp_path: Path, manage: Callable[..., Any]
) -> None:
    """Of one call for ever: asked a bounded number of times, then its row is masked. Nothing is trained on NaN."""
    client = Client()
    rows = sum_tasks(2)
    rows[1]["responses_create_params"]["input"][0]["content"] += " Take your time, please."
    manager = manage(client)
    manager.generate_sequences(questions(tmp_path, rows, 2))
    long = max(length for _, length in client.calls)

    def spoil(output: Any, _: int, length: int) -> Any:
        if length == long:
            output.log_probs = [math.nan] * len(output.token_ids)
        return output

    client.calls.clear()
    client.broken = spoil
    found = manager.generate_sequences(questions(tmp_path, rows, 2))
    assert found.non_tensor_batch[REASON].tolist() == ["", "", "bad_logprobs", "bad_logprobs"]
    assert found.batch["response_mask"].sum(dim=1).tolist()[2:] == [0, 0]
    assert torch.isfinite(found.batch["rollout_log_probs"]).all()
    assert sum(length == long for _, length in client.calls) <= 6


def test_rollouts_that_never_come_back_raise(tmp_path: Path, manage: Callable[..., Any]) -> None:
    class Silent(Client):
        async def generate(self, request_id: str, *, prompt_ids: list[int], sampling_params: dict[str, Any]) -> Any:
            import asyncio

            await asyncio.sleep(600)

    manager = manage(Silent(), row_timeout_s=1.0, max_attempts=1)
    with pytest.raises(FewerRolloutsError, match="0 of 2 rollouts were scored"):
        manager.generate_sequences(questions(tmp_path, sum_tasks(1), 2))


def test_a_batch_of_another_dataset_is_refused(tmp_path: Path, manage: Callable[..., Any]) -> None:
    manager = manage(Client())
    asked = questions(tmp_path, sum_tasks(1), 1)
    asked.non_tensor_batch.pop("gymnast_row")
    with pytest.raises(UserError, match="custom_cls"):
        manager.generate_sequences(asked)


def test_how_a_generation_ended_is_read_from_its_tokens() -> None:
    """verl says `completed` of everything."""
    from types import SimpleNamespace

    done = SimpleNamespace(stop_reason="completed")
    params = {"stop_token_ids": [2], "max_tokens": 3}
    assert finish_of(done, [5, 2], params) == "stop"
    assert finish_of(done, [5, 6, 2], params) == "stop"
    assert finish_of(done, [5, 6, 7], params) == "length"
    assert finish_of(SimpleNamespace(stop_reason="aborted"), [5], params) == "abort"
