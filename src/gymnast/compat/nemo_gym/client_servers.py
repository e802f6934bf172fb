"""Collects through a `ServerClient` that a trainer or a test made: its `post` carries every call of the run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gymnast.compat.nemo_gym.server_utils import get_response_json
from gymnast.rollouts.runner import LocalRunner
from gymnast.rollouts.servers import Servers
from gymnast.wire.calls import Calls
from gymnast.wire.http_connection import TransportError
from gymnast.wire.message import Reply
from gymnast.wire.progress import Signals

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gymnast.wire.message import Request


class ClientTransport:
    """Delivers calls with a client's `post`."""

    address = "a server client"

    def __init__(self, client: Any, name: str) -> None:
        self._client = client
        self._name = name

    async def send(self, request: Request) -> Reply:
        """Deliver a call; whatever the client raises means that no reply came."""
        try:
            response = await self._client.post(
                server_name=self._name, url_path=request.path, json=request.body, cookies=dict(request.cookies) or None
            )
            return Reply(response.status, await get_response_json(response))
        except Exception as error:
            raise TransportError(f"{type(error).__name__}: {error}") from error


def client_servers(client: Any, agents: Iterable[str]) -> Servers:
    """Servers for a run whose agents are reached through this client."""
    names = list(agents)
    calls = Calls({name: ClientTransport(client, name) for name in names})
    return Servers(LocalRunner(calls, Signals()), calls, names, [])
