"""The smaller parts of the surface, by what their names promise."""

from __future__ import annotations

import importlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from fastapi.testclient import TestClient
from nemo_gym.base_responses_api_agent import BaseResponsesAPIAgentConfig, SimpleResponsesAPIAgent
from nemo_gym.base_responses_api_model import (
    CaptureStore,
    ModelCallRecord,
    _CaptureMiddleware,
    merge_model_call_capture_into_record,
)
from nemo_gym.benchmarks import BenchmarkConfig
from nemo_gym.global_config import GlobalConfigDictParserConfig
from nemo_gym.openai_utils import (
    NeMoGymAsyncOpenAI,
    NeMoGymResponse,
    NeMoGymResponseCreateParamsNonStreaming,
    NeMoGymResponseUsage,
    accumulate_response_usage,
)
from nemo_gym.prompt import PromptConfig, apply_prompt_to_row, fill_prompt
from nemo_gym.responses_converter import VLLMConverter, _usage_detail, split_responses_input_output_items
from nemo_gym.reward_profile import (
    add_avg_sample_std_dev,
    compute_aggregate_metrics,
    compute_pass_majority_metrics,
    highest_k_metrics,
)
from nemo_gym.rollout_collection import _attach_trajectory_record
from nemo_gym.rollout_observability import (
    AgentInvocation,
    AgentObservationBundle,
    ModelCallRef,
    ToolCallObservation,
)
from nemo_gym.sandbox import (
    AsyncSandbox,
    Sandbox,
    SandboxCreateError,
    SandboxHandle,
    SandboxSpec,
    SandboxStatus,
    get_provider_class,
    list_providers,
    resolve_provider_config,
    resolve_provider_metadata,
    rewrite_image,
)
from nemo_gym.sandbox.providers.apptainer import ApptainerProvider
from nemo_gym.sandbox.providers.docker import DockerCreateConfig, DockerProvider
from nemo_gym.server_metadata import visit_agent_server, visit_resources_server
from nemo_gym.server_utils import BaseServerConfig, ServerClient, apply_rollout_prefix, request
from nemo_gym.skills import stage_skills
from omegaconf import OmegaConf
from pydantic import ValidationError

from gymnast.compat.nemo_gym.context import close_session
from gymnast.compat.nemo_gym.model_call_joins import join_model_call_observations
from gymnast.errors import NotFoundError
from tests.contract.nemo_gym_policy import CHECKOUT
from tests.helpers.parts import needs

needs_bubblewrap = needs("bubblewrap")
USAGE: dict[str, Any] = {
    "input_tokens": 3,
    "input_tokens_details": {"cached_tokens": 1},
    "output_tokens": 4,
    "output_tokens_details": {"reasoning_tokens": None},
    "total_tokens": 7,
}


# --- types -----------------------------------------------------------------------------------------------------------


def test_training_fields_come_all_or_not_at_all() -> None:
    message = {"id": "m", "type": "message", "role": "assistant", "status": "completed", "content": []}
    base = {
        "id": "r",
        "created_at": 0,
        "model": "m",
        "object": "response",
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
    }
    tokens = {"prompt_token_ids": [1], "generation_token_ids": [2], "generation_log_probs": [-0.5]}
    whole = NeMoGymResponse.model_validate({**base, "output": [{**message, **tokens}], "of_mine": 1})
    assert whole.model_dump()["output"][0]["generation_log_probs"] == [-0.5]
    assert whole.model_dump()["of_mine"] == 1
    with pytest.raises(ValidationError, match="generation_log_probs"):
        NeMoGymResponse.model_validate({**base, "output": [{**message, "prompt_token_ids": [1]}]})
    with pytest.raises(ValidationError, match="must say its `type`"):
        NeMoGymResponse.model_validate({**base, "output": [{"role": "user", "content": "x"}]})


