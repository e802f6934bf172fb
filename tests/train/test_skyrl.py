"""SkyRL's own trainer on rollouts of Gymnast: its dataset, loop, checks, advantages, loss and evaluation.

Its workers, which need GPUs, are one model in this process (skyrl_loop/cpu_workers.py). The policy's server is the
embedded one, with the trainer's weights.
"""

from __future__ import annotations

import asyncio
import math
import shutil
from collections.abc import Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoTokenizer, LlamaForCausalLM

from gymnast import Collector
from gymnast.train import FewerRolloutsError
from gymnast.train.prompt_files import write_prompts
from gymnast.train.skyrl_generator import GymnastGenerator
from tests.helpers.train_records import Simulated, call, good, record, some_tasks
from tests.helpers.train_tasks import shop_tasks, sum_tasks
from tests.train.skyrl_loop.classes import PromptDataset, RayPPOTrainer, SkyRLTrainConfig, prepare_generator_input
from tests.train.skyrl_loop.cpu_workers import CpuWorkers

REPEATS = 4


class Tracker:
    """Keeps what SkyRL logs, by step."""

    def __init__(self) -> None:
        self.steps: dict[int, dict[str, Any]] = {}

    def log(self, data: dict[str, Any], step: int, **_: Any) -> None:
        self.steps.setdefault(step, {}).update(data)

    def finish(self) -> None: ...


class Kept(GymnastGenerator):
    """Keeps what it gave to the trainer."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self.given: list[dict[str, Any]] = []

    async def generate(self, input_batch: Any, disable_tqdm: bool = True) -> dict[str, Any]:  # noqa: FBT001, FBT002
        found = await super().generate(input_batch, disable_tqdm)
        self.given.append({name: list(found[name]) for name in ("prompt_token_ids", "response_ids", "loss_masks")})
        return found


@asynccontextmanager
async def opened(policy: Simulated) -> Any:
    yield policy


def config(folder: Path, *, step_wise: bool = False) -> SkyRLTrainConfig:
    cfg = SkyRLTrainConfig()
    cfg.trainer.train_batch_size = cfg.trainer.policy_mini_batch_size = 4
    cfg.trainer.eval_batch_size = 4
    cfg.trainer.epochs, cfg.trainer.eval_interval, cfg.trainer.ckpt_interval = 1, 3, -1
    cfg.trainer.eval_before_train = False
    cfg.trainer.hf_save_interval, cfg.trainer.resume_mode = -1, "none"
    cfg.trainer.placement.colocate_all = False
    cfg.trainer.export_path = cfg.trainer.ckpt_path = str(folder / "out")
    cfg.trainer.algorithm.advantage_estimator = "grpo"
    cfg.trainer.algorithm.max_seq_len = 4096
    cfg.trainer.dump_eval_results = False
    cfg.generator.n_samples_per_prompt = REPEATS
    cfg.generator.eval_n_samples_per_prompt = 2
    cfg.generator.step_wise_trajectories = step_wise
    cfg.generator.inference_engine.enable_ray_prometheus_stats = False
    cfg.data.dataloader.num_workers = 0
    cfg.data.dataloader.persistent_workers = False
    return cfg


def trainer_of(
    folder: Path, policy_folder: Path, generator: GymnastGenerator, rows: list[Any], **more: Any
) -> RayPPOTrainer:
    """SkyRL's trainer as its `BasePPOExp` makes it, with our rows as its dataset."""
    cfg, tokenizer = config(folder, **more), AutoTokenizer.from_pretrained(policy_folder)
    write_prompts(folder / "train.jsonl", rows, "skyrl")
    data = PromptDataset(str(folder / "train.jsonl"), tokenizer, max_prompt_length=4096, num_workers=1)
    assert len(data) == len(rows)
    trainer = RayPPOTrainer(cfg, Tracker(), tokenizer, data, None, generator, None, eval_dataset=data)
    model = LlamaForCausalLM.from_pretrained(policy_folder, dtype="float32")
    trainer.dispatch = CpuWorkers(model, cfg, None, folder)
    return trainer


def test_three_steps_of_skyrls_loop_with_weights_handed_to_the_policy(
    tmp_path: Path, policy_folder: Path, make_collector: Callable[..., Collector]
) -> None:
    for name in ("config.json", "tokenizer.json", "tokenizer_config.json"):
        shutil.copy(policy_folder / name, tmp_path / name)
    generator = Kept(make_collector(), pad_id=0)
    try:
        trainer = trainer_of(tmp_path, policy_folder, generator, [*shop_tasks(6), *sum_tasks(6)])
        workers = trainer.dispatch
        workers._generator = generator
        first = {name: one.detach().clone() for name, one in workers.model.named_parameters()}
        asyncio.run(trainer.train())
    finally:
        generator.close()
    steps = trainer.tracker.steps
    assert len(workers.trained) == 3
    assert len(set(workers.versions)) == 4, "every step's rollouts were sampled with that step's weights"
    for given, trained in zip(generator.given, workers.trained, strict=False):  # the evaluation comes after these
        require_rows_as_sampled(given, trained)
    for step in (1, 2, 3):
        assert steps[step]["policy/rollout_train_logprobs_abs_diff_max"] < 1e-3
        assert steps[step]["gymnast/samples"] == 4 * REPEATS
        assert math.isfinite(steps[step]["policy/policy_loss"])
    assert max(steps[step]["gymnast/turns_per_sample/max"] for step in (1, 2, 3)) > 1
    assert "eval/all/avg_score" in steps[3]
    assert any(not torch.equal(one, first[name]) for name, one in workers.model.named_parameters())


