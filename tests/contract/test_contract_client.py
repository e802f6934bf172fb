"""A client written from the contract alone: standard library and YAML, nothing of ours. It must get along with us."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml

from tests.helpers.commands import DEMO_POLICY, Served, serving
from tests.helpers.jsonl import example_rows

ENVIRONMENTS = ("-e", "mcqa", "-e", "example_session_state_mgmt", "-e", "example_multi_turn_gymnasium")


class Answer:
    """Status, headers, body."""

    def __init__(self, response: http.client.HTTPResponse) -> None:
        self.status = response.status
        self.headers = response.headers
        self.text = response.read().decode()

    def json(self) -> Any:
        return json.loads(self.text)

    def cookies(self) -> str:
        return "; ".join(value.split(";")[0] for value in self.headers.get_all("set-cookie") or [])


def call(method: str, url: str, body: Any = None, cookies: str = "") -> Answer:
    """One HTTP request."""
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=30)
    headers = {"Content-Type": "application/json"} | ({"Cookie": cookies} if cookies else {})
    try:
        connection.request(method, parts.path or "/", json.dumps(body) if body is not None else None, headers)
        return Answer(connection.getresponse())
    finally:
        connection.close()


def address(head: str, instance: str) -> str:
    """Where an instance is, as a foreign collector finds it: config -> first kind -> first implementation."""
    config = yaml.safe_load(call("GET", f"{head}/global_config_dict_yaml").json())
    inner = next(iter(next(iter(config[instance].values())).values()))
    return f"http://{inner['host']}:{inner['port']}"


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A serve of three environments with the demo policy."""
    with serving(tmp_path_factory.mktemp("served"), *ENVIRONMENTS, "-c", DEMO_POLICY) as found:
        yield found


def example_row(name: str) -> dict[str, Any]:
    return example_rows(name)[0]


def test_the_head_server_answers_as_documented(served: Served) -> None:
    assert call("GET", f"{served.head}/").json() == {"status": "ok"}
    instances = call("GET", f"{served.head}/server_instances").json()
    assert len(instances) == 7
    documented = {
        *("config_path", "dir_path", "entrypoint", "host", "name", "pid", "port", "process_name", "server_type"),
        *("start_time", "status", "uptime_seconds", "url"),
    }
    assert all(set(row) == documented for row in instances)
    assert len({row["start_time"] for row in instances}) == 1
    assert all(call("GET", row["url"]).json() == {"status": "ok"} for row in instances)


def test_run_through_a_discovered_agent_gives_a_verify_row(served: Served) -> None:
    row = {**example_row("mcqa"), "_ng_task_index": 4, "_ng_rollout_index": 1}
    answer = call("POST", address(served.head, "mcqa_simple_agent") + "/run", row)
    assert answer.status == 200
    result = answer.json()
    assert list(result)[:3] == ["responses_create_params", "response", "reward"]
    assert result["reward"] in {0.0, 1.0}
    assert result["expected_answer"] == "B"
    assert result["responses_create_params"]["temperature"] is None  # unset fields are explicit nulls
    assert list(result["response"]) == [
        *("id", "created_at", "error", "incomplete_details", "instructions", "metadata", "model", "object", "output"),
        *("parallel_tool_calls", "temperature", "tool_choice", "tools", "top_p", "background", "conversation"),
        *("max_output_tokens", "max_tool_calls", "previous_response_id", "prompt", "prompt_cache_key", "reasoning"),
        *("safety_identifier", "service_tier", "status", "text", "top_logprobs", "truncation", "usage", "user"),
    ]


def test_a_tool_rollout_by_hand(served: Served) -> None:
    """The call sequence of the contract: seed, model, tool, model, verify, cookies echoed by us."""
    row = example_row("example_session_state_mgmt")
    environment = address(served.head, "example_session_state_mgmt_resources_server")
    model = address(served.head, "policy_model")
    seeded = call("POST", f"{environment}/seed_session", row)
    assert seeded.status == 200
    cookie = seeded.headers["set-cookie"]
    assert cookie.startswith("ExampleSessionState___example_session_state_mgmt_resources_server=")
    assert all(part in cookie for part in ("path=/", "Max-Age=1209600", "httponly", "samesite=lax"))
    assert seeded.headers["vary"] == "Cookie"
    jar, items = seeded.cookies(), list(row["responses_create_params"]["input"])
    response: dict[str, Any] = {}
    for _ in range(5):
        response = call("POST", f"{model}/v1/responses", {**row["responses_create_params"], "input": items}).json()
        items += response["output"]
        calls = [item for item in response["output"] if item["type"] == "function_call"]
        if not calls:
            break
        for made in calls:
            used = call("POST", f"{environment}/{made['name']}", json.loads(made["arguments"]), jar)
            jar = used.cookies()
            items.append({"type": "function_call_output", "call_id": made["call_id"], "output": used.text})
    verdict = call("POST", f"{environment}/verify", {**row, "response": response}, jar)
    assert verdict.status == 200
    assert verdict.json()["reward"] in {0.0, 1.0}