def test_create_params_refuse_what_is_unknown_and_forgive_items() -> None:
    item = {"role": "user", "content": [{"type": "input_text", "text": "x"}], "of_mine": 1}
    params = NeMoGymResponseCreateParamsNonStreaming.model_validate({"input": [item]})
    assert params.model_dump()["input"][0] == {"role": "user", "content": item["content"], "type": "message"}
    with pytest.raises(ValidationError, match="top_k"):
        NeMoGymResponseCreateParamsNonStreaming.model_validate({"input": "x", "top_k": 1})
    tool = {"type": "function", "name": "f", "parameters": {}}
    with pytest.raises(ValidationError, match="strict"):
        NeMoGymResponseCreateParamsNonStreaming.model_validate({"input": "x", "tools": [tool]})


def test_usage_adds_up_and_unknown_stays_unknown() -> None:
    usage = NeMoGymResponseUsage.model_validate(USAGE)
    total = accumulate_response_usage(accumulate_response_usage(None, usage), usage)
    assert total is not None
    assert (total.total_tokens, total.input_tokens_details.cached_tokens) == (14, 2)
    assert total.output_tokens_details.reasoning_tokens is None
    assert NeMoGymResponseUsage.sum_from_list([usage, usage, usage]).input_tokens == 9
    assert _usage_detail(usage, "input_tokens_details", "cached_tokens") == 1
    assert (
        _usage_detail({"cached_input_tokens": 5}, "input_tokens_details", "cached_tokens", "cached_input_tokens") == 5
    )


def test_a_chat_as_items_and_what_came_before_the_model_spoke() -> None:
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    tokens = {"prompt_token_ids": [1], "generation_token_ids": [2], "generation_log_probs": [-0.5]}
    chat: list[dict[str, Any]] = [
        {"role": "system", "content": "s"},
        {"role": "user", "content": "u"},
        {"role": "assistant", "content": "<think>t</think>a", "tool_calls": [call], **tokens},
        {"role": "tool", "tool_call_id": "c", "content": "o"},
    ]
    converter = VLLMConverter(return_token_id_information=True)
    items = converter.chat_completions_messages_to_responses_items(chat)
    before, after = split_responses_input_output_items(items)
    kinds = ["reasoning", "message", "function_call", "function_call_output"]
    assert [getattr(item, "role", None) for item in before] == ["system", "user"]
    assert [getattr(item, "type", None) for item in after] == kinds
    assert getattr(after[2], "generation_token_ids", None) == [2]
    again = converter.responses_to_chat_completion_create_params(
        NeMoGymResponseCreateParamsNonStreaming.model_validate({"input": items})
    )
    said: Any = again.messages[2]
    assert (said["content"], said["generation_token_ids"]) == ("<think>t</think>a", [2])


# --- metrics, prompts, paths -----------------------------------------------------------------------------------------


def test_metrics_by_k() -> None:
    tasks: list[list[dict[str, Any]]] = [
        [{"reward": 1.0, "a": "x"}, {"reward": 0.0, "a": None}],
        [{"reward": 0.0, "a": "y"}] * 2,
    ]
    metrics, scores, names, most = compute_pass_majority_metrics(tasks, answer_key="a")
    assert (metrics["pass@2/accuracy"], metrics["pass@1[avg-of-2]/no_answer"]) == (50.0, 25.0)
    assert (names, most) == (["accuracy", "no_answer"], 2)
    add_avg_sample_std_dev(metrics, scores, names, most)
    assert metrics["pass@1[avg-of-2]/accuracy/avg_sample_std_dev"] == pytest.approx(0.5**0.5 / 2)
    assert highest_k_metrics(metrics, "pass@1[avg-of-{k}]", score_names=["accuracy"]) == {
        "pass@1[avg-of-2]/accuracy": 25.0
    }
    doubled, *_ = compute_pass_majority_metrics(tasks, score_fn=lambda row: {"half": row["reward"] / 2})
    assert doubled["pass@1/half"] == 25.0