def require_rows_as_sampled(given: dict[str, Any], trained: Any) -> None:
    """What SkyRL trains on is what was sampled: each row's ids, and a mask of exactly the sampled tokens."""
    responses = trained["response_mask"].shape[1]
    for row, prompt in enumerate(given["prompt_token_ids"]):
        ids, length = given["response_ids"][row], len(given["response_ids"][row])
        whole = trained["sequences"][row][trained["attention_mask"][row].bool()]
        assert whole.tolist() == prompt + ids
        mask = trained["loss_mask"][row][trained["response_mask"][row].bool()]
        assert mask.tolist() == given["loss_masks"][row]
        assert trained["response_mask"][row].sum() == length <= responses


def test_masked_rollouts_move_neither_weights_nor_baselines_in_skyrl(tmp_path: Path, policy_folder: Path) -> None:
    def act(key: Any, _: object) -> bytes:
        return record(
            [call([5, 6, 7], [8, 9, 2])], (1.0, 9.0, 0.0, 0.0)[key.rollout], task=key.task, rollout=key.rollout,
            mask_sample=key.rollout == 1,
        )  # fmt: skip

    generator = GymnastGenerator(opened(Simulated(act)), pad_id=0)
    try:
        trainer = trainer_of(tmp_path, policy_folder, generator, some_tasks(4))
        trained = train_once(trainer)
    finally:
        generator.close()
    assert trained["loss_mask"].sum(dim=-1).tolist() == [3, 0, 3, 3] * 4
    mean, spread = 1 / 3, torch.tensor([1.0, 1 / 3, 0.0, 0.0]).std().item()
    expected = [(reward - mean) / (spread + 1e-6) for reward in (1.0, mean, 0.0, 0.0)]
    assert trained["advantages"][:4, 0].tolist() == pytest.approx(expected, abs=1e-3)


def test_segments_are_steps_with_one_advantage_in_skyrl(tmp_path: Path, policy_folder: Path) -> None:
    def act(key: Any, _: object) -> bytes:
        if key.rollout:
            return good(key, reward=0.0)
        return record([call([1, 2], [3, 4]), call([7, 8, 9], [5, 6])], 1.0, task=key.task, rollout=key.rollout)

    generator = GymnastGenerator(opened(Simulated(act)), pad_id=0, step_wise=True)
    try:
        trainer = trainer_of(tmp_path, policy_folder, generator, some_tasks(4), step_wise=True)
        trained = train_once(trainer)
    finally:
        generator.close()
    assert len(trained["sequences"]) == 4 * (REPEATS + 1)
    advantages = [row[mask.bool()] for row, mask in zip(trained["advantages"], trained["loss_mask"], strict=True)]
    assert advantages[0][0] == advantages[1][0] > 0
    assert all(row[0] < 0 for row in advantages[2:5])


def test_missing_rollouts_stop_skyrls_trainer(tmp_path: Path, policy_folder: Path) -> None:
    act = lambda key, _: "instance_died" if key.rollout == 2 else good(key)  # noqa: E731
    generator = GymnastGenerator(opened(Simulated(act)), pad_id=0)
    try:
        trainer = trainer_of(tmp_path, policy_folder, generator, some_tasks(4))
        with pytest.raises(FewerRolloutsError, match="of 16 rollouts were scored"):
            asyncio.run(trainer.train())
    finally:
        generator.close()
    assert trainer.dispatch.trained == []


def train_once(trainer: RayPPOTrainer) -> Any:
    """One batch through SkyRL's own steps up to the update; what it would train on."""
    prompts = next(iter(trainer.train_dataloader))
    cfg = trainer.cfg
    given, uids = prepare_generator_input(prompts, REPEATS, {"temperature": 1.0}, cfg.environment.env_class, "train", 1)
    output = asyncio.run(trainer.generate(given))
    if cfg.generator.step_wise_trajectories:
        uids = [item.instance_id for item in output["trajectory_ids"]]
    output, uids = trainer.postprocess_generator_output(output, uids)
    batch = trainer.convert_to_training_input(output, uids)
    return trainer.compute_advantages_and_returns(trainer.fwd_logprobs_values_reward(batch))
