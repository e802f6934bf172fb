from typing import Any
from unittest.mock import MagicMock

from nemo_gym.base_resources_server import BaseResourcesServerConfig
from nemo_gym.config_types import AggregateMetricsRequest
from nemo_gym.openai_utils import NeMoGymResponse
from nemo_gym.server_utils import ServerClient

from resources_servers.poll_station.app import PollStation


def configured() -> PollStation:
    config = BaseResourcesServerConfig(
        host="127.0.0.1", port=8080, entrypoint="app.py", name="poll_station", domain="other"
    )
    return PollStation(config=config, server_client=MagicMock(spec=ServerClient))


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


async def test_votes_are_counted() -> None:
    given = [{"vote": "yes", "reward": 1.0}, {"vote": "no", "reward": 1.0}, {"vote": "yes", "reward": 1.0}]
    found = await configured().aggregate_metrics(AggregateMetricsRequest(verify_responses=given))
    assert found.agent_metrics["votes"] == {"yes": 2, "no": 1}
    assert found.key_metrics == {"n": 2}
