from unittest.mock import MagicMock

from fastapi.testclient import TestClient
from nemo_gym.base_resources_server import BaseResourcesServerConfig
from nemo_gym.openai_utils import (
    NeMoGymResponse,
    NeMoGymResponseCreateParamsNonStreaming,
    NeMoGymResponseFunctionToolCall,
    NeMoGymResponseOutputMessage,
    NeMoGymResponseOutputText,
)
from nemo_gym.server_utils import ServerClient

from resources_servers.treasure_hunt.app import HuntVerifyRequest, TreasureHunt


def configured() -> TreasureHunt:
    config = BaseResourcesServerConfig(
        host="127.0.0.1", port=8080, entrypoint="app.py", name="treasure_hunt", domain="other"
    )
    return TreasureHunt(config=config, server_client=MagicMock(spec=ServerClient))


async def test_the_places_are_read_from_the_calls() -> None:
    output = [
        NeMoGymResponseFunctionToolCall(arguments=f'{{"place": "{place}"}}', call_id=place, name="look")
        for place in ("harbour", "mill", "tower")
    ]
    text = NeMoGymResponseOutputText(annotations=[], text="It is amber.")
    message = NeMoGymResponseOutputMessage(id="m", content=[text])
    response = NeMoGymResponse(
        id="r",
        created_at=0.0,
        model="m",
        object="response",
        output=[*output, message],
        parallel_tool_calls=True,
        tool_choice="auto",
        tools=[],
    )
    params = NeMoGymResponseCreateParamsNonStreaming(input=[{"role": "user", "content": "go"}])
    result = await configured().verify(
        HuntVerifyRequest(responses_create_params=params, response=response, word="amber")
    )
    assert (result.reward, result.places, result.steps) == (1.0, ["harbour", "mill", "tower"], 3)


def test_unknown_places_are_empty() -> None:
    client = TestClient(configured().setup_webserver())
    assert client.post("/look", json={"place": "moon"}).json() == {"clue": "nothing here"}
