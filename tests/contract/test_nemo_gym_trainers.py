"""What the environments of trainers call: servers started from a program, rows run through them, one awaitable each."""

from __future__ import annotations

import asyncio
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest
from nemo_gym.cli import GlobalConfigDictParserConfig, RunHelper
from nemo_gym.global_config import get_first_server_config_dict, get_global_config_dict
from nemo_gym.rollout_collection import RolloutCollectionConfig, RolloutCollectionHelper
from nemo_gym.server_utils import (
    HEAD_SERVER_KEY_NAME,
    BaseServerConfig,
    ServerClient,
    get_response_json,
    get_server_url,
    raise_for_status,
)
from omegaconf import DictConfig

from gymnast.compat.nemo_gym.context import PROCESS, close_session
from gymnast.compat.nemo_gym.example_runner import RolloutFailedError
from gymnast.compat.nemo_gym.global_config import find_open_port
from gymnast.errors import ConfigError, DataError, MissingRolloutsError, NotFoundError
from tests.contract.nemo_gym_policy import CHECKOUT, PLAYED, policy
from tests.helpers.jsonl import read_jsonl

Started = tuple[RunHelper, BaseServerConfig]


@pytest.fixture(scope="module")
def started() -> Iterator[Started]:
    """A serve in this process, as the actor of a trainer starts it."""
    initial: dict[str, Any] = {
        **policy(PLAYED["weather_desk"].turns, {"when": "HANG", "replies": [{"hang": True}]}),
        "config_paths": [str(CHECKOUT / "resources_servers/weather_desk/configs/weather_desk.yaml")],
        HEAD_SERVER_KEY_NAME: {"host": "127.0.0.1", "port": find_open_port()},
        "policy_base_url": ["http://127.0.0.1:1/v1"],
        "global_aiohttp_connector_limit_per_host": 16_384,
    }
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NEMO_GYM_EXTRA_ROOTS", str(CHECKOUT))
        helper = RunHelper()
        helper.start(
            GlobalConfigDictParserConfig(initial_global_config_dict=DictConfig(initial), skip_load_from_cli=True)
        )
    try:
        yield helper, BaseServerConfig(**initial[HEAD_SERVER_KEY_NAME])
    finally:
        helper.shutdown()


def rows(*, count: int = 5, **more: Any) -> list[dict[str, Any]]:
    found = read_jsonl(CHECKOUT / "resources_servers/weather_desk/data/example.jsonl")[:count]
    ref = {"type": "responses_api_agents", "name": "weather_desk_agent"}
    return [{**row, "agent_ref": ref, "_rowidx": index, **more} for index, row in enumerate(found)]


async def test_rows_come_back_with_their_results(started: Started) -> None:
    found: dict[int, dict[str, Any]] = {}
    for task in RolloutCollectionHelper().run_examples(examples=rows(), head_server_config=started[1]):
        row, result = await task
        found[row["_rowidx"]] = result
    assert [found[index]["reward"] for index in range(5)] == [1.0, 0.0, 0.0, 0.0, 0.0]
    assert found[0]["response"]["output"][0]["type"] == "function_call"
    assert found[0]["agent_ref"]["name"] == "weather_desk_agent"


async def test_a_semaphore_bounds_them(started: Started) -> None:
    tasks = RolloutCollectionHelper().run_examples(rows(), started[1], semaphore=asyncio.Semaphore(1))
    assert len([await task for task in tasks]) == 5


async def test_the_configuration_says_where_everything_is(started: Started) -> None:
    config = get_global_config_dict()
    block = get_first_server_config_dict(config, "weather_desk")
    assert get_server_url("weather_desk") == f"http://127.0.0.1:{block['port']}"
    client = RolloutCollectionHelper().setup_server_client(started[1])
    assert isinstance(client, ServerClient)
    assert client.poll_for_status("weather_desk") == "success"
    reply = await client.post("weather_desk", "/get_weather", json={"city": "Oslo"})
    await raise_for_status(reply)
    assert await get_response_json(reply) == {"city": "Oslo", "weather": "It is sunny in Oslo."}
    await close_session()


async def test_a_head_server_for_other_machines_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """As the actor of NeMo RL has it: the servers ask for a token, which a client of the head server knows."""
    monkeypatch.setattr(PROCESS, "config", None)
    monkeypatch.setenv("NEMO_GYM_EXTRA_ROOTS", str(CHECKOUT))
    port = find_open_port()
    initial = {
        **policy(["sunny"]),
        "config_paths": [str(CHECKOUT / "resources_servers/weather_desk/configs/weather_desk.yaml")],
        HEAD_SERVER_KEY_NAME: {"host": "0.0.0.0", "port": port},
        "ray_head_node_address": "127.0.0.1:6379",
        "use_absolute_ip": True,
    }
    helper = RunHelper()
    helper.start(GlobalConfigDictParserConfig(initial_global_config_dict=initial, skip_load_from_cli=True))
    try:
        head = BaseServerConfig(host="127.0.0.1", port=port)
        (task,) = RolloutCollectionHelper().run_examples(rows(count=1), head)
        assert (await task)[1]["reward"] == 0.0
        reply = (
            await RolloutCollectionHelper()
            .setup_server_client(head)
            .post("weather_desk", "/get_weather", json={"city": "Oslo"})
        )
        assert reply.status == 200
    finally:
        await close_session()
        helper.shutdown()