def test_a_missing_score_costs_only_itself() -> None:
    tasks: list[list[dict[str, Any]]] = [
        [{"reward": 1.0, "judge": 1.0, "a": "x"}, {"reward": 0.0, "a": "y"}],
        [{"reward": 1.0, "judge": None, "a": "x"}],
    ]

    def score(row: dict[str, Any]) -> dict[str, Any]:
        return {"accuracy": row["reward"], **({"judged": row["judge"]} if "judge" in row else {})}

    metrics, _, names, _ = compute_pass_majority_metrics(tasks, score_fn=score, answer_key="a")
    assert names == ["accuracy", "judged", "no_answer"]
    assert (metrics["pass@1/judged"], metrics["majority@2/judged"]) == (100.0, 50.0)
    assert metrics["pass@1[avg-of-2]/accuracy"] == 75.0
    assert metrics["majority@1/no_answer"] == 0.0
    assert metrics["per_sample_aggregate"]["judged"] == [100.0]


def test_groups_list_their_rollouts() -> None:
    usage = {"response": {"usage": {"input_tokens": 3}}}
    rows = [{"_ng_task_index": 7, "_ng_rollout_index": index, "reward": float(index), **usage} for index in (1, 0)]
    (group,) = compute_aggregate_metrics(rows).group_level_metrics
    assert (group["num_rollouts"], group["missing_num_rollouts"], group["mean/reward"]) == (2, 0, 0.5)
    first = {"rollout_id": "7:0", "_ng_task_index": 7, "_ng_rollout_index": 0, "reward": 0.0, "input_tokens": 3}
    assert group["rollout_infos"][0] == first


def test_prompts() -> None:
    config = PromptConfig(user="Q: {question}", system="be brief")
    filled = [{"role": "system", "content": "be brief"}, {"role": "user", "content": "Q: why?"}]
    assert fill_prompt(config, {"question": "why?"}) == filled
    row = apply_prompt_to_row({"question": "why?", "responses_create_params": {"temperature": 0.5}}, config)
    assert row["responses_create_params"] == {"temperature": 0.5, "input": filled}


def test_prefixes_stand_before_v1() -> None:
    assert apply_rollout_prefix("http://h:1/v1", "3-0") == "http://h:1/ng-rollout/3-0/v1"
    assert apply_rollout_prefix("http://h:1", None) == "http://h:1"


def test_skills_are_copied(tmp_path: Path) -> None:
    (tmp_path / "from" / "cook").mkdir(parents=True)
    (tmp_path / "from" / "cook" / "SKILL.md").write_text("stir")
    stage_skills(str(tmp_path / "from"), tmp_path / "to")
    assert (tmp_path / "to" / "cook" / "SKILL.md").read_text() == "stir"
    with pytest.raises(ValueError, match="does not exist"):
        stage_skills(str(tmp_path / "nowhere"), tmp_path / "to")


# --- observability ---------------------------------------------------------------------------------------------------


def test_captures_are_read_back_and_attached(tmp_path: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(CHECKOUT))
        echo = importlib.import_module("responses_api_models.echo_model.app")
    told = OmegaConf.create({"observability_enabled": True, "model_call_capture_dir": str(tmp_path)})
    client = ServerClient(head_server_config=BaseServerConfig(host="h", port=1), global_config_dict=told)
    config = echo.EchoModelConfig(host="h", port=1, entrypoint="app.py", name="echo")
    app = echo.EchoModel(config=config, server_client=client).setup_webserver()
    assert any(layer.cls is _CaptureMiddleware for layer in app.user_middleware)
    web_client = TestClient(app)
    web_client.post("/ng-rollout/4-1/v1/responses", json={"input": "hi"})
    web_client.post("/v1/responses", json={"input": "not mine"})
    web_client.post("/ng-rollout/4-1/v1/responses", json={"inputs": "bad"})
    store = CaptureStore(tmp_path)
    with store.path_for("4-1").open("ab") as torn:
        torn.write(b'{"torn')
    assert store.read_available("4-1")[1] == 1
    row = merge_model_call_capture_into_record({"_ng_task_index": 4, "_ng_rollout_index": 1}, [tmp_path])
    capture = row["ng_model_call_capture"]
    assert [call["error_category"] for call in capture["calls"]] == [None, "client_error"]
    assert (capture["calls"][0]["tokens_in"], capture["metrics"]["num_calls"]) == (2, 2)
    assert "request" not in capture["calls"][0]
    with pytest.raises(ValueError, match="invalid rollout id"):
        store.path_for("../../elsewhere")


