from typing import Any
from unittest.mock import MagicMock

from fastapi.testclient import TestClient
from nemo_gym.base_resources_server import BaseResourcesServerConfig
from nemo_gym.openai_utils import NeMoGymResponse
from nemo_gym.server_utils import ServerClient

from resources_servers.dice_walk.app import DiceWalk


def configured() -> DiceWalk:
    config = BaseResourcesServerConfig(
        host="127.0.0.1", port=8080, entrypoint="app.py", name="dice_walk", domain="other"
    )
    return DiceWalk(config=config, server_client=MagicMock(spec=ServerClient))


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


def test_a_game_over_http() -> None:
    client = TestClient(configured().setup_webserver())
    row = {"responses_create_params": {"input": "play"}, "goal": 3, "note": "kept"}
    assert client.post("/reset", json=row).json()["observation"].startswith("You are at 0")

    def step(text: str) -> Any:
        return client.post("/step", json={**row, "response": response(said(text)).model_dump()}).json()

    assert step("I walk 1")["info"] == {"place": 1}
    assert step("now 2") == {"observation": None, "info": {}, "reward": 1.0, "terminated": True, "truncated": False}
