"""SkyRL's generator interface and slime's custom generate function, against stand-ins of their exact types.

The stand-ins have the fields and checks of SkyRL (August 2026: skyrl/train/generators/base.py and
validate_generator_output) and slime (August 2026: slime/utils/types.py and generate_and_rm). SkyRL's own trainer runs
in tests/train/test_skyrl.py.
"""

from __future__ import annotations

import asyncio
import inspect
import json
from contextlib import asynccontextmanager, suppress
from copy import copy
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from gymnast.errors import UserError
from gymnast.tokens.expert_arrays import pack_experts
from gymnast.train import BatchOptions, FewerRolloutsError, NothingToTrainError
from gymnast.train.failure_budget import FailureBudget
from gymnast.train.prompt_files import ROW, row_of, with_sampling, write_prompts
from gymnast.train.skyrl_generator import GymnastGenerator
from gymnast.train.slime_generate import SlimeGenerate
from gymnast.types.task import RolloutKey
from tests.helpers.train_records import Act, Simulated, call, good, record, some_tasks


@asynccontextmanager
async def opened(policy: Simulated) -> Any:
    yield policy


def forked(key: RolloutKey) -> bytes:
    return record([call([1, 2], [3, 4]), call([7, 8, 9], [5, 6])], 1.0, task=key.task, rollout=key.rollout)


# --- SkyRL -----------------------------------------------------------------------------------------------------------


@dataclass
class TrajectoryID:
    instance_id: str
    repetition_id: int


def skyrl_batch(folder: Path, tasks: int, repeats: int, **sampling: Any) -> dict[str, Any]:
    """What SkyRL's trainer makes from its dataset: each prompt `n_samples_per_prompt` times in a row."""
    path = folder / "train.jsonl"
    assert write_prompts(path, some_tasks(tasks), "skyrl") == tasks
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    repeated = [(number, row) for number, row in enumerate(rows) for _ in range(repeats)]
    return {
        "prompts": [row["prompt"] for _, row in repeated],
        "env_classes": [row["env_class"] for _, row in repeated],
        "env_extras": [{ROW: row[ROW]} for _, row in repeated],
        "sampling_params": sampling or None,
        "trajectory_ids": [TrajectoryID(str(number), i % repeats) for i, (number, _) in enumerate(repeated)],
        "batch_metadata": SimpleNamespace(global_step=1, training_phase="train"),
    }


def require_valid(prompts: int, output: dict[str, Any], *, step_wise: bool) -> None:
    """What SkyRL checks of a generator's output."""
    number = len(output["response_ids"])
    assert number > 0
    assert step_wise or number == prompts
    for name in ("prompt_token_ids", "loss_masks", "rewards", "rollout_logprobs", "stop_reasons", "trajectory_ids"):
        assert len(output[name]) == number, name
    for ids, mask, logprobs in zip(
        output["response_ids"], output["loss_masks"], output["rollout_logprobs"], strict=True
    ):
        assert len(ids) == len(mask) == len(logprobs)
    assert sum(map(sum, output["loss_masks"])) > 0
    assert all(isinstance(reward, float) for reward in output["rewards"])
    if step_wise:
        assert len(output["is_last_step"]) == number
        assert output["is_last_step"][-1] is True
        for i in range(number - 1):
            changes = output["trajectory_ids"][i] != output["trajectory_ids"][i + 1]
            assert changes == output["is_last_step"][i]


async def test_skyrls_trainer_gets_every_rollout_in_the_order_of_its_prompts(tmp_path: Path) -> None:
    policy = Simulated(lambda key, _: good(key, reward=float(key.rollout)))
    generator = GymnastGenerator(opened(policy), pad_id=0)
    try:
        output = await generator.generate(skyrl_batch(tmp_path, 3, 2, temperature=0.7, max_generate_length=64))
        again = await generator.generate(skyrl_batch(tmp_path, 3, 2), disable_tqdm=True)
    finally:
        generator.close()
    require_valid(6, output, step_wise=False)
    assert output["rewards"] == again["rewards"] == [0.0, 1.0] * 3
    assert output["rollout_metrics"]["gymnast/samples"] == 6
    assert output["response_ids"][0] == [100, 101, 102, 10, 11, 12, 13, 100, 101, 102]
    assert output["loss_masks"][0] == [1, 1, 1, 0, 0, 0, 0, 1, 1, 1]
    assert [(item.instance_id, item.repetition_id) for item in output["trajectory_ids"]][:3] == [
        ("0", 0),
        ("0", 1),
        ("1", 0),
    ]


