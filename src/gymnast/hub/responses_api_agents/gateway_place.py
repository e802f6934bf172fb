"""Where a gateway listens: put on a port when the first rollout needs it, taken off when its agent stops."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

from gymnast.runtime.listener import Listener
from gymnast.runtime.ports import advertised, bind
from gymnast.wire.asgi import ServerApp

if TYPE_CHECKING:
    from gymnast.kit.gateway import Gateway


class GatewayPlace:
    """A gateway's address. `close` must follow."""

    def __init__(self, gateway: Gateway, listen_on: str, known_as: str | None = None) -> None:
        """`known_as` is the host name under which programs reach it, where that is not `listen_on`."""
        self._gateway = gateway
        self._listen_on = listen_on
        self.host = known_as or advertised(listen_on)
        self._resources = AsyncExitStack()
        self._listener: Listener | None = None
        self._starting = asyncio.Lock()

    async def base_url(self) -> str:
        """The gateway's URL."""
        async with self._starting:
            if self._listener is None:
                way_on = "choose another `gateway_host`"
                sock = bind(self._listen_on, 0, what=f"the gateway of {self._gateway.name}", way_on=way_on)
                listener = Listener(ServerApp(self._gateway), sock)
                self._listener = await self._resources.enter_async_context(listener)
        return f"http://{f'[{self.host}]' if ':' in self.host else self.host}:{self._listener.port}"

    async def close(self) -> None:
        """Stop listening."""
        await self._resources.aclose()