async def test_a_row_that_fails_raises_with_its_record(started: Started) -> None:
    bad, good = rows(count=1, expected_city=5), rows(count=1)
    outcomes: list[Any] = []
    for task in RolloutCollectionHelper().run_examples([*bad, *good], started[1]):
        try:
            outcomes.append((await task)[1]["reward"])
        except RolloutFailedError as error:
            outcomes.append(pickle.loads(pickle.dumps(error)))
    (failed,) = [outcome for outcome in outcomes if isinstance(outcome, RolloutFailedError)]
    assert 1.0 in outcomes
    assert (failed.detail.kind, failed.record["failure"]["layer"]) == ("verify_rejected", "data_schema")
    assert failed.record["attempts"] == 1


async def test_a_row_without_an_agent_is_refused_before_anything_runs(started: Started) -> None:
    with pytest.raises(DataError, match="1 of 2 examples have no agent"):
        RolloutCollectionHelper().run_examples([*rows(count=1), {"responses_create_params": {}}], started[1])


async def test_rows_that_end_without_a_word_are_missing(started: Started) -> None:
    tasks = RolloutCollectionHelper().run_examples(rows(), started[1])
    first = next(tasks)
    await asyncio.sleep(0)
    for task in asyncio.all_tasks() - {asyncio.current_task()}:
        task.cancel()
    with pytest.raises(MissingRolloutsError, match="5 of 5 examples ended without a result or a failure"):
        await first


async def test_a_row_has_a_deadline(started: Started) -> None:
    helper = RolloutCollectionHelper(rollout_timeout_s=0.3)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NEMO_GYM_MAX_ROLLOUT_ATTEMPTS", "1")
        (task,) = helper.run_examples(rows(count=1, responses_create_params={"input": "HANG"}), started[1])
    with pytest.raises(RolloutFailedError, match=r"within 0\.3 s"):
        await task


async def test_a_whole_run_has_its_files(started: Started, tmp_path: Any) -> None:
    source = CHECKOUT / "resources_servers/weather_desk/data/example.jsonl"
    config = RolloutCollectionConfig(
        agent_name="weather_desk_agent",
        input_jsonl_fpath=str(source),
        output_jsonl_fpath=str(tmp_path / "out.jsonl"),
        num_repeats=2,
    )
    (results,) = await RolloutCollectionHelper().run_from_config(config)
    assert len(results) == 10
    assert config.materialized_jsonl_fpath.exists()
    left, inputs, again, _ = RolloutCollectionHelper()._load_from_cache(config)
    assert (left, len(inputs), len(again)) == ([], 10, 10)
    assert len(RolloutCollectionHelper()._preprocess_rows_from_config(config)) == 10


async def test_no_head_server_is_reported() -> None:
    nobody = BaseServerConfig(host="127.0.0.1", port=find_open_port())
    (task,) = RolloutCollectionHelper().run_examples(rows(count=1), nobody)
    with pytest.raises(NotFoundError, match="no head server answers"):
        await task


def test_a_configuration_that_cannot_be_started_raises_where_it_is_started() -> None:
    wrong = {"config_paths": ["resources_servers/nowhere/configs/nowhere.yaml"]}
    with pytest.raises(ConfigError, match="nowhere"):
        RunHelper().start(GlobalConfigDictParserConfig(initial_global_config_dict=wrong, skip_load_from_cli=True))


class OwnClientHelper(RolloutCollectionHelper):
    """A helper whose rows go to a client of its own."""

    def setup_server_client(self, head_server_config: Any = None) -> Any:
        return OwnClient()


class OwnClient:
    """Scores rows that say so, and reports the others as failed."""

    async def post(self, server_name: str, url_path: str, json: Any = None, cookies: Any = None) -> Any:
        if url_path == "/aggregate_metrics":
            return OwnReply({"agent_metrics": {"rows": len(json["verify_responses"])}})
        is_good = "good" in str(json["responses_create_params"]["input"])
        failed = {} if is_good else {"_ng_failure_class": "remote_failed", "error": "HTTP 500"}
        return OwnReply({**json, "response": {"output": []}, "reward": float(is_good), **failed})


class OwnReply:
    """A reply of the client."""

    status = 200
    ok = True

    def __init__(self, body: Any) -> None:
        self._body = body

    async def read(self) -> bytes:
        return orjson.dumps(self._body)


async def test_a_helper_with_a_client_of_its_own(tmp_path: Path) -> None:
    source = tmp_path / "in.jsonl"
    source.write_bytes(
        b"\n".join(orjson.dumps({"responses_create_params": {"input": text}}) for text in ("good", "bad"))
    )
    config = RolloutCollectionConfig(
        input_jsonl_fpath=str(source), output_jsonl_fpath=str(tmp_path / "out.jsonl"), agent_name="far"
    )
    (rows,) = await OwnClientHelper().run_from_config(config)
    assert [row["reward"] for row in rows] == [1.0]
    (failure,) = read_jsonl(tmp_path / "out_failures.jsonl")
    assert (failure["_ng_failure_class"], failure["error"]) == ("remote_failed", "HTTP 500")
    (entry,) = orjson.loads((tmp_path / "out_aggregate_metrics.json").read_bytes())
    assert entry["agent_metrics"] == {"rows": 1}
