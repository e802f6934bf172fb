from typing import Any
from unittest.mock import AsyncMock, MagicMock, patch

import pytest
from fastapi.testclient import TestClient
from nemo_gym.judge import JudgeError
from nemo_gym.openai_utils import NeMoGymResponse
from nemo_gym.server_utils import ServerClient

from resources_servers.essay_judge.app import EssayJudge, EssayJudgeConfig, EssayVerifyRequest


def configured() -> EssayJudge:
    config = EssayJudgeConfig(
        host="127.0.0.1",
        port=8080,
        entrypoint="app.py",
        name="essay_judge",
        domain="other",
        judge_model_server={"type": "responses_api_models", "name": "judge"},
        judge_responses_create_params={"input": []},
    )
    return EssayJudge(config=config, server_client=MagicMock(spec=ServerClient))


def response(*output: dict[str, Any]) -> NeMoGymResponse:
    return NeMoGymResponse.model_validate(
        {
            "id": "resp_1",
            "created_at": 0.0,
            "model": "m",
            "object": "response",
            "output": output,
            "parallel_tool_calls": True,
            "tool_choice": "auto",
            "tools": [],
        }
    )


def said(text: str) -> dict[str, Any]:
    part = {"type": "output_text", "text": text, "annotations": []}
    return {"id": "msg_1", "type": "message", "role": "assistant", "status": "completed", "content": [part]}


def asked() -> EssayVerifyRequest:
    return EssayVerifyRequest.model_validate(
        {"responses_create_params": {"input": "write"}, "response": response(said("the sea")), "rubric": "sea"}
    )


@pytest.mark.parametrize(("verdict", "reward"), [("yes, it does", 1.0), ("no", 0.0)])
async def test_the_judge_decides(verdict: str, reward: float) -> None:
    server = configured()
    answer = AsyncMock()
    answer.read.return_value = response(said(verdict)).model_dump_json().encode()
    server.server_client.post = AsyncMock(return_value=answer)  # type: ignore[method-assign]
    result = await server.verify(asked())
    assert (result.reward, result.judge_said) == (reward, verdict)
    sent = server.server_client.post.call_args.kwargs
    assert sent["server_name"] == "judge"
    assert "Rubric: sea" in sent["json"].input[0].content


async def test_an_answer_with_json_only_is_read_too() -> None:
    server = configured()
    answer = MagicMock()
    answer.json = AsyncMock(return_value=response(said("yes")).model_dump())
    server.server_client.post = AsyncMock(return_value=answer)  # type: ignore[method-assign]
    assert (await server.verify(asked())).reward == 1.0


async def test_a_judge_that_cannot_be_reached_is_a_judge_error() -> None:
    server = configured()
    server.server_client.post = AsyncMock(side_effect=ConnectionError("gone"))  # type: ignore[method-assign]
    with pytest.raises(JudgeError, match="gone"):
        await server.verify(asked())


def test_over_http_a_failing_judge_is_a_row_without_a_verdict() -> None:
    with patch.object(ServerClient, "post", AsyncMock(side_effect=ConnectionError("gone"))):
        server = configured()
        server.server_client = ServerClient.model_construct()
        reply = TestClient(server.setup_webserver()).post("/verify", json=asked().model_dump())
    assert reply.status_code == 200
    row = reply.json()
    assert (row["reward"], row["_ng_failure_class"], row["rubric"]) == (0.0, "judge_failed", "sea")
    assert row["_ng_failure_judge_error"] == "ConnectionError: gone"
