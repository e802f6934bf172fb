from typing import Any
from unittest.mock import MagicMock

import pytest
from fastapi.testclient import TestClient
from nemo_gym.openai_utils import NeMoGymResponse, NeMoGymResponseCreateParamsNonStreaming
from nemo_gym.server_utils import ServerClient
from pydantic import ValidationError

from resources_servers.weather_desk.app import WeatherDesk, WeatherDeskConfig, WeatherVerifyRequest


def configured() -> WeatherDesk:
    config = WeatherDeskConfig(host="127.0.0.1", port=8080, entrypoint="app.py", name="weather_desk", domain="other")
    return WeatherDesk(config=config, server_client=MagicMock(spec=ServerClient))


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


def test_sanity() -> None:
    configured()


def test_the_tool_answers_over_http() -> None:
    client = TestClient(configured().setup_webserver())
    assert client.post("/get_weather", json={"city": "Oslo"}).json() == {
        "city": "Oslo",
        "weather": "It is sunny in Oslo.",
    }
    assert client.post("/get_weather", json={}).status_code == 422
    assert client.get("/").json() == {"status": "ok"}
    assert client.get("/reverify_mode").json() == "stateless"


@pytest.mark.parametrize(("city", "reward"), [("Oslo", 1.0), ("Lima", 0.0)])
async def test_verify(city: str, reward: float) -> None:
    call = {"type": "function_call", "call_id": "c", "name": "get_weather", "arguments": '{"city": "Oslo"}'}
    body = WeatherVerifyRequest(
        responses_create_params=NeMoGymResponseCreateParamsNonStreaming(input="hi"),
        response=response(call, said("sunny")),
        expected_city=city,
    )
    result = await configured().verify(body)
    assert (result.reward, result.asked_for) == (reward, "Oslo")


def test_a_row_without_its_field_is_refused() -> None:
    with pytest.raises(ValidationError, match="expected_city"):
        WeatherVerifyRequest.model_validate({"responses_create_params": {"input": "hi"}, "response": response()})
