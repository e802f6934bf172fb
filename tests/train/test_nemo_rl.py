"""The environment for NeMo RL: its results, its accounts, and errors that survive the way out of an actor."""

from __future__ import annotations

import asyncio
import pickle
from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np
import pytest
import torch

from gymnast import Collector
from gymnast.builtin.responses_api_models.embedded_model.policy import SHIPPED
from gymnast.errors import UserError
from gymnast.tokens.expert_arrays import pack_experts
from gymnast.train import Batch, FewerRolloutsError, Group, MaskReason, SampleOptions, sample_of
from gymnast.train.errors import RolloutsUnavailableError
from gymnast.train.nemo_rl_environment import GymnastEnvironment, actor_of, config_of, group_size, tasks_of
from gymnast.train.nemo_rl_results import TurnMarks, group_batch, group_results, message_log, result_of
from gymnast.train.verl_endpoint import VerlEndpoint
from gymnast.types.task import RolloutKey
from tests.helpers.train_records import Simulated, call, failure, good, record, some_tasks
from tests.helpers.train_tasks import EmbeddedLlmClient, shop_tasks


def rows_of(tasks: list[dict[str, Any]], generations: int) -> list[dict[str, Any]]:
    """As NeMo RL stamps them."""
    repeated = [task for task in tasks for _ in range(generations)]
    return [{**row, "_rowidx": place} for place, row in enumerate(repeated)]


def test_message_logs_of_real_rollouts_are_the_sampled_tokens(real_batch: Batch) -> None:
    for sample in real_batch.samples:
        result = result_of(sample)
        log = result["message_log"]
        segment = sample.segments[0]
        assert torch.cat([one["token_ids"] for one in log]).tolist() == segment.ids.tolist()
        assert [one["role"] for one in log] == ["user", "assistant"] * sample.turns
        logprobs = torch.cat([one["generation_logprobs"] for one in log if one["role"] == "assistant"])
        assert logprobs.tolist() == pytest.approx(segment.logprobs[segment.mask.astype(bool)].tolist())
        assert all(one["token_ids"].dtype == torch.int64 for one in log)
        assert result["input_message_log"] == log[:1]
        full = result["full_result"]
        assert full["reward"] == sample.reward
        assert full["mask_sample"] is False
        assert full["instance_config"]["mask_sample"] is False
        assert full["response"]["output"], "the record is there"
        assert "_ng_token_ledger" not in full


def test_messages_have_the_experts_of_their_tokens() -> None:
    rows = np.arange(1, 25).reshape(4, 3, 2)
    line = record([call([1, 2], [7], experts=pack_experts(rows[:2])), call(
        [3], [8], before=3, parent=0, experts=msgspec.structs.replace(pack_experts(rows[2:]), start=2)
    )])  # fmt: skip
    log = result_of(sample_of(line, SampleOptions(keep_line=True)))["message_log"]
    found = torch.cat([message["routed_experts"] for message in log])
    assert [len(message["routed_experts"]) for message in log] == [2, 1, 1, 1]
    assert found[:4].tolist() == rows.tolist(), "the row of a turn's last token comes with the next call"
    assert found.dtype == torch.int16


def test_a_masked_rollout_says_so_in_both_places() -> None:
    """NeMo Gym writes one, NeMo RL reads the other."""
    line = record([call([1, 2], [3])], 1.0, mask_sample=True, instance_config={"name": "django-1"})
    full = result_of(sample_of(line, SampleOptions(keep_line=True)))["full_result"]
    assert full["mask_sample"] is True
    assert full["instance_config"] == {"name": "django-1", "mask_sample": True}
    assert full["mask_reason"] == "environment"


def test_a_group_and_its_accounts() -> None:
    samples = [sample_of(good(RolloutKey(4, place), reward=float(place == 0))) for place in range(2)]
    samples.append(sample_of(failure("instance_died", task=4, rollout=2), failed=True))
    samples.append(sample_of(record([call([1], [2]), call([5], [6])], 1.0, task=4, rollout=3)))
    group = Group(4, tuple(samples))
    found = group_batch(group, group_results(group), max_length=14)
    batch = found["final_batch"]
    assert found["task_index"] == 4
    assert batch["total_reward"].tolist() == [1.0, 0.0, 0.5, 0.5], "who is masked has the others' mean, and no vote"
    assert batch["loss_multiplier"].tolist() == [1.0, 1.0, 0.0, 0.0]
    assert batch["mask_sample"].tolist() == [False, False, True, True]
    assert batch["truncated"].tolist()[:2] == [True, True]
    assert batch["length"].tolist() == [len(ids) for ids in found["input_ids"]]
    voting = group_results(group, masked_vote=True)
    assert [one["full_result"]["reward"] for one in voting] == [1.0, 0.0, pytest.approx(2 / 3), 1.0]
    assert found["rollout_metrics"]["turns_per_sample/mean"] == 2.0
    assert found["rollout_metrics"]["failed/instance_died"] == 1
    assert len(found["input_ids"]) == 4