def test_a_trajectory_is_made_of_what_an_agent_told() -> None:
    call = ToolCallObservation(invocation_id="i", tool_call_id="c", tool_name="f", started_at=1.0, completed_at=2.0)
    bundle = AgentObservationBundle(source="agent", records=[call])
    output = [{"type": "function_call_output", "call_id": "c", "output": "42"}]
    result = {"ng_agent_observations": bundle.model_dump(), "response": {"output": output}}
    _attach_trajectory_record({"_ng_task_index": 4, "_ng_rollout_index": 1, "problem_id": "p"}, result)
    made: Any = result["ng_trajectory"]
    assert (made["task_id"], made["rollout_id"], made["tool_calls"][0]["output"]) == ("p", "4-1", "42")
    with pytest.raises(ValidationError, match="needs a model_call_id or a response_id"):
        ModelCallRef()
    with pytest.raises(ValidationError, match="completed_at must not be before started_at"):
        ToolCallObservation(invocation_id="i", tool_call_id="c", started_at=2.0, completed_at=1.0)
    loop = [AgentInvocation(invocation_id=a, parent_invocation_id=b) for a, b in (("x", "y"), ("y", "x"))]
    with pytest.raises(ValidationError, match="must not form a cycle"):
        AgentObservationBundle(source="agent", records=loop)


def test_what_an_agent_recorded_and_what_was_captured_become_one() -> None:
    ref = {"type": "responses_api_models", "name": "policy"}
    said = AgentInvocation(
        invocation_id="i",
        model_calls=[ModelCallRef.model_validate({"model_ref": ref, "response_id": "r1"})],
        conversation=[{"role": "user", "content": "q"}],
    )
    bundle = AgentObservationBundle(source="agent", records=[said])
    known: list[dict[str, Any]] = [{"response_id": "r1", "tokens_in": 3}, {"response_id": "r2"}]
    calls = [
        ModelCallRecord.model_validate({"call_index": index, "model_call_id": f"c{index}", "model_ref": ref, **more})
        for index, more in enumerate(known)
    ]
    joined = join_model_call_observations(bundle, calls)
    assert isinstance(joined.records[0], AgentInvocation)
    assert [call.model_call_id for call in joined.records[0].model_calls] == ["c0"]
    assert [(gap.code, gap.detail) for gap in joined.gaps] == [
        ("model_call_ownership_unavailable", "capture:c1:call_index=1")
    ]
    capture = {"calls": [call.model_dump() for call in calls]}
    result: dict[str, Any] = {"ng_agent_observations": joined.model_dump(), "ng_model_call_capture": capture}
    _attach_trajectory_record({"_ng_task_index": 4, "_ng_rollout_index": 1}, result)
    made = result["ng_trajectory"]
    assert [call["response_metadata"]["response_id"] for call in made["model_calls"]] == ["r1", "r2"]
    assert made["model_calls"][0]["token_stats"]["prompt_tokens"] == 3
    assert "turns_unavailable" in {gap["code"] for gap in made["gaps"]}
    assert all("request" not in call for call in capture["calls"])


