from typing import Any
from unittest.mock import MagicMock

import pytest
from nemo_gym.openai_utils import NeMoGymResponse
from nemo_gym.sandbox import SandboxExecResult, SandboxHandle, SandboxSpec, register_provider
from nemo_gym.server_utils import ServerClient

from resources_servers.shell_golf.app import GolfVerifyRequest, ShellGolf, ShellGolfConfig


def configured() -> ShellGolf:
    config = ShellGolfConfig(
        host="127.0.0.1",
        port=8080,
        entrypoint="app.py",
        name="shell_golf",
        domain="other",
        sandbox_provider={"pretending": {}},
    )
    return ShellGolf(config=config, server_client=MagicMock(spec=ServerClient))


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


class Pretending:
    """A provider of the test's own: what it is asked to run is its answer."""

    name = "pretending"

    async def create(self, spec: SandboxSpec) -> SandboxHandle:
        return SandboxHandle("1", self.name, spec)

    async def exec(self, handle: SandboxHandle, command: str, **_: Any) -> SandboxExecResult:
        if command == "hang":
            return SandboxExecResult("", "", 124, "timeout")
        return SandboxExecResult(f"{command} {handle.raw.env['LIMIT']}", "", 0)

    async def upload_file(self, *_: Any) -> None: ...

    async def close(self, handle: SandboxHandle) -> None: ...


@pytest.mark.parametrize(("command", "reward", "error"), [("3", 1.0, None), ("hang", 0.0, "timeout")])
async def test_the_command_runs_where_the_provider_says(command: str, reward: float, error: str | None) -> None:
    register_provider("pretending", Pretending, override=True)
    body = {"responses_create_params": {"input": "x"}, "response": response(said(command)), "wanted": "3 2"}
    result = await configured().verify(GolfVerifyRequest.model_validate(body))
    assert (result.reward, result.error_type) == (reward, error)
