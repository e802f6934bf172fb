"""What NeMo RL's environment uses of this surface, call by call as it makes them: a change that breaks one fails here.

Its own code and tests ran on this surface from a checkout of August 2026; these are the parts that they touch.
"""

from __future__ import annotations

import inspect
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest
from nemo_gym.cli import GlobalConfigDictParserConfig, RunHelper
from nemo_gym.rollout_collection import RolloutCollectionHelper
from nemo_gym.server_utils import HEAD_SERVER_KEY_NAME, BaseServerConfig
from omegaconf import DictConfig

from gymnast.compat.nemo_gym.example_runner import RolloutFailedError
from gymnast.compat.nemo_gym.global_config import find_open_port
from gymnast.config import compose, read_environ
from gymnast.runtime.listener import Listener, loop_factory
from gymnast.runtime.ports import bind_socket
from gymnast.types.failure import FailureDetail, FailureKind, Stage
from tests.contract.nemo_gym_policy import policy
from tests.helpers.drifting_engine import DriftingEngine

AGENT = "example_multi_step_simple_agent"
CALL = '<call>get_synonym_value {"synonym": "Blazing"}</call>'

TRAINING = "responses_api_models/vllm_model/configs/vllm_model_for_training.yaml"
_STEP = "resources_servers/single_step_tool_use_with_argument_comparison/configs/{}.yaml"
SINGLE_STEP = "single_step_tool_use_with_argument_comparison"
NAMED = (
    "resources_servers/calendar/configs/calendar.yaml",
    "resources_servers/code_gen/configs/code_gen.yaml",
    "resources_servers/equivalence_llm_judge/configs/equivalence_llm_judge.yaml",
    "resources_servers/equivalence_llm_judge/configs/lc_judge.yaml",
    "resources_servers/equivalence_llm_judge/configs/nl2bash-equivalency.yaml",
    "resources_servers/example_multi_step/configs/example_multi_step.yaml",
    "resources_servers/genrm_compare/configs/genrm_compare.yaml",
    "resources_servers/instruction_following/configs/instruction_following.yaml",
    "resources_servers/math_with_judge/configs/math_with_judge.yaml",
    "resources_servers/mcqa/configs/mcqa.yaml",
    "resources_servers/multichallenge/configs/multichallenge.yaml",
    "resources_servers/reasoning_gym/configs/reasoning_gym.yaml",
    "resources_servers/structured_outputs/configs/structured_outputs_json.yaml",
    "resources_servers/structured_outputs/configs/structured_outputs_json_yaml_xml_v1.yaml",
    "resources_servers/structured_outputs/configs/structured_outputs_v3.yaml",
    "resources_servers/swerl_gen/configs/swerl_gen.yaml",
    "resources_servers/workplace_assistant/configs/workplace_assistant.yaml",
    *(_STEP.format(f"{kind}{SINGLE_STEP}") for kind in ("", "swe_pivot_", "droid_pivot_", "search_pivot_")),
    _STEP.format(f"toolcall_schema_{SINGLE_STEP}"),
)
"""The config files of built-in environments that its recipes name, each with that of the policy."""


@pytest.mark.parametrize("path", NAMED, ids=lambda path: Path(path).stem)
def test_a_config_file_of_its_recipes_loads(path: str) -> None:
    values = {"policy_base_url": ["http://h/v1"], "policy_api_key": "dummy_key", "policy_model_name": "m"}
    config = compose(read_environ(), config_paths=[TRAINING, path], values={**values, "genrm_model_name": "g"})
    config.require_valid()
    block = config.instances["policy_model"].block
    assert (block["return_token_id_information"], block["uses_reasoning_parser"]) == (True, True)


@pytest.mark.parametrize("kind", ["", "swe_pivot_", "droid_pivot_", "search_pivot_", "toolcall_schema_"])
def test_rows_of_its_datasets_find_their_agent(kind: str) -> None:
    """The name is in every row."""
    config = compose(read_environ(), config_paths=[_STEP.format(f"{kind}{SINGLE_STEP}")], model_type="embedded_model")
    assert config.agents == [f"{kind}{SINGLE_STEP}_agent"]


def test_a_component_that_is_not_built_in_says_where_it_comes_from() -> None:
    path = "resources_servers/ns_tools/configs/ns_tools.yaml"
    config = compose(read_environ(), config_paths=[path], model_type="embedded_model")
    (problem,) = config.problems
    assert "NEMO_GYM_EXTRA_ROOTS" in str(problem)


