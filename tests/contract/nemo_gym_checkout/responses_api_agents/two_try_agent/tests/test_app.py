from typing import Any
from unittest.mock import AsyncMock, MagicMock

from fastapi.testclient import TestClient
from nemo_gym.server_utils import ServerClient

from responses_api_agents.two_try_agent.app import TwoTryAgent, TwoTryAgentConfig

RESPONSE = {
    "id": "r",
    "created_at": 0.0,
    "model": "m",
    "object": "response",
    "output": [],
    "parallel_tool_calls": True,
    "tool_choice": "auto",
    "tools": [],
}


def answering(*bodies: Any) -> AsyncMock:
    replies = []
    for body in bodies:
        reply = AsyncMock()
        reply.cookies = {"session": "1"}
        reply.read = AsyncMock(return_value=None)
        reply.json = AsyncMock(return_value=body)
        replies.append(reply)
    return AsyncMock(side_effect=replies)


def test_the_second_try_is_told_that_the_first_was_wrong() -> None:
    config = TwoTryAgentConfig(
        host="127.0.0.1",
        port=1,
        entrypoint="app.py",
        name="two_try",
        resources_server={"type": "resources_servers", "name": "env"},
        model_server={"type": "responses_api_models", "name": "model"},
    )
    agent = TwoTryAgent(config=config, server_client=MagicMock(spec=ServerClient))
    row = {"responses_create_params": {"input": "go"}, "word": "cat"}

    def verdict(reward: float) -> dict[str, Any]:
        return {**row, "response": RESPONSE, "reward": reward}

    agent.server_client.post = answering({}, RESPONSE, verdict(0.0), RESPONSE, verdict(1.0))  # type: ignore[method-assign]
    reply = TestClient(agent.setup_webserver()).post("/run", json=row).json()
    assert (reply["reward"], reply["tries"], reply["word"]) == (1.0, 2, "cat")
    calls = [call.kwargs for call in agent.server_client.post.call_args_list]
    assert [call["url_path"] for call in calls] == [
        "/seed_session", "/v1/responses", "/verify", "/v1/responses", "/verify",
    ]  # fmt: skip
    assert calls[2]["cookies"] == {"session": "1"}
    assert calls[3]["json"].input[-1].content == "That was wrong. Try again."
