from typing import Any
from unittest.mock import MagicMock

from fastapi.testclient import TestClient
from nemo_gym.base_resources_server import AggregateMetricsRequest, BaseResourcesServerConfig
from nemo_gym.openai_utils import NeMoGymResponse
from nemo_gym.server_utils import ServerClient

from resources_servers.spelling_bee.app import SpellingBee


def configured() -> SpellingBee:
    config = BaseResourcesServerConfig(
        host="127.0.0.1", port=8080, entrypoint="app.py", name="spelling_bee", domain="other"
    )
    return SpellingBee(config=config, server_client=MagicMock(spec=ServerClient))


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


def rows(*rewards: tuple[int, float, str | None, str]) -> list[dict[str, Any]]:
    return [
        {"_ng_task_index": task, "_ng_rollout_index": i, "reward": reward, "spelt": spelt, "level": level}
        for i, (task, reward, spelt, level) in enumerate(rewards)
    ]


async def test_the_hooks_add_to_what_is_always_there() -> None:
    given = rows((0, 1.0, "cat", "easy"), (0, 0.0, "kat", "easy"), (1, 0.0, None, "hard"), (1, 0.0, "x", "hard"))
    found = await configured().aggregate_metrics(AggregateMetricsRequest(verify_responses=given))
    assert found.agent_metrics["mean/reward"] == 0.25
    assert found.agent_metrics["pass@2/accuracy"] == 50.0
    assert found.agent_metrics["easy/pass@1[avg-of-2]/accuracy"] == 50.0
    assert found.key_metrics == {"pass@2/accuracy": 50.0}
    assert [group["tries"] for group in found.group_level_metrics] == [2, 2]
    assert "per_task_metrics" not in found.agent_metrics


def test_over_http_an_empty_run_has_empty_metrics() -> None:
    reply = TestClient(configured().setup_webserver()).post("/aggregate_metrics", json={"verify_responses": []})
    assert reply.json() == {"group_level_metrics": [], "agent_metrics": {}, "key_metrics": {}}
