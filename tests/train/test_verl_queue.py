"""verl's default trainer: rollouts go into TransferQueue, every segment of them, and its advantages are right."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from omegaconf import DictConfig, OmegaConf
from tensordict import TensorDict
from verl import DataProto
from verl.trainer.ppo.v1.utils import compute_advantage_for_multi_trajectories
from verl.utils import tensordict_utils
from verl.utils.dataset.rl_dataset import collate_fn

from gymnast.train import Batch, FewerRolloutsError, Group, MaskReason, NothingToTrainError, advantages, sample_of
from gymnast.train.verl_dataset import GymnastDataset
from gymnast.train.verl_figures import ERROR, FACTS, step_figures
from gymnast.train.verl_queue import GymnastQueueManager, columns_of
from tests.helpers.train_records import call, record
from tests.helpers.train_tasks import shop_tasks, sum_tasks, written
from tests.train.test_verl_manager import ONE_TRY, ROLLOUT, Client


class Store:
    """TransferQueue's key-value form, in this process: what is put is kept."""

    def __init__(self) -> None:
        self.tags: dict[str, dict[str, dict[str, Any]]] = {"train": {}, "val": {}}
        self.fields: dict[str, TensorDict] = {}
        self.keys: list[str] = []

    def kv_batch_put(
        self,
        keys: list[str],
        partition_id: str,
        fields: TensorDict | None = None,
        tags: list[dict[str, Any]] | None = None,
    ) -> None:
        for key, tag in zip(keys, tags or [], strict=True):
            self.tags[partition_id].setdefault(key, {}).update(tag)
        if fields is not None:
            assert len(fields) == len(keys)
            self.fields[partition_id], self.keys = fields, keys


@pytest.fixture
def store() -> Store:
    return Store()


@pytest.fixture
def manage(policy_folder: Path, store: Store) -> Iterator[Callable[..., GymnastQueueManager]]:
    made: list[GymnastQueueManager] = []

    def make(
        client: Any, mode: str = "sync", queue: Any = store, sampler: str | None = None, **changes: Any
    ) -> GymnastQueueManager:
        config: DictConfig = OmegaConf.create({
            "actor_rollout_ref": {"rollout": ROLLOUT, "model": {"path": str(policy_folder)}},
            "data": {"train_batch_size": 2},
            "trainer": {"v1": {"trainer_mode": mode, "sampler": {"custom_sampler": {"path": sampler}}}},
            "gymnast": {"environments": ["shop_lookup", "arithmetic"], **changes},
        })  # fmt: skip
        made.append(GymnastQueueManager.create(config=config, llm_client=client, queue=queue))
        return made[-1]

    yield make
    for manager in made:
        manager.close()


def questions(folder: Path, rows: list[dict[str, Any]], **more: Any) -> TensorDict:
    """A batch as the trainer makes it."""
    dataset = GymnastDataset(str(written(folder, rows)))
    found = collate_fn([dataset[place] for place in range(len(dataset))])
    found["uid"] = np.array([f"uid-{place}" for place in range(len(rows))], dtype=object)
    batch = tensordict_utils.get_tensordict(found)
    for name, value in {"global_steps": 3, **more}.items():
        tensordict_utils.assign_non_tensor_data(batch, name, value)
    return batch


def test_a_batch_is_in_the_queue_when_the_call_returns(
    tmp_path: Path, manage: Callable[..., GymnastQueueManager], store: Store
) -> None:
    manager = manage(Client())
    manager.generate_sequences(questions(tmp_path, [*shop_tasks(2), *sum_tasks(1)]))
    tags = store.tags["train"]
    assert [tags[f"uid-{place}"]["status"] for place in range(3)] == ["finished"] * 3
    assert store.keys == [f"uid-{place}_{session}_0" for place in range(3) for session in range(4)]
    fields = store.fields["train"]
    for name in ("prompts", "responses", "response_mask", "loss_mask", "rollout_log_probs", "rm_scores", "input_ids"):
        assert len(fields[name]) == 12, name
    for place, key in enumerate(store.keys):
        prompt, response = fields["prompts"][place], fields["responses"][place]
        assert torch.equal(fields["input_ids"][place], torch.cat([prompt, response]))
        assert tags[key]["seq_len"] == len(prompt) + len(response)
        assert tags[key]["min_global_steps"] == tags[key]["global_steps"] == 3
        assert fields["rm_scores"][place][:-1].sum().item() == 0.0


