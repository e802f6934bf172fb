from typing import Any
from unittest.mock import AsyncMock, MagicMock

from fastapi.testclient import TestClient
from nemo_gym.openai_utils import NeMoGymAsyncOpenAI
from nemo_gym.server_utils import ServerClient

from responses_api_models.gateway_model.app import GatewayModel, GatewayModelConfig


def test_what_the_endpoint_is_asked_and_what_becomes_of_its_answer() -> None:
    config = GatewayModelConfig(
        host="127.0.0.1", port=1, entrypoint="app.py", name="gateway", base_url="http://h/v1", api_key="k", model="m"
    )
    server = GatewayModel(config=config, server_client=MagicMock(spec=ServerClient))
    server._client = MagicMock(spec=NeMoGymAsyncOpenAI)
    call = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    message = {"role": "assistant", "content": "<think>hm</think>well", "tool_calls": [call]}
    answer: dict[str, Any] = {
        "id": "x",
        "created": 5,
        "model": "m",
        "object": "chat.completion",
        "choices": [{"index": 0, "finish_reason": "length", "message": message}],
        "usage": {"prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 7},
    }
    server._client.create_chat_completion = AsyncMock(return_value=answer)  # type: ignore[method-assign]
    history = [
        {"role": "system", "content": "be kind"},
        {"role": "user", "content": "go"},
        {"type": "reasoning", "id": "r", "summary": [{"type": "summary_text", "text": "let me see"}]},
        {"type": "function_call", "call_id": "c0", "name": "f", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c0", "output": "done"},
    ]
    asked = {"input": history, "instructions": "be brief", "max_output_tokens": 9}
    reply = TestClient(server.setup_webserver()).post("/v1/responses", json=asked).json()
    sent = server._client.create_chat_completion.call_args.kwargs
    assert [entry["role"] for entry in sent["messages"]] == ["system", "user", "assistant", "tool"]
    assert sent["messages"][0]["content"] == "be brief\n\nbe kind"
    assert sent["messages"][2]["content"] == "<think>let me see</think>"
    assert (sent["max_tokens"], sent["model"]) == (9, "m")
    assert [item["type"] for item in reply["output"]] == ["reasoning", "message", "function_call"]
    assert reply["incomplete_details"] == {"reason": "max_output_tokens"}
    assert reply["usage"]["input_tokens"] == 3