def test_a_masked_rollout_without_others_keeps_its_reward() -> None:
    """Rows of a validation are groups of one, whose reward is the measurement."""
    forked = sample_of(record([call([1], [2]), call([5], [6])], 1.0, reward_components={"answer": 1.0}))
    (result,) = group_results(Group(0, (forked,)))
    full = result["full_result"]
    assert (full["reward"], full["reward_components"], full["mask_sample"]) == (1.0, {"answer": 1.0}, True)


def test_the_parts_of_a_reward_add_up_for_rows_that_do_not_vote_as_well() -> None:
    """NeMo RL checks for each row that the reward is the sum of its components."""
    parts = ({"format": 0.5, "answer": 1.0}, {"format": 0.0, "answer": 1.0}, {"format": 0.5, "answer": 0.0})
    samples = [
        sample_of(
            record([call([1], [2])], sum(one.values()), rollout=place, reward_components=one, mask_sample=place == 2),
            SampleOptions(keep_line=True),
        )
        for place, one in enumerate(parts)
    ]
    samples.append(sample_of(failure("instance_died", rollout=3), failed=True))
    group = Group(0, tuple(samples))
    results = group_results(group)
    batch = group_batch(group, results)["final_batch"]
    assert batch["total_reward"].tolist() == [1.5, 1.0, 1.25, 1.25]
    assert (batch["reward/format"] + batch["reward/answer"]).tolist() == batch["total_reward"].tolist()
    assert results[2]["full_result"]["gymnast_reward"] == 0.5, "its own is still told"
    assert sum(results[2]["full_result"]["reward_components"].values()) == 1.25


def test_what_follows_the_last_answer_stays_in_the_log() -> None:
    sample = sample_of(record([call([1, 2], [3, 4]), call([9, 8], [5], before=4, parent=0)]))
    assert [len(one["token_ids"]) for one in message_log(sample.segments[0])] == [2, 2, 2, 1]


async def test_rows_come_with_their_index_in_the_order_in_which_groups_complete() -> None:
    rollouts = Simulated(delay_s=lambda key: 0.2 if key.task == 0 else 0.0)
    environment = GymnastEnvironment({}, rollouts)
    found = [row async for row, _, _ in environment.run_rollouts(rows_of(some_tasks(3), 2), num_generations=2)]
    assert sorted(found) == list(range(6))
    assert found[-2:] == [0, 1]


async def test_rows_keep_the_index_that_the_trainer_gave_them() -> None:
    """It asks again for some of a batch, and passes the name of a timer: both as NeMo RL does."""
    rows = rows_of(some_tasks(3), 2)
    environment = GymnastEnvironment({}, Simulated())
    again = [row async for row, _, _ in environment.run_rollouts(rows[2:], "timing/rollout")]
    assert sorted(again) == [2, 3, 4, 5]
    (alone,) = [found async for found in environment.run_rollouts(rows[5:], timer_prefix="timing/rollout")]
    assert alone[0] == alone[1]["full_result"]["_rowidx"] == 5
    assert [group_size(some) for some in (rows, rows[:2], rows[1:], rows[:1])] == [2, 2, 1, 1]
    twice = rows_of([some_tasks(2)[index] for index in (0, 1, 1, 0)], 4)
    assert group_size(twice) == 4, "a task that is twice in a batch is two groups"


async def test_a_rollout_that_is_missing_raises_an_error_that_can_be_pickled() -> None:
    """Once such rows were None, and epochs empty."""
    environment = GymnastEnvironment({}, Simulated(lambda key, _: None if key.task == 1 else good(key)))
    with pytest.raises(FewerRolloutsError) as caught:
        async for _ in environment.run_rollouts(rows_of(some_tasks(2), 2), num_generations=2):
            pass
    again = pickle.loads(pickle.dumps(caught.value))
    assert str(again) == str(caught.value)
    assert again.missing == caught.value.missing == ("1:0", "1:1")