def with_experts(key: RolloutKey) -> bytes:
    """A rollout of a model with experts: rows for all tokens but the last."""
    experts = pack_experts(np.arange(2 * 3 * 4).reshape(2, 3, 4))
    return record([call([1], [7, 8], experts=experts)], task=key.task, rollout=key.rollout)


async def test_skyrls_router_replay_gets_the_experts_of_every_token(tmp_path: Path) -> None:
    generator = GymnastGenerator(opened(Simulated(lambda key, _: with_experts(key))), pad_id=0)
    try:
        output = await generator.generate(skyrl_batch(tmp_path, 2, 1))
    finally:
        generator.close()
    assert [experts.shape for experts in output["rollout_expert_indices"]] == [(3, 3, 4)] * 2
    assert output["rollout_expert_indices"][0][1].tolist() == np.arange(12, 24).reshape(3, 4).tolist()


async def test_a_failed_group_has_experts_of_zeros_beside_others(tmp_path: Path) -> None:
    """SkyRL joins groups of several calls: without them it would end, or train without those of the others."""
    policy = Simulated(lambda key, nth: "agent_error" if nth else with_experts(key))
    generator = GymnastGenerator(opened(policy), pad_id=0, options=BatchOptions(max_failed=2))
    try:
        sampled, failed = [await generator.generate(skyrl_batch(tmp_path, 1, 2)) for _ in range(2)]
    finally:
        generator.close()
    shapes = [experts.shape for output in (sampled, failed) for experts in output["rollout_expert_indices"]]
    assert shapes == [(3, 3, 4)] * 2 + [(2, 3, 4)] * 2
    assert not any(experts.any() for experts in failed["rollout_expert_indices"])


async def test_a_rollout_in_segments_is_steps_for_skyrl_or_masked(tmp_path: Path) -> None:
    policy = Simulated(lambda key, _: forked(key) if key.rollout else good(key, reward=0.0))
    for step_wise, rows in ((True, 6), (False, 4)):
        generator = GymnastGenerator(opened(policy), pad_id=0, step_wise=step_wise)
        try:
            output = await generator.generate(skyrl_batch(tmp_path, 2, 2))
        finally:
            generator.close()
        require_valid(4, output, step_wise=step_wise)
        assert len(output["response_ids"]) == rows
        assert (sum(output["loss_masks"][1]) == 0) is not step_wise
    assert output["rewards"] == [0.0] * 4, "a masked rollout does not move its group's mean"


async def test_skyrl_hears_of_missing_rollouts_and_of_datasets_of_others(tmp_path: Path) -> None:
    generator = GymnastGenerator(opened(Simulated(lambda *_: "agent_error")), pad_id=0)
    try:
        with pytest.raises(FewerRolloutsError, match="0 of 4"):
            await generator.generate(skyrl_batch(tmp_path, 2, 2))
        with pytest.raises(UserError, match="a prompt has no 'gymnast_row'"):
            await generator.generate({**skyrl_batch(tmp_path, 1, 1), "env_extras": [{}]})
    finally:
        generator.close()


async def test_many_batches_at_once_share_the_servers(tmp_path: Path) -> None:
    """SkyRL's fully asynchronous trainer requests groups concurrently."""
    entered = 0

    @asynccontextmanager
    async def counted() -> Any:
        nonlocal entered
        entered += 1
        yield Simulated()

    generator = GymnastGenerator(counted(), pad_id=0)
    try:
        batches = [skyrl_batch(tmp_path, 1, 4) for _ in range(6)]
        outputs = await asyncio.gather(*map(generator.generate, batches))
    finally:
        generator.close()
    assert entered == 1
    assert all(len(output["rewards"]) == 4 for output in outputs)


async def test_skyrls_evaluation_scores_every_rollout_by_its_own_reward(tmp_path: Path) -> None:
    """Masks are for training: a rollout in segments or masked by the environment counts with what it earned."""

    def act(key: RolloutKey, _: int) -> bytes:
        if key.rollout == 0:
            return forked(key)
        return record([call([1], [2])], 0.25, task=key.task, rollout=key.rollout, mask_sample=True)

    generator = GymnastGenerator(opened(Simulated(act)), pad_id=0)
    batch = skyrl_batch(tmp_path, 2, 2)
    batch["batch_metadata"].training_phase = "eval"
    try:
        output = await generator.generate(batch)
    finally:
        generator.close()
    assert output["rewards"] == [1.0, 0.25] * 2


