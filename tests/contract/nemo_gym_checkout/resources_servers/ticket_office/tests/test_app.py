from typing import Any
from unittest.mock import MagicMock

from fastapi.testclient import TestClient
from nemo_gym.base_resources_server import BaseResourcesServerConfig
from nemo_gym.openai_utils import NeMoGymResponse
from nemo_gym.server_utils import ServerClient

from resources_servers.ticket_office.app import TicketOffice


def configured() -> TicketOffice:
    config = BaseResourcesServerConfig(
        host="127.0.0.1", port=8080, entrypoint="app.py", name="ticket_office", domain="other"
    )
    return TicketOffice(config=config, server_client=MagicMock(spec=ServerClient))


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


def test_every_route_answers_in_its_own_way() -> None:
    client = TestClient(configured().setup_webserver())
    assert client.post("/price", json={"kind": "adult", "count": 2}).json() == {"price": 40}
    refused = client.post("/price", json={"kind": "dog"})
    assert (refused.status_code, refused.json()) == (400, {"detail": "no tickets for dog"})
    assert client.post("/opening_hours").text == "9 to 17"
    assert client.post("/sum_up", json={"amounts": [40, 8]}).json() == {"total": 48}
    assert client.post("/lost", json={"what": "hat"}).json() == {"unknown": "lost", "asked": {"what": "hat"}}
    assert response(said("48")).output_text == "48"