def test_an_agent_tells_rollouts_apart_where_that_is_wanted() -> None:
    class Agent(SimpleResponsesAPIAgent):
        async def responses(self, body: Any = None) -> Any: ...

        async def run(self, body: Any = None) -> Any: ...

    def agent(**told: Any) -> Agent:
        model = {"responses_api_models": {"vllm": {"host": "h", "port": 8}}}
        config = OmegaConf.create({"policy_model": model, **told})
        client = ServerClient(head_server_config=BaseServerConfig(host="h", port=1), global_config_dict=config)
        own = BaseResponsesAPIAgentConfig(host="h", port=1, entrypoint="app.py", name="a", token_id_capture=True)
        return Agent(config=own, server_client=client)

    row = {"_ng_task_index": 3, "_ng_rollout_index": 0, "_ng_attempt_index": 2}
    assert agent().url_path_for_run("/v1/responses", row) == "/v1/responses"
    assert agent().resolve_model_base_url("policy_model") == "http://h:8/v1"
    assert agent().resolve_model_base_url("policy_model", "3-0") == "http://h:8/ng-rollout/3-0/v1"
    seen = agent(observability_enabled=True)
    assert seen.url_path_for_run("/v1/responses", row) == "/ng-rollout/3-0-a2/v1/responses"
    kept = agent(token_id_capture={"enabled": True})
    wanted = "http://h:8/ng-rollout/3-0/training-token-capture/v1"
    assert kept.resolve_model_base_url("policy_model", "3-0") == wanted
    assert kept.base_url_for_run("http://h:8/v1", row).startswith("http://h:8/ng-rollout/3-0-a2/")


# --- sandboxes -------------------------------------------------------------------------------------------------------


@needs_bubblewrap
async def test_a_sandbox_keeps_its_files_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "in.txt").write_text("hello\n")
    async with AsyncSandbox({"bubblewrap": {}}, SandboxSpec(files={"a/b.txt": "begun"}, env={"WHO": "me"})) as box:
        await box.upload(tmp_path / "in.txt", "/given/in.txt")
        done = await box.exec("cat a/b.txt given/in.txt; echo $WHO > out.txt; exit 3")
        assert (done.stdout, done.return_code) == ("begunhello\n", 3)
        await box.download("out.txt", tmp_path / "got" / "out.txt")
        assert (tmp_path / "got" / "out.txt").read_text() == "me\n"
        assert (await box.exec("sleep 30", timeout_s=0.3)).error_type == "timeout"
        assert (await box.exec(f"ls {Path(__file__).parent}")).return_code != 0
        with pytest.raises(ValueError, match="is outside of the sandbox"):
            await box.download("../../etc/passwd", tmp_path / "x")
        again = await AsyncSandbox.connect(await box.serialize(), provider=box._provider)
        assert (await again.exec("cat out.txt")).stdout == "me\n"
        assert await box.status() is SandboxStatus.RUNNING
    assert await box.status() is SandboxStatus.STOPPED


@needs_bubblewrap
def test_a_sandbox_without_awaiting() -> None:
    with Sandbox("bubblewrap") as box:
        assert box.exec("echo hi").stdout == "hi\n"


def test_providers_by_name_and_inline() -> None:
    named = {"farm": {"docker": {"network": "none"}, "default_metadata": {"team": "a"}}}
    assert resolve_provider_config("farm", named) == {"docker": {"network": "none"}}
    assert resolve_provider_metadata("farm", named) == {"team": "a"}
    assert resolve_provider_config({"apptainer": None}) == {"apptainer": {}}
    assert {"apptainer", "bubblewrap", "docker"} <= set(list_providers())
    with pytest.raises(NotFoundError, match="unknown sandbox provider 'frm'"):
        resolve_provider_config("frm", named)


class LeasedProvider:
    """A provider with a connection of its own, whose sandboxes cannot take files."""

    name = "leased"

    def __init__(self) -> None:
        self.events: list[str] = []

    async def create(self, spec: SandboxSpec) -> SandboxHandle:
        self.events.append("create")
        return SandboxHandle("s", self.name, {})

    async def upload_file(self, handle: SandboxHandle, source_path: Path, target_path: str) -> None:
        raise OSError("disk full")

    async def close(self, handle: SandboxHandle) -> None:
        self.events.append("close")

    async def aclose(self) -> None:
        self.events.append("aclose")


async def test_stopping_a_sandbox_closes_its_provider() -> None:
    provider: Any = LeasedProvider()
    async with AsyncSandbox(provider, SandboxSpec()) as box:
        await box.start()
    assert provider.events == ["create", "close", "aclose"]
    provider.events.clear()
    with pytest.raises(OSError, match="disk full"):
        await AsyncSandbox(provider).start(SandboxSpec(files={"a": "b"}))
    assert provider.events == ["create", "close", "aclose"]