def test_the_real_queue_holds_them(
    tmp_path: Path, manage: Callable[..., GymnastQueueManager], ray_cluster: None
) -> None:
    import transfer_queue

    transfer_queue.init()
    try:
        manager = manage(Client(), queue=None)
        manager.generate_sequences(questions(tmp_path, shop_tasks(2)))
        listed = transfer_queue.kv_list("train")["train"]
        assert listed["uid-1"]["status"] == "finished"
        keys = [key for key in listed if key.count("_") == 2]
        assert len(keys) == 8
        wanted = ["uid", "response_mask", "rm_scores", "rollout_log_probs", "input_ids", "extra_fields"]
        found = transfer_queue.kv_batch_get(keys=keys, partition_id="train", select_fields=wanted)
        for key, ids, mask in zip(keys, found["input_ids"], found["response_mask"], strict=True):
            assert len(ids) == listed[key]["seq_len"]
            assert mask.sum().item() > 0
    finally:
        transfer_queue.close()


def test_missing_rollouts_stop_the_trainer(
    tmp_path: Path, manage: Callable[..., GymnastQueueManager], store: Store
) -> None:
    """verl itself goes on without the groups of which a rollout failed, and pads."""
    client = Client()
    client.broken = lambda *_: (_ for _ in ()).throw(RuntimeError("gone"))
    manager = manage(client, max_attempts=1, overrides=[ONE_TRY])
    with pytest.raises(FewerRolloutsError, match="0 of 4"):
        manager.generate_sequences(questions(tmp_path, sum_tasks(1)))
    assert store.tags["train"]["uid-0"]["status"] == "failure"


def test_in_an_asynchronous_mode_the_error_comes_with_the_next_call(
    tmp_path: Path, manage: Callable[..., GymnastQueueManager], store: Store
) -> None:
    client = Client()
    client.broken = lambda *_: (_ for _ in ()).throw(RuntimeError("gone"))
    manager = manage(client, "separate_async", max_attempts=1, overrides=[ONE_TRY])
    manager.generate_sequences(questions(tmp_path, sum_tasks(1)))
    for future in list(manager._in_flight):
        assert isinstance(future.exception(timeout=60), FewerRolloutsError)
    with pytest.raises(FewerRolloutsError):
        manager.generate_sequences(questions(tmp_path, sum_tasks(1)))


def test_in_an_asynchronous_mode_failed_prompts_are_left_to_verl_within_the_budget(
    tmp_path: Path, manage: Callable[..., GymnastQueueManager], store: Store
) -> None:
    """verl's replay buffer drops prompts with the status `failure` and requests as many others."""
    client = Client()
    is_down = True
    client.broken = lambda output, *_: (_ for _ in ()).throw(RuntimeError("gone")) if is_down else output
    manager = manage(client, "separate_async", max_attempts=1, overrides=[ONE_TRY], max_failed_groups=3)

    def run(tasks: int) -> None:
        manager.generate_sequences(questions(tmp_path, sum_tasks(tasks)))
        for future in list(manager._in_flight):
            assert future.exception(timeout=300) is None

    run(2)
    assert [store.tags["train"][f"uid-{place}"]["status"] for place in range(2)] == ["failure"] * 2
    is_down = False
    run(1)
    assert store.tags["train"]["uid-0"]["status"] == "finished"
    is_down = True
    run(2)
    run(2)  # the fourth in a row
    with pytest.raises(FewerRolloutsError, match="gone"):
        run(1)


def test_with_gymnasts_sampler_the_call_returns_and_the_prompts_say_what_failed(
    tmp_path: Path, manage: Callable[..., GymnastQueueManager], store: Store
) -> None:
    """verl's timer of generation starts after the call: the sampler waits inside it."""
    client = Client()
    client.broken = lambda *_: (_ for _ in ()).throw(RuntimeError("gone"))
    sampler = "pkg://gymnast.train.verl_sampler"
    manager = manage(client, sampler=sampler, max_attempts=1, overrides=[ONE_TRY])
    manager.generate_sequences(questions(tmp_path, sum_tasks(1)))
    [future] = manager._in_flight
    assert isinstance(future.exception(timeout=300), FewerRolloutsError)
    tag = store.tags["train"]["uid-0"]
    assert tag["status"] == "failure"
    assert tag[ERROR].startswith("FewerRolloutsError: 0 of 4 rollouts were scored")
    assert "RuntimeError: gone" in tag[ERROR]


