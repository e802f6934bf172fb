from typing import Any
from unittest.mock import MagicMock

from fastapi.testclient import TestClient
from nemo_gym.base_resources_server import NEMO_GYM_MCP_METADATA_KEY, BaseResourcesServerConfig
from nemo_gym.mcp_auto_exposure import maybe_auto_expose
from nemo_gym.openai_utils import NeMoGymResponse
from nemo_gym.server_utils import ServerClient

from resources_servers.phone_book.app import PhoneBook, PhoneVerifyRequest


def configured() -> PhoneBook:
    config = BaseResourcesServerConfig(
        host="127.0.0.1", port=8080, entrypoint="app.py", name="phone_book", domain="other", expose_tools_over_mcp=True
    )
    return PhoneBook(config=config, server_client=MagicMock(spec=ServerClient))


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


def test_the_tool_is_offered_over_mcp_with_the_session_of_its_token() -> None:
    server = configured()
    app = server.setup_webserver()
    tools = maybe_auto_expose(server, app)
    assert list(tools or {}) == ["look_up"]
    seeded = TestClient(app).post("/seed_session", json={"book": {"Ada": "555-01"}}).json()
    offer = seeded[NEMO_GYM_MCP_METADATA_KEY]
    assert (offer["server_name"], offer["url_path"], offer["transport"]) == ("phone_book", "/mcp", "http")

    def call(name: str, *, token: bool = True) -> Any:
        message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call"}
        body = {**message, "params": {"name": "look_up", "arguments": {"name": name}}}
        headers = offer["headers"] if token else {}
        return TestClient(app).post("/mcp", json=body, headers=headers).json()["result"]

    assert call("Ada") == {"content": [{"type": "text", "text": '{"number":"555-01"}'}], "isError": False}
    assert "404 from POST /look_up" in call("Eve")["content"][0]["text"]
    assert call("Ada", token=False)["isError"]
    listed = TestClient(app).post("/mcp", json={"jsonrpc": "2.0", "id": 2, "method": "tools/list"}).json()
    assert listed["result"]["tools"][0]["inputSchema"]["required"] == ["name"]


def test_names_that_harnesses_give_tools_are_scored_as_the_tools() -> None:
    server = configured()
    call = {"type": "function_call", "call_id": "c", "name": "mcp__phone_book__look_up", "arguments": "{}"}
    body = {
        "responses_create_params": {"input": "x"},
        "response": response(call, said("555-01")).model_dump(),
        "number": "555-01",
    }
    assert PhoneVerifyRequest.model_validate(body)
    row = TestClient(server.setup_webserver()).post("/verify", json=body).json()
    assert (row["reward"], row["tools_used"]) == (1.0, ["look_up"])
    assert row["response"]["output"][0]["name"] == "mcp__phone_book__look_up"