async def test_logprobs_that_are_no_numbers_mask_the_row_after_bounded_tries() -> None:
    """NeMo RL raises for them, and its trainer ends."""

    def act(key: RolloutKey, nth: int) -> bytes:
        bad = key.rollout == 1 and key.task == 0
        return record(
            [call([1], [2, 3], logprobs=[-0.1, None] if bad else None)], 1.0, task=key.task, rollout=key.rollout
        )

    rollouts = Simulated(act)
    environment = GymnastEnvironment({"gymnast": {"logprob_retries": 2}}, rollouts)
    found = {
        row: result async for row, result, _ in environment.run_rollouts(rows_of(some_tasks(2), 2), num_generations=2)
    }
    assert found[1]["full_result"]["mask_reason"] == MaskReason.BAD_LOGPROBS.value
    assert [found[row]["full_result"]["mask_sample"] for row in range(4)] == [False, True, False, False]
    assert rollouts.times[RolloutKey(0, 1)] == 3


def test_rows_that_are_no_whole_groups_are_refused() -> None:
    rows = rows_of(some_tasks(2), 2)
    assert len(tasks_of(rows, 2)) == 2
    with pytest.raises(UserError, match="3 rows do not form complete groups of 2"):
        tasks_of(rows[:3], 2)
    with pytest.raises(UserError, match="row 1 belongs to a different task than the first row of its group"):
        tasks_of(rows_of(some_tasks(4), 1), 2)


def test_settings() -> None:
    with pytest.raises(UserError, match="unknown setting: concurency"):
        GymnastEnvironment({"gymnast": {"concurency": 1}})
    with pytest.raises(UserError, match="masked_vote must be true or false, got 'false'"):
        GymnastEnvironment({"gymnast": {"masked_vote": "false"}})
    assert GymnastEnvironment({}).options.row_timeout_s == 3600.0, "rollouts have deadlines by default"


async def test_real_servers_in_place_of_nemo_rls_own(make_collector: Callable[..., Collector]) -> None:
    async with make_collector() as collector:
        environment = GymnastEnvironment({}, collector)
        groups = [group async for group in environment.run_groups(rows_of(shop_tasks(2), 4), 4)]
    assert sorted(group["task_index"] for group in groups) == [0, 1]
    assert all(group["final_batch"]["loss_multiplier"].tolist() == [1.0] * 4 for group in groups)


@pytest.mark.parametrize(("concurrency", "most"), [(4, 4), (1, 1), (7, 6), (100, 12)])
async def test_concurrency_bounds_the_rollouts_of_all_groups_together(concurrency: int, most: int) -> None:
    class Counted(Simulated):
        now = seen = 0

        async def run(self, rows: Any, **asked: Any) -> Any:
            self.now += min(len(rows), asked["concurrency"])
            self.seen = max(self.seen, self.now)
            try:
                async for pair in super().run(rows, **asked):
                    yield pair
            finally:
                self.now -= min(len(rows), asked["concurrency"])

    rollouts = Counted(delay_s=lambda _: 0.02)
    environment = GymnastEnvironment({"gymnast": {"concurrency": concurrency}}, rollouts)
    assert len([row async for row in environment.run_rollouts(rows_of(some_tasks(6), 2), num_generations=2)]) == 12
    assert rollouts.seen == most


async def test_concurrency_bounds_the_rollouts_of_all_calls_together() -> None:
    """NeMo RL's single controller makes a call for each prompt."""
    now = most = 0

    class Counted(Simulated):
        async def run(self, rows: Any, **asked: Any) -> Any:
            nonlocal now, most
            now += len(rows)
            most = max(most, now)
            try:
                async for pair in super().run(rows, **asked):
                    yield pair
            finally:
                now -= len(rows)

    environment = GymnastEnvironment({"gymnast": {"concurrency": 6}}, Counted(delay_s=lambda _: 0.01))

    async def collect(rows: list[dict[str, Any]]) -> list[int]:
        return [row async for row, _, _ in environment.run_rollouts(rows)]

    calls = [asyncio.create_task(collect(rows_of(some_tasks(1), 2))) for _ in range(20)]
    await asyncio.sleep(0.015)
    calls[3].cancel()  # in flight
    calls[18].cancel()  # waiting
    found = await asyncio.gather(*calls, return_exceptions=True)
    assert [one for one in found if not isinstance(one, BaseException)] == [[0, 1]] * 18
    assert (most, now) == (6, 0)


