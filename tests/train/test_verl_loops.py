"""verl's own main_ppo on Gymnast's rollouts, for an epoch of three steps on the CPU.

Real: verl's entry, trainers, replay buffer, TransferQueue, FSDP engine, optimizer, checkpoints and loggers, Gymnast's
manager, dataset, sampler and environments, a configuration as users write it. Stand-ins, a small file each: the device
(verl_loop/cpu_device.py) and the inference replica (verl_loop/tiny_replica.py).

Rows are compared with what the replica says it sampled: Gymnast does not see that file.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.jsonl import read_jsonl
from tests.train.verl_loop.row_checks import ROWS, groups_of, require_rows_as_sampled
from tests.train.verl_loop.running import GENERATIONS, STEPS, TASKS_PER_STEP, Loop, make_loop

pytestmark = pytest.mark.timeout(3600)  # against a hang: a busy machine may take as long as it takes
EVERY_TASK = Counter(dict.fromkeys(range(TASKS_PER_STEP * STEPS), GENERATIONS))
CLASSIC: dict[str, Any] = {
    "trainer": {"use_v1": False},
    "algorithm": {"adv_estimator": "gymnast_grpo"},
    "actor_rollout_ref": {
        "rollout": {"agent": {"agent_loop_manager_class": "gymnast.train.verl_manager.GymnastAgentLoopManager"}}
    },
}
ASYNC: dict[str, Any] = {"trainer": {"v1": {"trainer_mode": "colocate_async"}}}
FROM_THE_SECOND_STEP = ("trainer.resume_mode=resume_path", "trainer.resume_from_path=checkpoints/global_step_2")
OFF_POLICY = "training/off_policy"
FIGURES = ("samples", "truncation_rate", "staleness/max", "rollouts_per_second", "gen_tokens_per_second", "seconds")


@pytest.fixture(scope="module")
def v1(tmp_path_factory: pytest.TempPathFactory) -> Loop:
    """The v1 trainer, synchronous: an epoch with a checkpoint after the second step and a validation at the end."""
    loop = make_loop(tmp_path_factory.mktemp("v1"))
    loop.run("first", "trainer.save_freq=2", "trainer.test_freq=3")
    return loop


@pytest.fixture(scope="module")
def classic(tmp_path_factory: pytest.TempPathFactory) -> Loop:
    loop = make_loop(tmp_path_factory.mktemp("classic"), CLASSIC)
    loop.run("first", "trainer.save_freq=2", "trainer.test_freq=3")
    return loop


@pytest.fixture(scope="module")
def asynchronous(tmp_path_factory: pytest.TempPathFactory) -> Loop:
    """The v1 trainer that aborts generations for an update and continues them under new weights."""
    loop = make_loop(tmp_path_factory.mktemp("asynchronous"), ASYNC, tasks=24)  # it runs ahead
    loop.run("first", "trainer.save_freq=2")
    return loop


def test_the_synchronous_trainer(v1: Loop) -> None:
    require_rows_as_sampled(v1, "first")
    assert tasks_of(v1, "first") == EVERY_TASK
    for step in range(1, STEPS + 1):
        logged = v1.logged("first")[step]
        require_figures({name.removeprefix("gymnast/"): value for name, value in logged.items()})
        assert logged["timing_s/gen"] > 0.5 * logged["gymnast/seconds"], "the time of rollouts is verl's time of gen"
        assert abs(logged["actor/ppo_kl"]) < 1e-4, "sampled and computed logprobs are of the same tokens"


def test_the_classic_trainer(classic: Loop) -> None:
    require_rows_as_sampled(classic, "first")
    assert tasks_of(classic, "first") == EVERY_TASK
    for step in range(1, STEPS + 1):
        logged = classic.logged("first")[step]
        require_figures({name.removeprefix("timing_s/gymnast/"): value for name, value in logged.items()})
        assert abs(logged["actor/ppo_kl"]) < 1e-4


def test_the_asynchronous_trainer(asynchronous: Loop) -> None:
    require_rows_as_sampled(asynchronous, "first")
    logged = asynchronous.logged("first")
    assert sorted(logged) == [1, 2, 3]
    for step in logged:
        require_figures({name.removeprefix("gymnast/"): value for name, value in logged[step].items()})
        assert logged[step]["gymnast/staleness/max"] == logged[step][f"{OFF_POLICY}/trajectory_staleness_worst/max"]


def test_validation_is_logged_under_verls_names(v1: Loop, classic: Loop) -> None:
    for loop in (v1, classic):
        names = [name for name in loop.logged("first")[STEPS] if name.startswith("val-")]
        for agent in ("shop_lookup_simple_agent", "arithmetic_simple_agent"):
            assert f"val-core/{agent}/reward/mean@1" in names


@pytest.mark.parametrize("kind", ["v1", pytest.param("classic", marks=pytest.mark.loops)])
def test_a_resumed_run_takes_the_tasks_that_are_left(kind: str, request: pytest.FixtureRequest) -> None:
    loop: Loop = request.getfixturevalue(kind)
    loop.run("resumed", *FROM_THE_SECOND_STEP)
    assert sorted(loop.logged("resumed")) == [3]
    assert tasks_of(loop, "first", 1, 2) + tasks_of(loop, "resumed") == EVERY_TASK


@pytest.mark.loops
def test_a_resumed_asynchronous_run_loses_no_task(asynchronous: Loop) -> None:
    """Prompts that were in flight at the checkpoint are in its queue: they are asked for again, none is lost."""
    asynchronous.run("resumed", *FROM_THE_SECOND_STEP)
    both = tasks_of(asynchronous, "first", 1, 2) + tasks_of(asynchronous, "resumed")
    assert sum(both.values()) == ROWS * STEPS
    assert set(both.values()) == {GENERATIONS}, "no task twice"


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({}, id="v1"),
        pytest.param(CLASSIC, id="classic", marks=pytest.mark.loops),
        pytest.param(ASYNC, id="asynchronous", marks=pytest.mark.loops),
    ],
)
def test_a_server_that_dies_in_the_second_step_ends_the_training_with_the_reason(
    changes: dict[str, Any], tmp_path: Path
) -> None:
    loop = make_loop(tmp_path, changes)
    output = loop.run("dying", fails=True, LOOP_DIES_AT="2")
    assert "rollouts were scored" in output
    assert "are missing: the batch is incomplete" in output
    assert "verl's inference server failed: ActorDiedError" in output
    assert sorted(loop.logged("dying")) == [1]


@pytest.mark.loops
def test_groups_without_a_signal_in_another_metric_are_replaced(tmp_path: Path) -> None:
    """verl's DAPO filter reads a metric that is not the reward from what the environment reports."""
    filtered = {"enable": True, "metric": "score", "max_inflight_gen_batches": 2}
    loop = make_loop(tmp_path, {"algorithm": {"filter_groups": filtered}, "trainer": {"total_training_steps": 1}})
    loop.run("filtered")
    [rows] = loop.trained("filtered")
    assert all(any(row.advantage for row in group) for group in groups_of(rows))


def require_figures(logged: dict[str, float]) -> None:
    assert {name for name in FIGURES if name not in logged} == set()
    assert logged["samples"] == ROWS
    assert logged["rollouts_per_second"] > 0
    assert logged["staleness/max"] >= 0


def tasks_of(loop: Loop, name: str, *steps: int) -> Counter[int]:
    """How often each task of the dataset was trained on, by default in all steps of a run."""
    trained = loop.trained(name)
    chosen = [trained[step - 1] for step in steps] if steps else trained
    rows = read_jsonl(loop.folder / "train.jsonl")
    questions = [row["responses_create_params"]["input"][0]["content"] for row in rows]
    return Counter(_task_of(row.texts[0], questions) for rows in chosen for row in rows)


def _task_of(prompt: str, questions: list[str]) -> int:
    [number] = [number for number, question in enumerate(questions) if question in prompt]
    return number
