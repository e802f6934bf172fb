from typing import Any
from unittest.mock import MagicMock

import pytest
from nemo_gym.openai_utils import NeMoGymResponse
from nemo_gym.server_utils import ServerClient
from pydantic import ValidationError

from resources_servers.unit_converter.app import UnitConverter, UnitConverterConfig, UnitVerifyRequest


def configured() -> UnitConverter:
    config = UnitConverterConfig(
        host="127.0.0.1",
        port=8080,
        entrypoint="app.py",
        name="unit_converter",
        domain="other",
        factors={"feet": 3.28084},
        penalty=0.5,
    )
    return UnitConverter(config=config, server_client=MagicMock(spec=ServerClient))


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


@pytest.mark.parametrize(("text", "reward"), [("about 3.28", 1.0), ("4", 0.0), ("no idea", -0.5)])
async def test_within_tolerance(text: str, reward: float) -> None:
    body = {"responses_create_params": {"input": "x"}, "response": response(said(text)), "metres": 1, "unit": "feet"}
    assert (await configured().verify(UnitVerifyRequest.model_validate(body))).reward == reward


def test_settings_are_checked() -> None:
    with pytest.raises(ValidationError, match="positive"):
        UnitConverterConfig(host="h", port=1, entrypoint="app.py", name="n", factors={"feet": -1})