def test_settings_may_stand_in_the_part_that_is_nemo_gyms() -> None:
    """That is the part which a NeMo RL configuration can say: `env.nemo_gym`."""
    given = {"gymnast": {"max_attempts": 7, "row_timeout_s": 60, "masked_vote": True}}
    environment = GymnastEnvironment({"initial_global_config_dict": given})
    assert (environment.options.max_attempts, environment.options.row_timeout_s) == (7, 60)


def test_texts_lists_and_names_of_a_configuration_arrive_as_they_are() -> None:
    prompt = 'Judge "it".\nA back\\slash, and $money.'
    agent = {"datasets": [{"name": "train", "type": "train", "jsonl_fpath": "a b.jsonl", "license": "Apache 2.0"}]}
    cfg = {
        "model_name": "org/name",
        "base_urls": ["http://127.0.0.1:1/v1", "http://127.0.0.1:2/v1"],
        "initial_global_config_dict": {
            "config_paths": ["resources_servers/shop_lookup/configs/shop_lookup.yaml"],
            "shop_lookup_simple_agent": {"responses_api_agents": {"simple_agent": agent}},
            "judge_prompt": prompt,
            "of/a": {"b c": 1},
            "gymnast": {"max_attempts": 2},
        },
    }
    config = config_of(cfg)
    config.require_valid()
    assert (config.values["judge_prompt"], config.values["of/a"]) == (prompt, {"b c": 1})
    assert config.instances["shop_lookup_simple_agent"].block["datasets"] == agent["datasets"]
    assert config.values["policy_base_url"] == cfg["base_urls"]
    assert "gymnast" not in config.values


async def test_a_configuration_of_nemo_rl_is_enough() -> None:
    """Servers from `config_paths`, the policy behind `base_urls`, prompts as ids."""
    client = EmbeddedLlmClient()
    async with VerlEndpoint(client, window=1000) as engine:
        cfg = {
            "model_name": "embedded",
            "base_urls": [engine.url],
            "initial_global_config_dict": {
                "config_paths": ["resources_servers/shop_lookup/configs/shop_lookup.yaml"],
                "policy_model": {"responses_api_models": {"vllm_model": {"api_key": engine.token}}},
            },
            "gymnast": {"tokenizer": str(SHIPPED), "concurrency": 8},
        }
        environment = GymnastEnvironment(cfg)
        await environment._spinup()
        found = {
            row: result
            async for row, result, _ in environment.run_rollouts(rows_of(shop_tasks(2), 2), num_generations=2)
        }
        await environment.shutdown()
    await client.stop()
    assert sorted(found) == [0, 1, 2, 3]
    assert not any(result["full_result"]["mask_sample"] for result in found.values())
    assert max(len(result["message_log"]) for result in found.values()) > 2


class Prepared(GymnastEnvironment):
    """An actor's environment without servers."""

    def __init__(self, missing: int) -> None:
        super().__init__({}, Simulated(lambda key, _: None if key.task == missing else good(key)))


def test_an_actor_streams_and_its_errors_arrive(ray_cluster: None) -> None:
    import ray

    actor = ray.remote(max_concurrency=4)(Prepared).remote(1)
    ray.get(actor._spinup.remote())
    stream = actor.run_rollouts.options(num_returns="streaming").remote(rows_of(some_tasks(1), 2), "timing/rollout")
    found = [ray.get(one) for one in stream]
    assert [row for row, _, _ in found] == [0, 1]
    assert found[0][1]["message_log"][1]["generation_logprobs"].dtype == torch.float32
    stream = actor.run_rollouts.options(num_returns="streaming").remote(rows_of(some_tasks(2), 2), "timing/rollout")
    with pytest.raises(FewerRolloutsError, match="missing: 1:0, 1:1") as caught:
        [ray.get(one) for one in stream]
    assert caught.value.cause.missing == ("1:0", "1:1")  # type: ignore[attr-defined] # Ray keeps the error there
    ray.kill(actor)


class Waiting(GymnastEnvironment):
    """An environment whose rollouts end when 40 calls wait for them."""

    def __init__(self) -> None:
        super().__init__({}, Simulated())
        self.calls = 0
        self.all_here = asyncio.Event()

    async def run_rollouts(self, *arguments: Any, **named: Any) -> Any:
        self.calls += 1
        if self.calls == 40:
            self.all_here.set()
        await self.all_here.wait()
        async for found in super().run_rollouts(*arguments, **named):
            yield found