def test_providers_that_are_not_here_are_known_by_name() -> None:
    unavailable = get_provider_class("opensandbox")
    with pytest.raises(SandboxCreateError, match="Gymnast has no sandbox provider 'opensandbox'"):
        unavailable()
    with pytest.raises(ValueError, match="unknown sandbox provider 'opensandbx'"):
        get_provider_class("opensandbx")
    assert SandboxSpec(ports=[80, 81]).ports == (80, 81)


def test_the_command_that_makes_a_container() -> None:
    provider = DockerProvider(DockerCreateConfig(network="none"))
    spec = SandboxSpec(image="img", workdir="/w", env={"A": "1"}, resources={"cpu": 2, "memory_mib": 512}, ports=[80])
    words = " ".join(provider.create_command("docker", "n", spec))
    assert words == (
        "docker run --detach --init --name n --pull missing --network none --workdir /w --cpus 2 --memory 512m"
        " --env A=1 --publish 127.0.0.1::80 --entrypoint sleep img infinity"
    )
    with pytest.raises(SandboxCreateError, match="needs an image"):
        provider.create_command("docker", "n", SandboxSpec())


def test_settings_of_containers_reach_their_commands() -> None:
    create = {"extra_run_args": ["-v", "/a:/b"], "cap_drop": ["ALL"], "pids_limit": 9, "concurrency": 4}
    docker = DockerProvider(create=create)
    words = docker.create_command("docker", "n", SandboxSpec(image="img"))
    assert {"--cap-drop=ALL", "--pids-limit=9", "/a:/b"} <= set(words)
    exec_block = {"default_binds": ["/a:/b:ro"], "extra_exec_args": ["--cleanenv"]}
    apptainer = ApptainerProvider(
        create={"extra_start_args": ["--writable-tmpfs", "--no-mount", "home"]}, exec=exec_block
    )
    assert apptainer.start_command("apptainer", "n", SandboxSpec(image="img", env={"A": "1"})) == [
        *("apptainer", "instance", "start", "--containall", "--bind", "/a:/b:ro"),
        *("--writable-tmpfs", "--no-mount", "home", "--env", "A=1", "img", "n"),
    ]
    with pytest.raises(ValueError, match="unknown setting 'extra_run_arg' of the sandbox provider"):
        DockerProvider(create={"extra_run_arg": []})


def test_images_are_rewritten() -> None:
    rewrites = [{"from": "docker.io/", "to": "mirror/"}]
    assert rewrite_image("docker.io/a:1", rewrites) == "mirror/a:1"
    assert rewrite_image("quay.io/a:1", rewrites) == "quay.io/a:1"
    assert rewrite_image(None, rewrites) is None


# --- HTTP ------------------------------------------------------------------------------------------------------------