async def test_a_group_without_a_trainable_token_does_not_end_skyrls_fully_asynchronous_trainer(tmp_path: Path) -> None:
    """That trainer requests single groups and ends its process at an error; a batch without any is one."""
    masked = Simulated(lambda key, _: record([call([1], [2])], task=key.task, rollout=key.rollout, mask_sample=True))
    generator = GymnastGenerator(opened(masked), pad_id=0)
    try:
        output = await generator.generate(skyrl_batch(tmp_path, 1, 4))
        assert sum(map(sum, output["loss_masks"])) == 0
        with pytest.raises(NothingToTrainError, match="8 × environment"):
            await generator.generate(skyrl_batch(tmp_path, 2, 4))
        for _ in range(40):
            with suppress(NothingToTrainError):
                await generator.generate(skyrl_batch(tmp_path, 1, 1))
                continue
            break
        else:
            pytest.fail("a training without anything to train on goes on for ever")
    finally:
        generator.close()


# --- slime -----------------------------------------------------------------------------------------------------------


@dataclass
class SlimeSample:
    """The fields of slime's Sample that a generate function reads or writes."""

    class Status(Enum):
        PENDING = "pending"
        COMPLETED = "completed"
        TRUNCATED = "truncated"
        ABORTED = "aborted"
        FAILED = "failed"

    group_index: int | None = None
    index: int | None = None
    rollout_id: int | None = None
    prompt: Any = ""
    tokens: list[int] = field(default_factory=list)
    response: str = ""
    response_length: int = 0
    label: str | None = None
    reward: float | None = None
    loss_mask: list[int] | None = None
    weight_versions: list[str] = field(default_factory=list)
    rollout_log_probs: list[float] | None = None
    rollout_routed_experts: Any = None
    remove_sample: bool = False
    status: Status = Status.PENDING
    metadata: dict[str, Any] = field(default_factory=dict)


async def generate_and_rm(function: Any, sample: SlimeSample, *, evaluation: bool = False) -> Any:
    """As slime calls a custom generate function, and what it requires of the result."""
    args, sampling = SimpleNamespace(sglang_router_ip="127.0.0.1"), {"temperature": 1.0, "max_new_tokens": 32}
    if "evaluation" in inspect.signature(function).parameters:
        found = await function(args, sample, sampling, evaluation=evaluation)
    else:
        found = await function(args, sample, sampling)
    for item in found if isinstance(found, list) else [found]:
        assert item.status in {SlimeSample.Status.COMPLETED, SlimeSample.Status.TRUNCATED}
        assert item.reward is not None
        assert item.response_length == len(item.loss_mask) == len(item.rollout_log_probs) > 0
        assert len(item.tokens) > item.response_length
    return found


def slime_samples(folder: Path, number: int) -> list[SlimeSample]:
    path = folder / "train.jsonl"
    write_prompts(path, some_tasks(number), "slime")
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    return [SlimeSample(0, index, None, row["prompt"], metadata=row["metadata"]) for index, row in enumerate(rows)]


def slime(act: Act | None = None) -> tuple[SlimeGenerate, Simulated]:
    policy = Simulated(act)
    return SlimeGenerate(lambda _: opened(policy)), policy


async def test_slimes_samples_are_filled_with_what_was_sampled(tmp_path: Path) -> None:
    generate, policy = slime(lambda key, _: good(key, version="step-3"))
    try:
        found = await asyncio.gather(*(generate_and_rm(generate, sample) for sample in slime_samples(tmp_path, 5)))
    finally:
        generate.close()
    first = found[0]
    assert first.tokens == [10, 11, 12, 13, 100, 101, 102, 10, 11, 12, 13, 100, 101, 102]
    assert first.loss_mask == [1, 1, 1, 0, 0, 0, 0, 1, 1, 1]
    assert first.rollout_log_probs[3] == 0.0
    assert (first.response, first.weight_versions, first.remove_sample) == (".", ["step-3"], False)
    assert sorted(run[0].task for run in policy.runs) == list(range(5))


async def test_slimes_routing_replay_gets_a_row_for_every_token_but_the_last(tmp_path: Path) -> None:
    generate, _ = slime(lambda key, _: with_experts(key))
    try:
        found = await generate_and_rm(generate, slime_samples(tmp_path, 1)[0])
    finally:
        generate.close()
    assert found.rollout_routed_experts.shape == (len(found.tokens) - 1, 3, 4)


async def test_segments_are_samples_of_one_rollout_for_slime(tmp_path: Path) -> None:
    generate, _ = slime(lambda key, _: forked(key))
    try:
        found = await generate_and_rm(generate, slime_samples(tmp_path, 2)[1])
    finally:
        generate.close()
    assert [item.rollout_id for item in found] == [1, 1]
    assert [item.tokens for item in found] == [[1, 2, 3, 4], [7, 8, 9, 5, 6]]
    assert [item.reward for item in found] == [1.0, 1.0]


