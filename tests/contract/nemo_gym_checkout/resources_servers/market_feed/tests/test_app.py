from typing import Any
from unittest.mock import MagicMock, patch

from nemo_gym.base_resources_server import BaseResourcesServerConfig
from nemo_gym.openai_utils import NeMoGymResponse
from nemo_gym.server_utils import ServerClient

from resources_servers.market_feed.app import MarketFeed


def configured() -> MarketFeed:
    config = BaseResourcesServerConfig(
        host="127.0.0.1", port=8080, entrypoint="app.py", name="market_feed", domain="other"
    )
    return MarketFeed(config=config, server_client=MagicMock(spec=ServerClient))


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


async def test_the_feed_begins_with_the_server() -> None:
    with patch("resources_servers.market_feed.app.get_global_config_dict", return_value={"market_feed": {}}):
        server = configured()
        prices = [(await server.get_price()).price for _ in range(3)]
        assert prices == [100, 101, 102]
        assert (await server.get_price()).configured
    assert server._feeder is not None
    server._feeder.cancel()


def test_made_outside_of_a_loop_it_has_no_feed() -> None:
    assert configured()._feeder is None
