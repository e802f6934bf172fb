"""Environments, agents and models written for NeMo Gym, unmodified, in whole collections in this process."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

import gymnast
from gymnast.config import Config
from gymnast.errors import MissingRolloutsError, UserError
from gymnast.rollouts.aggregate import write_aggregate_metrics
from gymnast.store.paths import RunPaths
from gymnast.types.usage import MODEL_USAGE
from gymnast.wire.calls import Calls
from gymnast.wire.message import Reply, Request
from tests.contract.nemo_gym_policy import CHECKOUT, PLAYED, policy
from tests.helpers.jsonl import read_jsonl
from tests.helpers.parts import needs

needs_bubblewrap = needs("bubblewrap")
Configure = Callable[..., Config]
EXAMPLES = [pytest.param(name, marks=needs_bubblewrap if name == "shell_golf" else ()) for name in PLAYED]


def rows_of(name: str) -> str:
    return f"resources_servers/{name}/data/example.jsonl"


def loaded(configure: Configure, path: str, initial: dict[str, Any]) -> Config:
    return configure(config_paths=[path], search_dirs=[CHECKOUT], initial=initial)


async def collected(config: Config, source: str, output: Path, **options: Any) -> list[Any]:
    async for _ in gymnast.collect(source, output, config=config, max_attempts=1, **options):
        pass
    return sorted(read_jsonl(output), key=lambda row: (row["_ng_task_index"], row["_ng_rollout_index"]))


@pytest.mark.parametrize("name", EXAMPLES)
async def test_every_environment_of_the_checkout(name: str, configure: Configure, tmp_path: Path) -> None:
    played = PLAYED[name]
    config = loaded(configure, f"resources_servers/{name}/configs/{name}.yaml", policy(played.turns))
    records = await collected(config, rows_of(name), tmp_path / "out.jsonl")
    assert [record["reward"] for record in records] == played.rewards
    assert {key: records[0].get(key) for key in played.fields} == played.fields
    assert records[0]["agent_ref"]["name"] == f"{name}_agent"


async def test_tool_outputs_are_what_the_routes_answered(configure: Configure, tmp_path: Path) -> None:
    name = "ticket_office"
    config = loaded(configure, f"resources_servers/{name}/configs/{name}.yaml", policy(PLAYED[name].turns))
    record = (await collected(config, rows_of(name), tmp_path / "out.jsonl", limit=1))[0]
    outputs = [item["output"] for item in record["response"]["output"] if item["type"] == "function_call_output"]
    assert outputs == [
        '{"price":40}',
        '{"detail":"no tickets for dog"}',
        "9 to 17",
        '{"unknown":"lost_and_found","asked":{"what":"hat"}}',
        '{"total":48}',
    ]


async def test_fields_that_the_reply_does_not_declare_are_dropped(configure: Configure, tmp_path: Path) -> None:
    config = loaded(configure, "resources_servers/tally_counter/configs/tally_counter.yaml", policy(["no"]))
    record = (await collected(config, rows_of("tally_counter"), tmp_path / "out.jsonl", limit=1))[0]
    assert not {"initial_count", "expected_count"} & record.keys()


@pytest.mark.parametrize("model", ["its own", "ours"])
@pytest.mark.parametrize("place", ["process", "child"])
async def test_what_was_observed_is_in_the_record(model: str, place: str, configure: Configure, tmp_path: Path) -> None:
    told: dict[str, Any] = {"observability_enabled": True, "model_call_capture_dir": str(tmp_path / "captures")}
    told["two_try_agent"] = {"responses_api_agents": {"two_try_agent": {"runs_in": place}}}
    paths = ["responses_api_agents/two_try_agent/configs/two_try_agent.yaml"]
    if model == "its own":
        paths.append("responses_api_models/echo_model/configs/echo_model.yaml")
    else:
        told |= policy(["no"])
    (tmp_path / "captures").mkdir()
    (tmp_path / "captures" / "0-0.capture.jsonl").write_text('{"started_at": 1.0}\n')  # of an earlier run
    config = configure(config_paths=paths, search_dirs=[CHECKOUT], initial=told)
    [record] = await collected(config, rows_of("spelling_bee"), tmp_path / "out.jsonl", limit=1)
    calls = record["ng_model_call_capture"]["calls"]
    assert calls
    assert {call["status_code"] for call in calls} == {200}
    if (model, place) == ("ours", "child"):
        return  # the trajectory is made next to the agent, which has not seen these calls
    assert record["ng_trajectory"]["rollout_id"] == "0-0"
    assert len(record["ng_trajectory"]["model_calls"]) == len(calls)
    assert list(record)[-3:][0] == "_ng_task_index"


async def test_an_agent_with_a_run_of_its_own(configure: Configure, tmp_path: Path) -> None:
    config = configure(
        config_paths=[
            "responses_api_agents/two_try_agent/configs/two_try_agent.yaml",
            "responses_api_models/echo_model/configs/echo_model.yaml",
        ],
        search_dirs=[CHECKOUT],
    )
    records = await collected(config, rows_of("spelling_bee"), tmp_path / "out.jsonl")
    assert [(record["tries"], record["reward"]) for record in records] == [(1, 1.0)] * 5  # "Spell rhythm" ends so
    assert records[0]["response"]["usage"]["input_tokens"] == len("Spell rhythm")
    assert records[0][MODEL_USAGE]["calls"] == 1


async def test_an_agent_that_asks_itself_keeps_the_session(configure: Configure, tmp_path: Path) -> None:
    paths = [
        "resources_servers/tally_counter/configs/tally_counter.yaml",
        "responses_api_agents/tool_loop_agent/configs/tool_loop_agent.yaml",
    ]
    config = configure(config_paths=paths, search_dirs=[CHECKOUT], initial=policy(PLAYED["tally_counter"].turns))
    agent = {"agent": "tally_counter_tool_loop_agent"}
    records = await collected(config, rows_of("tally_counter"), tmp_path / "out.jsonl", **agent)
    assert [record["reward"] for record in records] == PLAYED["tally_counter"].rewards
    outputs = [item["output"] for item in records[0]["response"]["output"] if item["type"] == "function_call_output"]
    assert outputs == ['{"success":true}', '{"success":true}', '{"count":6}']


async def test_its_hooks_make_the_metrics_of_a_run(configure: Configure, tmp_path: Path) -> None:
    config = loaded(configure, "resources_servers/spelling_bee/configs/spelling_bee.yaml", policy(["It is spelt cat"]))
    await collected(config, rows_of("spelling_bee"), tmp_path / "out.jsonl", num_repeats=2)
    (entry,) = read_json(tmp_path / "out_aggregate_metrics.json")
    assert entry["agent_metrics"]["easy/pass@2/accuracy"] == pytest.approx(100 / 3)
    assert entry["key_metrics"] == {"pass@2/accuracy": 20.0}


async def test_metrics_that_a_server_cannot_compute_are_reported(tmp_path: Path) -> None:
    calls = Calls({"bee": BrokenMetrics()})
    paths = RunPaths(tmp_path / "out.jsonl")
    rows = [{"agent_ref": {"name": "bee"}, "_ng_task_index": 0, "reward": reward} for reward in (0.0, 1.0)]
    paths.output.write_text("".join(json.dumps(row) + "\n" for row in rows))
    (warning,) = await write_aggregate_metrics(paths, {"bee": "bee"}, [], calls)
    assert "bee could not compute its metrics; only statistics of plain numbers are written" in warning
    (entry,) = read_json(tmp_path / "out_aggregate_metrics.json")
    assert entry["agent_metrics"]["mean/reward"] == 0.5
    assert "zip" in entry["error"]


async def test_a_server_gets_the_rollouts_of_its_metrics_in_order(tmp_path: Path) -> None:
    """Rollouts are written as they end; pass@k of the first k needs them by task and rollout."""
    server = KeepsRows()
    paths = RunPaths(tmp_path / "out.jsonl")
    keys = [(1, 1), (0, 1), (1, 0), (0, 0)]
    rows = [{"agent_ref": {"name": "bee"}, "_ng_task_index": task, "_ng_rollout_index": own} for task, own in keys]
    paths.output.write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert await write_aggregate_metrics(paths, {"bee": "bee"}, [], Calls({"bee": server})) == []
    assert [(row["_ng_task_index"], row["_ng_rollout_index"]) for row in server.rows] == sorted(keys)


class KeepsRows:
    """A server that keeps the rows of which it should compute metrics."""

    address = "in-process"
    rows: Sequence[Any] = ()

    async def send(self, request: Request) -> Reply:
        self.rows = request.body["verify_responses"]
        return Reply(200, {"group_level_metrics": [], "agent_metrics": {}, "key_metrics": {}})


class BrokenMetrics:
    """A server whose metrics raise."""

    address = "in-process"

    async def send(self, request: Request) -> Reply:
        return Reply(500, "ValueError('zip() argument 2 is shorter')")


async def test_a_judge_that_fails_leaves_a_failure_and_no_reward(configure: Configure, tmp_path: Path) -> None:
    initial = policy(["The sea."])
    broken = {"entrypoint": "app.py", "replies": [{"status": 400, "body": "no"}]}
    config = configure(
        config_paths=["resources_servers/essay_judge/configs/essay_judge.yaml"],
        search_dirs=[CHECKOUT],
        initial={**initial, "judge_model": {"responses_api_models": {"scripted_model": broken}}},
    )
    with pytest.raises(MissingRolloutsError):
        await collected(config, rows_of("essay_judge"), tmp_path / "out.jsonl", limit=2)
    failures = read_jsonl(tmp_path / "out_failures.jsonl")
    assert {row["_ng_failure_class"] for row in failures} == {"judge_failed"}
    assert failures[0]["failure"]["layer"] == "verifier"
    assert not read_jsonl(tmp_path / "out.jsonl")


async def test_no_verdict_is_not_a_reward_whatever_an_agent_makes_of_it(configure: Configure, tmp_path: Path) -> None:
    """Its reply does not declare what the environment says of its judge, so that would be dropped."""
    broken = {"entrypoint": "app.py", "replies": [{"status": 400, "body": "no"}]}
    refs = {
        "resources_server": {"type": "resources_servers", "name": "essay_judge"},
        "model_server": {"type": "responses_api_models", "name": "policy_model"},
    }
    config = configure(
        config_paths=["resources_servers/essay_judge/configs/essay_judge.yaml"],
        search_dirs=[CHECKOUT],
        initial={
            **policy(["The sea."]),
            "judge_model": {"responses_api_models": {"scripted_model": broken}},
            "loop": {"responses_api_agents": {"tool_loop_agent": {"entrypoint": "app.py", **refs}}},
        },
    )
    with pytest.raises(MissingRolloutsError):
        await collected(config, rows_of("essay_judge"), tmp_path / "out.jsonl", limit=1, agent="loop")
    (failure,) = read_jsonl(tmp_path / "out_failures.jsonl")
    assert failure["_ng_failure_class"] == "judge_failed"


async def test_what_a_server_raises_is_recorded_with_its_stage(configure: Configure, tmp_path: Path) -> None:
    config = loaded(
        configure,
        "resources_servers/unit_converter/configs/unit_converter.yaml",
        {**policy(["3"]), "unit_converter": {"resources_servers": {"unit_converter": {"factors": {"yards": 1.0}}}}},
    )
    source = tmp_path / "rows.jsonl"
    source.write_text('{"responses_create_params": {"input": "x"}, "metres": 1, "unit": "parsecs"}\n')
    with pytest.raises(MissingRolloutsError):
        await collected(config, str(source), tmp_path / "out.jsonl")
    (failure,) = read_jsonl(tmp_path / "out_failures.jsonl")
    found = failure["failure"]
    assert (found["kind"], found["stage"], found["instance"]) == ("verifier_error", "verify", "unit_converter")
    assert "KeyError" in found["message"]


async def test_in_workers(configure: Configure, tmp_path: Path) -> None:
    config = loaded(configure, "resources_servers/spelling_bee/configs/spelling_bee.yaml", policy(["It is spelt cat"]))
    records = await collected(config, rows_of("spelling_bee"), tmp_path / "out.jsonl", workers=1)
    assert [record["reward"] for record in records] == PLAYED["spelling_bee"].rewards
    (entry,) = read_json(tmp_path / "out_aggregate_metrics.json")
    assert entry["key_metrics"] == {"pass@1/accuracy": 20.0}


async def test_in_a_child_process(configure: Configure, tmp_path: Path) -> None:
    elsewhere = {"market_feed": {"resources_servers": {"market_feed": {"runs_in": "child"}}}}
    path = "resources_servers/market_feed/configs/market_feed.yaml"
    config = loaded(configure, path, {**policy(PLAYED["market_feed"].turns), **elsewhere})
    records = await collected(config, rows_of("market_feed"), tmp_path / "out.jsonl")
    assert [record["reward"] for record in records] == [1.0] * 5


def test_bad_settings_are_reported_before_anything_starts(configure: Configure, tmp_path: Path) -> None:
    path = "resources_servers/unit_converter/configs/unit_converter.yaml"
    bad = {"unit_converter": {"resources_servers": {"unit_converter": {"factors": {"feet": -1}}}}}
    from gymnast.runtime.loader import check_settings

    (problem,) = check_settings(loaded(configure, path, {**policy(["x"]), **bad}).instance("unit_converter"))
    assert "factors must be positive" in problem.what


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "from nemo_gym.server_utils import start_ray",
            r"nemo_gym\.server_utils has no 'start_ray'.*\n.*\n.*lists the parts of `nemo_gym`",
        ),
        ("from nemo_gym import ray_utils", r"nemo_gym has no 'ray_utils'.*\n.*\n.*lists the parts of `nemo_gym`"),
        ("import packages_that_came_along", r"(?s)next:  install the package that has 'packages_that_came_along'"),
        (
            "from nemo_gym.global_config import get_global_config_dict\nA = get_global_config_dict().get('a')",
            "not available while the entry file is imported",
        ),
    ],
)
def test_what_an_entry_file_cannot_have_is_reported(configure: Configure, tmp_path: Path, text: str, said: str) -> None:
    folder = tmp_path / "resources_servers" / "odd"
    folder.mkdir(parents=True)
    (folder / "app.py").write_text(f"{text}\n")
    initial = {"odd": {"resources_servers": {"odd": {"entrypoint": "app.py", "domain": "other"}}}, **policy(["x"])}
    from gymnast.runtime.loader import load_entry

    with pytest.raises(UserError, match=said):
        load_entry(configure(initial=initial).instance("odd"))


def read_json(path: Path) -> Any:
    return json.loads(path.read_text())
