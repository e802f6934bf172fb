import json
from typing import Any
from unittest.mock import MagicMock

from fastapi.testclient import TestClient
from nemo_gym.server_utils import ServerClient

from responses_api_models.echo_model.app import EchoModel, EchoModelConfig


def client(*, shout: bool = True) -> TestClient:
    config = EchoModelConfig(host="127.0.0.1", port=8080, entrypoint="app.py", name="echo_model", shout=shout)
    return TestClient(EchoModel(config=config, server_client=MagicMock(spec=ServerClient)).setup_webserver())


def events(text: str) -> list[Any]:
    lines = [line.removeprefix("data: ") for line in text.splitlines() if line.startswith("data: ")]
    return [json.loads(line) for line in lines if line != "[DONE]"]


def test_responses() -> None:
    reply = client().post("/v1/responses", json={"input": "hi", "temperature": None}).json()
    assert reply["output"][0]["content"][0]["text"] == "HI"
    assert reply["usage"]["total_tokens"] == 4
    assert reply["truncation"] is None


def test_unknown_parameters_are_refused() -> None:
    reply = client().post("/v1/responses", json={"input": "hi", "top_k": 3})
    assert (reply.status_code, reply.json()["detail"][0]["loc"]) == (422, ["body", "top_k"])


def test_responses_are_streamed() -> None:
    reply = client().post("/v1/responses", json={"input": "hi", "stream": True})
    found = events(reply.text)
    assert reply.headers["content-type"].startswith("text/event-stream")
    assert (found[0]["type"], found[-1]["type"]) == ("response.created", "response.completed")
    assert found[-1]["response"]["output"][0]["content"][0]["text"] == "HI"


def test_a_stream_tells_of_a_failure() -> None:
    reply = client().post("/v1/responses", json={"input": "fail", "stream": True})
    assert (reply.status_code, events(reply.text)[-1]["type"]) == (200, "response.failed")


def test_chat_completions_and_their_streams() -> None:
    body = {"messages": [{"role": "user", "content": "hi"}], "top_k": 3}
    assert (
        client(shout=False).post("/v1/chat/completions", json=body).json()["choices"][0]["message"]["content"] == "hi"
    )
    chunks = events(client().post("/v1/chat/completions", json={**body, "stream": True}).text)
    said = [chunk["choices"][0]["delta"].get("content") for chunk in chunks]
    assert "HI" in said
    assert chunks[-1]["choices"][0]["finish_reason"] == "stop"


def test_messages() -> None:
    body = {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "hi"}]}
    reply = client().post("/v1/messages", json=body).json()
    assert (reply["content"], reply["stop_reason"]) == ([{"type": "text", "text": "HI"}], "end_turn")


def test_the_prefix_of_a_rollout_is_taken_off() -> None:
    for prefix in ("/ng-rollout/3-1", "/ng-rollout/3-1-a2/training-token-capture"):
        assert client().post(f"{prefix}/v1/responses", json={"input": "hi"}).status_code == 200