class EngineThread:
    """A drifting engine on a port, in a thread of its own: servers under test have theirs."""

    def __init__(self, engine: DriftingEngine) -> None:
        import asyncio

        self.url = ""
        self._loop = loop_factory()()
        self._stop = asyncio.Event()
        ready = threading.Event()

        async def serve() -> None:
            async with Listener(engine, bind_socket("127.0.0.1", 0, what="engine", hint="")) as listener:
                self.url = f"{listener.url}/v1"
                ready.set()
                await self._stop.wait()

        self._thread = threading.Thread(target=lambda: self._loop.run_until_complete(serve()), daemon=True)
        self._thread.start()
        assert ready.wait(300)

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(300)
        self._loop.close()


@pytest.fixture
def engine() -> DriftingEngine:
    return DriftingEngine(f"<think>hm</think>\n {CALL}", CALL, "The sum is 711.")


@pytest.fixture
def served(engine: DriftingEngine) -> Iterator[tuple[RunHelper, BaseServerConfig, EngineThread]]:
    """As its actor spins up: no command line, a dotenv path that need not exist, the policy behind a list of URLs."""
    thread, port = EngineThread(engine), find_open_port()
    initial = {
        "config_paths": ["resources_servers/example_multi_step/configs/example_multi_step.yaml", TRAINING],
        "policy_model_name": "m",
        "policy_api_key": "dummy_key",
        "policy_base_url": [thread.url],
        "default_host": "127.0.0.1",
        "port_range_low": 5000,
        "port_range_high": 5999,
        "global_aiohttp_connector_limit_per_host": 16_384,
        "global_aiohttp_connector_limit": 65_536,
        "ray_head_node_address": "127.0.0.1:6379",
        "model_endpoint_readiness_timeout_seconds": 0,
        HEAD_SERVER_KEY_NAME: {"host": "0.0.0.0", "port": port},
    }
    helper = RunHelper()
    helper.start(
        global_config_dict_parser_config=GlobalConfigDictParserConfig(
            dotenv_path=Path("/nowhere/nemo_gym_env.yaml"),
            initial_global_config_dict=DictConfig(initial),
            skip_load_from_cli=True,
        )
    )
    try:
        yield helper, BaseServerConfig(host="127.0.0.1", port=port), thread
    finally:
        helper.shutdown()
        thread.close()


def row() -> dict[str, Any]:
    data = orjson.loads(_example())
    params = data["responses_create_params"]
    params |= {"temperature": 1.0, "top_p": 1.0, "max_output_tokens": 64}
    return {**data, "agent_ref": {"type": "responses_api_agents", "name": AGENT}, "_rowidx": 0}


def _example() -> bytes:
    from gymnast.config.roots import BUILTIN

    lines = (BUILTIN / "resources_servers/example_multi_step/data/example.jsonl").read_bytes().splitlines()
    return lines[0]


async def test_a_rollout_is_contiguous_whatever_the_engine_renders(
    served: tuple[RunHelper, BaseServerConfig, EngineThread], engine: DriftingEngine
) -> None:
    """The loop of its postprocessing, which ends a training step at the first prompt that does not continue."""
    helper, head, _ = served
    helper.poll()
    (task,) = RolloutCollectionHelper().run_examples(examples=[row()], head_server_config=head)
    given, result = await task
    assert given["_rowidx"] == 0
    assert isinstance(result["reward"], float)
    assert result["responses_create_params"]["input"]
    seen: list[int] = []
    turns = 0
    for item in result["response"]["output"]:
        if not item.get("generation_token_ids"):
            continue
        assert seen == item["prompt_token_ids"][: len(seen)], "Non-contiguous messages found!"
        assert len(item["generation_token_ids"]) == len(item["generation_log_probs"])
        seen = item["prompt_token_ids"] + item["generation_token_ids"]
        turns += 1
    assert turns == 3
    assert engine.carried == [False, True, True]
    sent = engine.requests[0]
    assert (sent["temperature"], sent["top_p"], sent["max_tokens"]) == (1.0, 1.0, 64)
    assert (sent["logprobs"], sent["top_logprobs"], sent["return_tokens_as_token_ids"]) == (True, 0, True)


async def test_a_turn_that_ends_at_once_ends_the_rollout_and_not_the_training(
    served: tuple[RunHelper, BaseServerConfig, EngineThread], engine: DriftingEngine
) -> None:
    """Its servers for TensorRT-LLM leave out end tokens; its environment passes over items without sampled tokens."""
    engine.texts = [CALL, ""]
    (task,) = RolloutCollectionHelper().run_examples(examples=[row()], head_server_config=served[1])
    _, result = await task
    sampled = [item["generation_token_ids"] for item in result["response"]["output"] if "generation_token_ids" in item]
    assert [bool(ids) for ids in sampled] == [True, False]
    assert len(engine.requests) == 2, "it is not asked for again"


