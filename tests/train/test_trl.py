"""TRL's trainer on rollouts of Gymnast: five real steps, and what it does with rows that must not be trained on."""

from __future__ import annotations

import math
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from transformers import AutoTokenizer, LlamaForCausalLM
from trl import GRPOConfig, GRPOTrainer

from gymnast import Collector
from gymnast.errors import UserError
from gymnast.train import FewerRolloutsError, MaskReason, sample_of
from gymnast.train.trl_rollouts import TrlRollouts, columns
from tests.helpers.train_records import Simulated, call, failure, record
from tests.helpers.train_tasks import shop_tasks, sum_tasks


class Opened:
    """Rollouts without servers, to be entered like a collector."""

    def __init__(self, rollouts: Any) -> None:
        self._rollouts = rollouts

    async def __aenter__(self) -> Any:
        return self._rollouts

    async def __aexit__(self, *_: object) -> None:
        return None


def arguments(folder: Path, **more: Any) -> GRPOConfig:
    given: dict[str, Any] = {
        "output_dir": str(folder),
        "per_device_train_batch_size": 8,
        "num_generations": 4,
        "max_steps": 3,
        "learning_rate": 1e-4,
        "logging_steps": 1,
        "save_strategy": "no",
        "report_to": [],
        "use_cpu": True,
        "bf16": False,
        "beta": 0.0,
        "disable_tqdm": True,
        "max_completion_length": 512,
    }
    return GRPOConfig(**given | more)


class HandOver:
    """Lets the policy server sample with the trainer's weights as they are now."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.versions: list[str] = []

    def __call__(self, trainer: Any, rollouts: TrlRollouts) -> None:
        tensors = {name: one for name, one in trainer.model.state_dict().items() if name != "lm_head.weight"}
        save_file(tensors, self._folder / "model.safetensors")
        self.versions.append(rollouts.ask("policy_model", "/load_weights", {"path": str(self._folder)})["version"])


def alternating(completions: list[Any], **_: Any) -> list[float]:
    """So that no group is all alike: one that is changes no weights, and chance decides how many are."""
    return [float(place % 2) for place in range(len(completions))]


class Watched(GRPOTrainer):  # type: ignore[misc] # TRL ships with the extra
    """Keeps what its loss is computed from."""

    def __init__(self, *args: Any, **named: Any) -> None:
        super().__init__(*args, **named)
        self.seen: list[dict[str, Any]] = []

    def _compute_loss(self, model: Any, inputs: dict[str, Any]) -> Any:
        self.seen.append(inputs)
        return super()._compute_loss(model, inputs)


class Recorded(TrlRollouts):
    """Keeps what it gave to the trainer."""

    def rollout(self, prompts: list[Any], trainer: Any) -> dict[str, list[Any]]:
        found = super().rollout(prompts, trainer)
        self.__dict__.setdefault("given", []).append(found)
        return found


def assert_exact(rollouts: Recorded, trainer: Watched) -> None:
    """What the loss saw is what was sampled: each row's ids, and a mask of exactly the sampled tokens."""
    given = [
        (tuple(ids), tuple(mask))
        for batch in rollouts.__dict__["given"]
        for ids, mask in zip(batch["completion_ids"], batch["env_mask"], strict=True)
    ]
    used = []
    for inputs in trainer.seen:
        masks = inputs["completion_mask"] * inputs["tool_mask"]
        for ids, whole, mask in zip(inputs["completion_ids"], inputs["completion_mask"], masks, strict=True):
            length = int(whole.sum())
            used.append((tuple(ids[:length].tolist()), tuple(mask[:length].tolist())))
    assert sorted(used) == sorted(given)
    assert any(0 in mask and 1 in mask for _, mask in given), "tool results are in the sequence, not in the loss"


def test_five_steps_with_weights_handed_to_the_policy(
    tmp_path: Path, policy_folder: Path, make_collector: Callable[..., Collector]
) -> None:
    for name in ("config.json", "tokenizer.json", "tokenizer_config.json"):
        shutil.copy(policy_folder / name, tmp_path / name)
    model = LlamaForCausalLM.from_pretrained(policy_folder, dtype="float32")
    first = {name: one.detach().clone() for name, one in model.named_parameters()}
    before = HandOver(tmp_path)
    with Recorded(make_collector(), [*shop_tasks(6), *sum_tasks(6)], before=before) as rollouts:
        trainer = Watched(
            model=model,
            reward_funcs=[rollouts.reward, alternating],
            args=arguments(tmp_path / "out", max_steps=5),
            train_dataset=rollouts.dataset(),
            processing_class=AutoTokenizer.from_pretrained(policy_folder),
            rollout_func=rollouts.rollout,
        )
        trainer.train()
    assert trainer.state.global_step == 5
    assert_exact(rollouts, trainer)
    assert len(set(before.versions)) == 5, "every step's rollouts were sampled with that step's weights"
    assert any(not torch.equal(one, first[name]) for name, one in trainer.model.named_parameters())
    steps = [entry for entry in trainer.state.log_history if "loss" in entry]
    assert len(steps) == 5
    assert all(math.isfinite(entry["loss"]) for entry in steps)
    assert all(entry["gymnast/drift_rate"] == 0.0 for entry in steps)
    assert max(entry["gymnast/turns_per_sample/max"] for entry in steps) > 1