def test_entries_say_what_the_environment_reports_and_what_the_log_needs(
    tmp_path: Path, manage: Callable[..., GymnastQueueManager], store: Store
) -> None:
    manager = manage(Client())
    manager.generate_sequences(questions(tmp_path, sum_tasks(2)))
    extras = list(store.fields["train"]["extra_fields"])
    infos = [extra["reward_extra_info"] for extra in extras]
    scores = [float(row.sum()) for row in store.fields["train"]["rm_scores"]]
    assert [info["score"] for info in infos] == scores
    figures = step_figures([extra[FACTS] for extra in extras], step=5)
    assert figures["gymnast/samples"] == len(scores)
    assert figures["gymnast/staleness/max"] == 1, "the client says that weights are of step 3"


def test_a_single_prompt_of_which_all_is_masked_does_not_end_the_training(
    tmp_path: Path, manage: Callable[..., GymnastQueueManager], store: Store
) -> None:
    """verl's asynchronous modes ask for prompts one by one. A whole step without a token to train on is an error."""
    client = Client()
    client.broken = lambda output, *_: output.model_copy(update={"log_probs": [math.nan] * len(output.token_ids)})
    manager = manage(client, logprob_retries=0)
    manager.generate_sequences(questions(tmp_path, sum_tasks(1)))
    assert store.tags["train"]["uid-0"]["status"] == "finished"
    assert not any(mask.any() for mask in store.fields["train"]["response_mask"])
    with pytest.raises(NothingToTrainError):
        manager.generate_sequences(questions(tmp_path, sum_tasks(1, seed=8)))


def test_validation_is_waited_for_in_an_asynchronous_mode_as_well(
    tmp_path: Path, manage: Callable[..., GymnastQueueManager]
) -> None:
    """verl's replay buffer takes failed groups of a validation for finished ones: it would be of fewer rollouts."""
    client = Client()
    client.broken = lambda *_: (_ for _ in ()).throw(RuntimeError("gone"))
    manager = manage(client, "separate_async", max_attempts=1, overrides=[ONE_TRY])
    with pytest.raises(FewerRolloutsError, match="0 of 1"):
        manager.generate_sequences(questions(tmp_path, sum_tasks(1), validate=True))


def test_validation_goes_to_its_own_partition(
    tmp_path: Path, manage: Callable[..., GymnastQueueManager], store: Store
) -> None:
    manager = manage(Client())
    manager.generate_sequences(questions(tmp_path, sum_tasks(2), validate=True))
    assert sorted(store.tags["val"]) == ["uid-0", "uid-0_0_0", "uid-1", "uid-1_0_0"]
    assert not store.tags["train"]


def test_segments_and_masked_rollouts_in_verls_own_advantages(
    tmp_path: Path, manage: Callable[..., GymnastQueueManager], store: Store
) -> None:
    """A rollout in two segments votes once; a masked one not at all, in mean nor in spread."""
    manager = manage(Client())
    forked = [call([1, 2], [3, 4]), call([7, 8, 9], [5, 6])]
    lines = [
        record(forked, 1.0, rollout=0),
        *(record([call([1, 2], [3])], r, rollout=i) for i, r in ((1, 1.0), (2, 0.0), (3, 0.0))),
    ]
    samples = [sample_of(line) for line in lines]
    samples[1] = samples[1].masked(MaskReason.ENVIRONMENT)
    batch = Batch((Group(0, tuple(samples)),))
    columns = columns_of(questions(tmp_path, sum_tasks(1)))
    keys, fields, tags = manager._entries(batch, columns, validate=False)
    assert {tag["min_global_steps"] for tag in tags} == {3}, "where weights are not told, the step's"
    assert keys == ["uid-0_0_0", "uid-0_0_1", "uid-0_1_0", "uid-0_2_0", "uid-0_3_0"]
    stored = tensordict_utils.list_of_dict_to_tensordict(fields)
    padded = {
        name: torch.nested.to_padded_tensor(stored[name], 0) if stored[name].is_nested else stored[name]
        for name in ("response_mask", "rm_scores")
    }
    data = DataProto.from_dict({**padded, "token_level_rewards": padded["rm_scores"].clone()})
    data.non_tensor_batch["uid"] = np.array([field["uid"] for field in fields], dtype=object)
    found = compute_advantage_for_multi_trajectories(data, keys, "grpo").batch["advantages"]
    per_row = [row[mask.bool()].unique().tolist() for row, mask in zip(found, padded["response_mask"], strict=True)]
    first, _, *rest = advantages([1.0, 1.0, 0.0, 0.0], [True, False, True, True])
    assert per_row[0] == per_row[1] == pytest.approx([first], abs=1e-4)
    assert per_row[2] == []
    assert per_row[3] + per_row[4] == pytest.approx(rest, abs=1e-4)