def test_an_actor_takes_a_call_for_each_prompt_in_flight(ray_cluster: None) -> None:
    """NeMo RL's single controller makes about a thousand, and asks for the actor's health meanwhile."""
    import ray

    from gymnast.train.nemo_rl_actor import ACTOR_OPTIONS

    actor = ray.remote(**ACTOR_OPTIONS)(Waiting).options(num_cpus=0).remote()
    rows = rows_of(some_tasks(1), 2)
    streams = [actor.run_rollouts.options(num_returns="streaming").remote(rows, "timing") for _ in range(39)]
    ray.get(actor.health_check.remote())
    streams.append(actor.run_rollouts.options(num_returns="streaming").remote(rows, "timing"))
    assert [[ray.get(one)[0] for one in stream] for stream in streams] == [[0, 1]] * 40
    ray.kill(actor)


def test_an_actor_is_made_of_a_configuration(ray_cluster: None) -> None:
    import ray

    from gymnast.train.nemo_rl_actor import GymnastActor

    cfg = {"model_name": "m", "base_urls": ["http://127.0.0.1:1/v1"]}
    for actor in (actor_of(cfg, num_cpus=0), GymnastActor.options(num_cpus=0).remote(cfg)):
        with pytest.raises(RuntimeError, match="_spinup"):
            ray.get(actor.health_check.remote())
        ray.kill(actor)


def marked_record(*turns: tuple[dict[str, Any], list[int]]) -> bytes:
    """A record with one model call per turn, whose last item is given."""
    calls, output, before = [], [], 0
    for number, (item, sampled) in enumerate(turns):
        calls.append(call([1], sampled, before=before, parent=number - 1 if number else None))
        before += 1 + len(sampled)
        output.append({**item, "token_call": number})
    return record(calls, 1.0, response={"output": output, "incomplete_details": None, "model": "letters"})