def test_the_program_of_the_page_runs(tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs" / "how-to" / "trl.md").read_text()
    (code,) = re.findall(r"^```python\n(.*?)^```$", page, flags=re.MULTILINE | re.DOTALL)
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=True)


def test_masked_rows_have_exactly_no_loss_in_trl(tmp_path: Path, policy_folder: Path) -> None:
    """Its own advantages leave them out of the baseline, and their tokens move no weight."""
    lines = [record([call([5, 6, 7], [8, 9, 2])], reward, rollout=i) for i, reward in enumerate((1.0, 1.0, 0.0, 0.0))]
    made = dict(enumerate(lines))
    made[1] = record([call([5, 6, 7], [8, 9, 2])], 1.0, rollout=1, mask_sample=True)
    rows = [{"responses_create_params": {"input": "one"}}]
    with TrlRollouts(Opened(Simulated(lambda key, _: made[key.rollout])), rows) as rollouts:
        trainer = Watched(
            model=LlamaForCausalLM.from_pretrained(policy_folder, dtype="float32"),
            reward_funcs=rollouts.reward,
            args=arguments(tmp_path, per_device_train_batch_size=4, max_steps=1),
            train_dataset=rollouts.dataset(),
            processing_class=AutoTokenizer.from_pretrained(policy_folder),
            rollout_func=rollouts.rollout,
        )
        trainer.train()
    (seen,) = trainer.seen
    # TRL shuffles rows before its loss: a row is known by its mask
    mask = (seen["completion_mask"] * seen["tool_mask"]).sum(dim=1)
    assert sorted(mask.tolist()) == [0, 3, 3, 3]
    pairs = sorted(zip(mask.tolist(), seen["advantages"].tolist(), strict=True))
    assert pairs[0][1] == 0.0
    assert [value for _, value in pairs[1:]] == pytest.approx([-0.57735, -0.57735, 1.1547], abs=1e-3)


def test_trls_evaluation_counts_masked_rollouts(tmp_path: Path, policy_folder: Path) -> None:
    """All of them are masked here: there is nothing to train on, and still something to measure."""

    def act(key: Any, _: int) -> bytes:
        return record([call([5, 6, 7], [8, 9])], float(key.rollout == 0), rollout=key.rollout, mask_sample=True)

    with TrlRollouts(Opened(Simulated(act)), [{"responses_create_params": {"input": "one"}}]) as rollouts:
        trainer = GRPOTrainer(
            model=LlamaForCausalLM.from_pretrained(policy_folder, dtype="float32"),
            reward_funcs=rollouts.reward,
            args=arguments(tmp_path, per_device_eval_batch_size=4),
            train_dataset=rollouts.dataset(),
            eval_dataset=rollouts.dataset(),
            processing_class=AutoTokenizer.from_pretrained(policy_folder),
            rollout_func=rollouts.rollout,
        )
        trainer.evaluate()
    (figures,) = [entry for entry in trainer.state.log_history if "eval_reward" in entry]
    assert figures["eval_reward"] == pytest.approx(0.25)


def test_missing_rollouts_stop_the_trainer(tmp_path: Path, policy_folder: Path) -> None:
    rows = [{"responses_create_params": {"input": "one"}}]
    with TrlRollouts(Opened(Simulated(lambda key, _: "instance_died" if key.rollout == 2 else None)), rows) as rollouts:
        trainer = GRPOTrainer(
            model=LlamaForCausalLM.from_pretrained(policy_folder, dtype="float32"),
            reward_funcs=rollouts.reward,
            args=arguments(tmp_path, per_device_train_batch_size=4),
            train_dataset=rollouts.dataset(),
            processing_class=AutoTokenizer.from_pretrained(policy_folder),
            rollout_func=rollouts.rollout,
        )
        with pytest.raises(FewerRolloutsError, match="0 of 4"):
            trainer.train()


def test_columns_that_trl_takes() -> None:
    good = sample_of(record([call([1, 2], [3, 4]), call([9], [5], before=4, parent=0)], 0.5))
    lost = sample_of(failure("instance_died"), failed=True)
    forked = sample_of(record([call([1, 2], [3]), call([7, 8], [5, 6])], 1.0))
    found = columns([good, lost, forked, good.masked(MaskReason.TRUNCATED)], [0, 0, 0, 0], pad_id=0)
    assert found["prompt_ids"] == [[1, 2], [0], [1, 2], [1, 2]]
    assert found["completion_ids"][:2] == [[3, 4, 9, 5], [0]]
    assert found["env_mask"] == [[1, 1, 0, 1], [0], [0], [0, 0, 0, 0]]
    assert found["logprobs"][0] == [-0.5, -0.5, 0.0, -0.5]
    assert found["gymnast_reward"] == [0.5, None, None, None]
    assert found["gymnast_mask_reason"] == ["", "failed", "forked", "truncated"]


def test_a_prompt_of_another_dataset_is_refused() -> None:
    with TrlRollouts(Opened(Simulated()), []) as rollouts, pytest.raises(UserError, match="a prompt has no task index"):
        rollouts.rollout([[{"role": "user", "content": "hi"}]], None)