@pytest.mark.parametrize(
    ("kind", "status", "expected"),
    [
        (FailureKind.MODEL_UNREACHABLE, None, 503),
        (FailureKind.ROLLOUT_TIMEOUT, None, 503),
        (FailureKind.VERIFY_REJECTED, None, 422),
        (FailureKind.MODEL_REJECTED, 400, 400),
        (FailureKind.MODEL_ERROR, 500, 500),
    ],
)
def test_a_failed_row_has_a_status(kind: FailureKind, status: int | None, expected: int) -> None:
    """Its actor maps a status to an outage (5xx, 408, 429) or to bad data; a failure without one is bad data."""
    error = RolloutFailedError(FailureDetail(kind, Stage.MODEL, "message", status=status))
    assert error.status == expected


FLAGGING = """
from nemo_gym.base_resources_server import BaseVerifyRequest, BaseVerifyResponse, SimpleResourcesServer
from pydantic import ConfigDict


class Row(BaseVerifyRequest):
    verdict: dict


class Verdict(BaseVerifyResponse):
    model_config = ConfigDict(extra="allow")


class Flagging(SimpleResourcesServer):
    async def verify(self, body: Row) -> Verdict:
        return Verdict(**body.model_dump(exclude={"verdict"}), reward=1.0, **body.verdict)
"""


async def test_masks_are_where_it_reads_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It drops a sample from the loss by `instance_config` only: rows masked at the top level were trained on."""
    home = tmp_path / "resources_servers" / "flagging"
    home.mkdir(parents=True)
    (home / "app.py").write_text(FLAGGING)
    monkeypatch.setenv("NEMO_GYM_EXTRA_ROOTS", str(tmp_path))
    references = {
        "resources_server": {"type": "resources_servers", "name": "flagging"},
        "model_server": {"type": "responses_api_models", "name": "policy_model"},
    }
    port = find_open_port()
    initial = {
        **policy(["hello"]),
        "flagging": {"resources_servers": {"flagging": {"entrypoint": "app.py", "domain": "other"}}},
        "agent": {"responses_api_agents": {"simple_agent": {"entrypoint": "app.py", **references}}},
        HEAD_SERVER_KEY_NAME: {"host": "127.0.0.1", "port": port},
    }
    verdicts: list[dict[str, Any]] = [
        {},
        {"mask_sample": True},
        {"mask_sample": True, "instance_config": {"name": "django-1"}},
        {"instance_config": {"mask_sample": True}},
        {"instance_config": {"name": "django-2"}},
    ]
    rows = [
        {
            "responses_create_params": {"input": "x"},
            "verdict": verdict,
            "agent_ref": {"name": "agent"},
            "_rowidx": index,
        }
        for index, verdict in enumerate(verdicts)
    ]
    helper = RunHelper()
    helper.start(GlobalConfigDictParserConfig(initial_global_config_dict=DictConfig(initial), skip_load_from_cli=True))
    try:
        head = BaseServerConfig(host="127.0.0.1", port=port)
        found = {
            row["_rowidx"]: result
            for row, result in [await task for task in RolloutCollectionHelper().run_examples(rows, head)]
        }
    finally:
        helper.shutdown()
    assert [found[index].get("instance_config") for index in range(5)] == [
        None,
        {"mask_sample": True},
        {"name": "django-1", "mask_sample": True},
        {"mask_sample": True},
        {"name": "django-2"},
    ]
    assert [found[index].get("mask_sample", False) for index in range(5)] == [False, True, True, False, False]


def test_the_names_and_arguments_that_it_uses() -> None:
    assert {"dotenv_path", "initial_global_config_dict", "skip_load_from_cli"} <= set(
        inspect.signature(GlobalConfigDictParserConfig).parameters
    )
    assert {"examples", "head_server_config"} <= set(inspect.signature(RolloutCollectionHelper.run_examples).parameters)
    assert "global_config_dict_parser_config" in inspect.signature(RunHelper.start).parameters
    assert HEAD_SERVER_KEY_NAME == "head_server"
    assert {"poll", "shutdown"} <= set(dir(RunHelper))


def test_servers_that_stopped_are_reported() -> None:
    with pytest.raises(RuntimeError, match="not running"):
        RunHelper().poll()