def spoken(text: str) -> dict[str, Any]:
    return {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": text}]}


def thought(text: str) -> dict[str, Any]:
    return {"type": "reasoning", "summary": [{"type": "summary_text", "text": text}]}


class Letters:
    """A tokenizer of one letter per id."""

    pad_token_id, eos_token_id = 0, 0

    def decode(self, ids: list[int]) -> str:
        return "".join(chr(96 + token) for token in ids)


def test_turns_are_flagged_and_texts_are_on_their_items() -> None:
    """NeMo RL's penalties read both."""
    line = marked_record(
        (spoken("fine"), [2, 3]),
        (spoken("<tool_call>{</tool_call>"), [4]),
        (spoken("leaked</think>"), [5]),
        (thought("<think>once"), [6]),
        (thought("<think>twice<think>"), [7]),
        ({"type": "function_call", "name": "f", "arguments": "<tool_call>", "call_id": "c"}, [8]),
    )
    result = result_of(sample_of(line, SampleOptions(keep_line=True)), tokenizer=Letters())
    assistant = [one for one in result["message_log"] if one["role"] == "assistant"]
    assert [one["is_invalid_tool_call"] for one in assistant] == [False, True, False, False, False, False]
    assert [one["has_malformed_thinking"] for one in assistant] == [False, False, True, False, True, False]
    items = result["full_result"]["response"]["output"]
    assert [item["generation_str"] for item in items] == ["bc", "d", "e", "f", "g", "h"]
    assert items[1]["prompt_str"] == "abca"
    assert not any(name in item for item in items for name in ("token_call", "generation_token_ids"))


def test_the_marks_of_a_configuration_are_used() -> None:
    marks = TurnMarks.from_config({"invalid_tool_call_patterns": ["[[call"], "thinking_tags": None})
    assert marks.find(spoken("[[call x]]")) == (True, False)
    assert marks.find(spoken("<tool_call>")) == (False, False)
    assert marks.find(spoken("<think>")) == (False, True)
    assert marks.find({"type": "message", "content": "text"}) == (False, False)


async def test_the_last_row_brings_the_timings() -> None:
    environment = GymnastEnvironment({}, Simulated())
    found = [timings async for _, _, timings in environment.run_rollouts(rows_of(some_tasks(2), 2), "timing/rollout")]
    assert found[:-1] == [None] * 3
    assert found[-1] is not None
    assert set(found[-1]) == {
        f"timing/rollout/{name}" for name in ("await_results", "postprocess_results", "postprocess_results_pct")
    }


@pytest.mark.parametrize(
    ("kind", "is_outage"),
    [("model_unreachable", True), ("rollout_timeout", True), ("instance_died", True), ("bad_row", False)],
)
async def test_trainers_can_tell_an_outage_from_bad_data(kind: str, is_outage: bool) -> None:  # noqa: FBT001
    """NeMo RL retries an outage five times and bad data twice; a ConnectionError is an outage to it."""
    rollouts = Simulated(lambda key, _: failure(kind, task=key.task, rollout=key.rollout))
    with pytest.raises(FewerRolloutsError) as caught:
        async for _ in GymnastEnvironment({}, rollouts).run_rollouts(rows_of(some_tasks(1), 2)):
            pass
    assert isinstance(caught.value, ConnectionError) is is_outage
    again = pickle.loads(pickle.dumps(caught.value))
    assert (type(again), str(again)) == (type(caught.value), str(caught.value))


async def test_an_endpoint_that_dies_is_told_within_the_configured_time() -> None:
    client = EmbeddedLlmClient()
    async with VerlEndpoint(client, window=1000) as engine:
        cfg = {
            "model_name": "embedded",
            "base_urls": [engine.url],
            "initial_global_config_dict": {
                "config_paths": ["resources_servers/shop_lookup/configs/shop_lookup.yaml"],
                "policy_model": {"responses_api_models": {"vllm_model": {"api_key": engine.token}}},
            },
            "gymnast": {"give_up_after_s": 0.5, "tokenizer": str(SHIPPED)},
        }
        environment = GymnastEnvironment(cfg)
        await environment.start()
        await environment.health_check()
    await client.stop()
    with pytest.raises(RolloutsUnavailableError, match=r"model_unreachable: unreachable for .* s \(give_up_after_s\)"):
        async for _ in environment.run_rollouts(rows_of(shop_tasks(1), 2)):
            pass
    with pytest.raises(RuntimeError, match="unreachable for"):
        await environment.health_check()
    await environment.shutdown()
    with pytest.raises(RuntimeError, match="_spinup"):
        await environment.health_check()


@pytest.mark.parametrize(
    "fields",
    [
        {"response": {"output": ["hello"]}},
        {"response": {"output": "hello"}},
        {"response": {"output": 3}},
        {"response": "hello"},
        {"response": None},
        {"reward_components": [1]},
        {"reward_components": {"a": "x"}},
        {"reward_components": {"a": {"b": 1}}},
        {"reward_components": "x"},
        {"instance_config": [1]},
    ],
)
def test_rows_of_agents_that_reply_in_another_form_are_results(fields: dict[str, Any]) -> None:
    """One of them ended the step of all."""
    options = SampleOptions(keep_line=True)
    samples = [sample_of(record([call([1], [2])], 1.0, rollout=place, **fields), options) for place in range(2)]
    group = Group(0, tuple(samples))
    results = group_results(group, tokenizer=Letters())
    batch = group_batch(group, results)["final_batch"]
    assert batch["total_reward"].tolist() == [1.0, 1.0]
    assert not any(name.startswith("reward/") for name in batch)
    assert all("reward_components" not in result["full_result"] for result in results)


async def test_an_episode_of_several_agents_is_one_row() -> None:
    """Its groups by agent came as rows of their own, and NeMo RL refuses a row that comes twice."""
    parts = {"white": {"reward": 1.0, "calls": [0]}, "black": {"reward": 0.0, "calls": [1], "mask": True}}

    def act(key: RolloutKey, _: int) -> bytes:
        calls = [call([1, 2], [3, 4]), call([5], [6], before=4, parent=0)]
        return record(calls, float(key.rollout), task=key.task, rollout=key.rollout, episode_agents=parts)

    environment = GymnastEnvironment({}, Simulated(act))
    found = {row: result async for row, result, _ in environment.run_rollouts(rows_of(some_tasks(2), 2))}
    assert sorted(found) == [0, 1, 2, 3]
    assert [found[row]["full_result"]["reward"] for row in range(4)] == [0.0, 1.0, 0.0, 1.0]
    assert [(one["role"], one["token_ids"].tolist()) for one in found[0]["message_log"]] == [
        ("user", [1, 2]),
        ("assistant", [3, 4]),
    ]