@pytest.fixture
async def endpoint() -> AsyncIterator[tuple[str, list[Any]]]:
    """An endpoint that is busy twice, then answers."""
    seen: list[Any] = []

    async def answer(asked: web.Request) -> web.Response:
        seen.append(
            (asked.path, asked.headers.get("Authorization"), await asked.json() if asked.can_read_body else None)
        )
        if len(seen) < 3:
            return web.json_response({"detail": "busy"}, status=503, headers={"Retry-After": "0.01"})
        return web.json_response({"ok": True})

    app = web.Application()
    app.router.add_route("*", "/{tail:.*}", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    yield f"http://127.0.0.1:{runner.addresses[0][1]}", seen
    await close_session()
    await runner.cleanup()


async def test_a_busy_endpoint_is_asked_again(endpoint: tuple[str, list[Any]], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gymnast.compat.nemo_gym.model_client.MAX_PAUSE_S", 0.05)
    url, seen = endpoint
    client = NeMoGymAsyncOpenAI(base_url=f"{url}/v1", api_key="k")
    assert await client.create_chat_completion(model="m", messages=[]) == {"ok": True}
    assert seen == [("/v1/chat/completions", "Bearer k", {"model": "m", "messages": []})] * 3
    assert await client.create_tokenize(prompt="x") == {"ok": True}
    assert seen[-1][0] == "/tokenize"


async def test_requests_go_anywhere(endpoint: tuple[str, list[Any]]) -> None:
    url, seen = endpoint
    reply = await request("PUT", f"{url}/thing", params={"a": "1"}, json={"b": 2}, cookies={"c": "3"})
    assert (reply.status, seen[0][0], seen[0][2]) == (503, "/thing", {"b": 2})


# --- benchmarks and what a config says about itself ------------------------------------------------------------------


def test_the_benchmark_of_a_config(tmp_path: Path) -> None:
    dataset = {"name": "q", "type": "benchmark", "jsonl_fpath": "q.jsonl", "prepare_script": "p.py", "num_repeats": 4}
    server = {"entrypoint": "app.py", "domain": "math", "verified": True}
    agent: dict[str, Any] = {"entrypoint": "app.py", "datasets": [dataset]}
    agent["resources_server"] = {"type": "resources_servers", "name": "mcqa"}
    agent["model_server"] = {"type": "responses_api_models", "name": "policy_model"}
    config = {
        "mcqa": {"resources_servers": {"mcqa": server}},
        "quiz_agent": {"responses_api_agents": {"simple_agent": agent}},
    }
    path = tmp_path / "config.yaml"
    OmegaConf.save(OmegaConf.create(config), path)
    benchmark = BenchmarkConfig.from_config_path(path)
    assert benchmark is not None
    assert (benchmark.name, benchmark.agent_name, benchmark.num_repeats) == ("q", "quiz_agent", 4)
    agent["datasets"] = [dataset, {**dataset, "name": "r"}]
    with pytest.raises(ValueError, match="expected one benchmark dataset, found 2"):
        BenchmarkConfig.from_initial_config_dict(path, OmegaConf.create(config))
    agent["datasets"] = []
    assert BenchmarkConfig.from_initial_config_dict(path, OmegaConf.create(config)) is None
    assert visit_resources_server(config).to_dict()["domain"] == "math"
    assert visit_agent_server(config).domain is None
    stub = GlobalConfigDictParserConfig.NO_MODEL_GLOBAL_CONFIG_DICT
    assert "dummy_model" in stub.policy_model.responses_api_models


def test_what_a_reply_says_is_read_in_every_dialect() -> None:
    from gymnast.compat.nemo_gym.reply_parts import parse_reply

    call = {"call_id": "c1", "name": "look", "arguments": {"at": "sky"}}
    item = {"type": "function_call", "call_id": "c1", "name": "look", "arguments": '{"at": "sky"}'}
    thought = {"type": "reasoning", "summary": [{"text": "hm"}, {"text": ""}, "odd"]}
    assert parse_reply({"output": [thought, item, 7], "incomplete_details": {"reason": "max_output_tokens"}}) == (
        [call],
        "hm",
        "max_output_tokens",
    )
    function = {"name": "look", "arguments": '{"at": "sky"}'}
    message = {"reasoning": "hm", "tool_calls": [{"id": "c1", "function": function}, None]}
    assert parse_reply({"choices": [{"message": message, "finish_reason": "tool_calls"}]}) == (
        [call],
        "hm",
        "tool_calls",
    )
    blocks = [
        {"type": "thinking", "thinking": "hm"},
        {"type": "tool_use", "id": "c1", "name": "look", "input": {"at": "sky"}},
    ]
    assert parse_reply({"content": blocks, "stop_reason": "tool_use"}) == ([call], "hm", "tool_use")
    assert parse_reply({"output": [{**item, "arguments": "{"}]}).tool_calls[0]["arguments"] == {"_raw": "{"}
    assert parse_reply({"choices": None, "content": "text", "output": {}}) == ([], None, None)


def test_a_server_may_say_that_it_uses_no_ray() -> None:
    class Quiet(SimpleResponsesAPIAgent):
        ray_enabled = False

    assert Quiet.ray_enabled is False
    assert "ray_enabled" not in Quiet.model_fields