async def test_slime_removes_masked_samples_and_hears_of_failures(tmp_path: Path) -> None:
    generate, _ = slime(lambda key, _: record([call([1], [2])], task=key.task, mask_sample=True))
    try:
        found = await generate_and_rm(generate, slime_samples(tmp_path, 1)[0], evaluation=True)
    finally:
        generate.close()
    assert (found.remove_sample, found.loss_mask) == (True, [0])
    assert found.metadata["gymnast_mask_reason"] == "environment"
    generate = SlimeGenerate(lambda _: opened(Simulated(lambda *_: "agent_error")), BatchOptions(max_attempts=1))
    try:
        with pytest.raises(FewerRolloutsError):
            await generate_and_rm(generate, slime_samples(tmp_path, 1)[0])
    finally:
        generate.close()


async def test_slimes_evaluation_counts_a_rollout_once(tmp_path: Path) -> None:
    generate, _ = slime(lambda key, _: forked(key))
    try:
        found = await generate_and_rm(generate, slime_samples(tmp_path, 1)[0], evaluation=True)
    finally:
        generate.close()
    assert (found.reward, found.tokens) == (1.0, [1, 2, 3, 4])


async def test_slime_hears_that_there_is_nothing_to_train_on(tmp_path: Path) -> None:
    generate, _ = slime(lambda key, _: record(None, task=key.task))
    (sample,) = slime_samples(tmp_path, 1)

    async def train() -> None:
        for _ in range(600):
            await generate_and_rm(generate, copy(sample))

    try:
        with pytest.raises(NothingToTrainError, match="return_token_id_information") as caught:
            await train()
    finally:
        generate.close()
    assert str(caught.value).startswith("the last 512 groups came back, but none has a trainable token; the last one: ")


# --- rows and budgets ------------------------------------------------------------------------------------------------


def test_a_trainers_sampling_parameters_reach_the_row_and_its_own_limit_stays() -> None:
    row = {"responses_create_params": {"input": "?", "max_output_tokens": 20, "temperature": 0.2}, "answer": 4}
    params = with_sampling(row, {"temperature": 1.0, "top_p": None, "max_new_tokens": 100})["responses_create_params"]
    assert params == {"input": "?", "max_output_tokens": 20, "temperature": 1.0}
    assert with_sampling(row, None) == row
    assert row_of({ROW: json.dumps(row)}, "here") == row


def test_a_budget_of_failed_groups_ends_with_one_too_many_in_a_row() -> None:
    budget = FailureBudget(2)
    errors = [RuntimeError(str(number)) for number in range(6)]
    for error in errors[:2]:
        budget.take_failure(error)
    budget.take_success()
    for error in errors[2:5]:
        budget.take_failure(error)
    budget.take_failure(errors[5])
    assert budget.error is errors[4]
    assert budget.failed == 6


@pytest.mark.parametrize("rows", [[], [None], [{}], [{"responses_create_params": {}}]], ids=repr)
def test_prompts_are_written_of_tasks_only(rows: list[Any], tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"task 0 |no rows to write"):
        write_prompts(tmp_path / "train.jsonl", rows, "skyrl")
    assert not (tmp_path / "train.jsonl").exists()
    with pytest.raises(UserError, match="no prompts for the trainer 'skyRL'"):
        write_prompts(tmp_path / "train.jsonl", some_tasks(1), "skyRL")  # type: ignore[arg-type]


async def test_a_generator_that_was_closed_says_so(tmp_path: Path) -> None:
    generator = GymnastGenerator(opened(Simulated()), pad_id=0)
    await generator.generate(skyrl_batch(tmp_path, 1, 1))
    generator.close()
    with pytest.raises(RuntimeError, match="gymnast-skyrl was closed"):
        await generator.generate(skyrl_batch(tmp_path, 1, 1))


@pytest.mark.parametrize(
    ("response", "text"),
    [
        ({"output": ["hello"]}, ""),
        ({"output": "hello"}, ""),
        ({"output": 3}, ""),
        ({"output": [{"role": "assistant", "content": "hello"}]}, "hello"),
        ({"output": [{"role": "assistant", "content": [{"text": None}, "x", {"text": "y"}]}]}, "y"),
        ("hello", ""),
        (None, ""),
    ],
)
async def test_slimes_samples_are_filled_whatever_an_agent_puts_into_its_response(
    response: Any, text: str, tmp_path: Path
) -> None:
    generate, _ = slime(lambda key, _: record([call([1], [2])], task=key.task, response=response))
    try:
        found = await generate_and_rm(generate, slime_samples(tmp_path, 1)[0])
    finally:
        generate.close()
    assert (found.response, found.tokens) == (text, [1, 2])
