from typing import Any
from unittest.mock import MagicMock

import pytest
from nemo_gym.base_resources_server import BaseResourcesServerConfig
from nemo_gym.openai_utils import NeMoGymResponse
from nemo_gym.server_utils import ServerClient

from resources_servers.recipe_checker.app import RecipeChecker, RecipeVerifyRequest


def configured() -> RecipeChecker:
    config = BaseResourcesServerConfig(
        host="127.0.0.1", port=8080, entrypoint="app.py", name="recipe_checker", domain="other"
    )
    return RecipeChecker(config=config, server_client=MagicMock(spec=ServerClient))


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


@pytest.mark.parametrize(("text", "reward"), [("200 grams", 1.0), ("200 cups", 0.5), ("none", 0.0)])
async def test_components_are_averaged(text: str, reward: float) -> None:
    body = RecipeVerifyRequest.model_validate(
        {"responses_create_params": {"input": "x"}, "response": response(said(text)), "amount": 200, "unit": "grams"}
    )
    result = await configured().verify(body)
    assert result.reward == reward
    assert sum(result.reward_components.values()) / 2 == reward