def test_scoring_as_the_taskset_of_verifiers_does(served: Served) -> None:
    """prime-rl trains through it: no agent of ours, a response without most fields, and keys of the verdict that it
    removes without looking."""
    row = example_row("example_session_state_mgmt")
    environment = address(served.head, "example_session_state_mgmt_resources_server")
    seeded = call("POST", f"{environment}/seed_session", row)
    assert isinstance(seeded.json(), dict)
    tool = "increment_counter"
    used = call("POST", f"{environment}/{tool}", {"count": 3}, seeded.cookies())
    assert used.status == 200
    response = {
        "id": "resp_1",
        "created_at": 1.5,
        "model": "verifiers",
        "object": "response",
        "output": [
            {"type": "function_call", "call_id": "c", "name": tool, "arguments": '{"count": 3}'},
            {"type": "function_call_output", "call_id": "c", "output": used.text},
            {
                "id": "msg_1",
                "type": "message",
                "role": "assistant",
                "status": "completed",
                "content": [{"type": "output_text", "text": "Done.", "annotations": []}],
            },
        ],
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": row["responses_create_params"]["tools"],
        "status": "completed",
    }
    verdict = call("POST", f"{environment}/verify", {**row, "response": response}, seeded.cookies())
    assert verdict.status == 200
    assert {"reward", "responses_create_params", "response"} <= verdict.json().keys()
    missing = call("POST", f"{environment}/no_such_tool", {}, seeded.cookies())
    assert missing.status == 404


def test_the_agents_own_responses_route_and_its_twins(served: Served) -> None:
    agent = address(served.head, "mcqa_simple_agent")
    params = example_row("mcqa")["responses_create_params"]
    for path in (
        "/v1/responses",
        "/ng-rollout/3-1/v1/responses",
        "/ng-rollout/3-1/training-token-capture/v1/responses",
    ):
        answer = call("POST", agent + path, params)
        assert answer.status == 200, answer.text
        assert answer.json()["output"][-1]["role"] == "assistant"


def test_a_gymnasium_environment_resets_and_steps(served: Served) -> None:
    environment = address(served.head, "example_multi_turn_gymnasium_resources_server")
    row = example_row("example_multi_turn_gymnasium")
    reset = call("POST", f"{environment}/reset", row)
    assert reset.json() == {"observation": None, "info": {"supports_explicit_close": True}}
    model = address(served.head, "policy_model")
    turn = call("POST", f"{model}/v1/responses", row["responses_create_params"]).json()
    stepped = call("POST", f"{environment}/step", {**row, "response": turn}, reset.cookies())
    assert set(stepped.json()) == {"observation", "reward", "terminated", "truncated", "info"}
    assert stepped.json()["observation"] == row["follow_ups"][0]


def test_aggregate_metrics_and_reverify_mode(served: Served) -> None:
    mcqa = address(served.head, "mcqa")
    rows = [{"_ng_task_index": 0, "_ng_rollout_index": n, "reward": float(n)} for n in range(2)]
    for server in (mcqa, address(served.head, "mcqa_simple_agent")):
        metrics = call("POST", f"{server}/aggregate_metrics", {"verify_responses": rows}).json()
        assert set(metrics) == {"group_level_metrics", "agent_metrics", "key_metrics"}
        assert metrics["key_metrics"] == {
            "mean/reward": 0.5,
            "pass@1[avg-of-2]/accuracy": 50.0,
            "pass@1[avg-of-2]/no_answer": 100.0,
            "pass@2/no_answer": 100.0,
            "majority@2/accuracy": 0.0,
            "pass@1/accuracy": 50.0,
        }
    assert call("GET", f"{mcqa}/reverify_mode").json() == "stateless"
    counter = address(served.head, "example_session_state_mgmt_resources_server")
    assert call("GET", f"{counter}/reverify_mode").json() == "unsupported"


def test_validation_errors_of_the_create_params(served: Served) -> None:
    model = address(served.head, "policy_model")
    for body, loc in (
        ({"input": "x", "top_k": 4}, ["body", "top_k"]),
        ({"input": "x", "metadata": {"a": 1}}, ["body", "metadata", "a"]),
        ({"input": "x", "tools": [{"type": "function", "name": "f", "parameters": {}}]}, ["body", "tools", 0]),
        ({}, ["body", "input"]),
    ):
        answer = call("POST", f"{model}/v1/responses", body)
        assert answer.status == 422
        assert answer.json()["detail"][0]["loc"][: len(loc)] == loc


def test_a_body_that_is_not_json(served: Served) -> None:
    parts = urlsplit(address(served.head, "mcqa"))
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=30)
    connection.request("POST", "/verify", "{nope", {"Content-Type": "application/json"})
    answer = Answer(connection.getresponse())
    connection.close()
    assert answer.status == 422
    assert answer.json()["detail"][0]["type"] == "json_invalid"


def test_chat_completions_of_a_model_server(served: Served) -> None:
    model = address(served.head, "policy_model")
    question = example_row("mcqa")["responses_create_params"]["input"][0]["content"]
    body = {"model": "any", "messages": [{"role": "user", "content": question}], "top_k": 3}
    reply = call("POST", f"{model}/v1/chat/completions", body).json()
    assert reply["object"] == "chat.completion"
    assert "boxed" in reply["choices"][0]["message"]["content"]
    assert reply["usage"]["total_tokens"] > 0
    assert call("GET", f"{model}/v1/models").json()["data"][0]["id"] == "scripted"
