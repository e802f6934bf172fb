from typing import Any
from unittest.mock import AsyncMock, MagicMock

from fastapi.testclient import TestClient
from nemo_gym.server_utils import ServerClient

from responses_api_agents.tool_loop_agent.app import ToolLoopAgent, ToolLoopAgentConfig

CALL = {"type": "function_call", "call_id": "c", "name": "add", "arguments": '{"count": 2}'}
MESSAGE = {
    "id": "m",
    "type": "message",
    "role": "assistant",
    "status": "completed",
    "content": [{"type": "output_text", "text": "done", "annotations": []}],
}


def replying(body: Any, **cookies: str) -> AsyncMock:
    reply = AsyncMock()
    reply.cookies = cookies
    reply.read = AsyncMock(return_value=None)
    reply.json = AsyncMock(return_value=body)
    reply.content.read = AsyncMock(return_value=b"5")
    return reply


def said(*output: dict[str, Any]) -> dict[str, Any]:
    fixed = {"object": "response", "parallel_tool_calls": True, "tool_choice": "auto", "tools": []}
    return {"id": "r", "created_at": 0.0, "model": "m", "output": output, **fixed}


def test_tools_are_called_until_the_model_has_no_more_to_call() -> None:
    config = ToolLoopAgentConfig(
        host="127.0.0.1",
        port=1,
        entrypoint="app.py",
        name="loop",
        resources_server={"type": "resources_servers", "name": "env"},
        model_server={"type": "responses_api_models", "name": "model"},
    )
    agent = ToolLoopAgent(config=config, server_client=MagicMock(spec=ServerClient))
    replies = [replying(said(CALL), m="1"), replying(None, r="2"), replying(said(MESSAGE), m="3")]
    agent.server_client.post = AsyncMock(side_effect=replies)  # type: ignore[method-assign]
    reply = TestClient(agent.setup_webserver()).post("/v1/responses", json={"input": "add 2"})
    output = reply.json()["output"]
    assert [item["type"] for item in output] == ["function_call", "function_call_output", "message"]
    assert output[1]["output"] == "5"
    assert (reply.cookies["r"], reply.cookies["m"]) == ("2", "3")
    calls = [call.kwargs for call in agent.server_client.post.call_args_list]
    assert [call["url_path"] for call in calls] == ["/v1/responses", "/add", "/v1/responses"]
    assert len(calls[2]["json"].input) == 3
