"""Agents whose program reaches the policy through a gateway, with a URL per rollout.

The gateway's port is opened when the first rollout needs it and closed when the agent stops.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

from pydantic import PositiveFloat, PositiveInt

from gymnast.builtin.responses_api_agents.environment_agent import EnvironmentAgent, EnvironmentAgentSettings
from gymnast.kit import (
    CreateParams,
    EndpointTargets,
    Gateway,
    JsonObject,
    Listener,
    RolloutAddress,
    RolloutEndpoint,
    RolloutLimits,
    Scope,
    ServerApp,
    ServerContext,
    advertised_host,
    bind_socket,
)


class GatewayListener:
    """Listens for a gateway. Call `close` at the end."""

    def __init__(self, gateway: Gateway, listen_on: str, advertised_as: str | None = None) -> None:
        """`advertised_as` is the host name under which programs reach it, if it differs from `listen_on`."""
        self._gateway = gateway
        self._listen_on = listen_on
        self.host = advertised_as or advertised_host(listen_on)
        self._resources = AsyncExitStack()
        self._listener: Listener | None = None
        self._starting = asyncio.Lock()

    async def base_url(self) -> str:
        """The URL of the gateway; starts to listen on first use."""
        async with self._starting:
            if self._listener is None:
                hint = "choose another `gateway_host`"
                sock = bind_socket(self._listen_on, 0, what=f"the gateway of {self._gateway.name}", hint=hint)
                listener = Listener(ServerApp(self._gateway), sock)
                self._listener = await self._resources.enter_async_context(listener)
        return f"http://{f'[{self.host}]' if ':' in self.host else self.host}:{self._listener.port}"

    async def close(self) -> None:
        """Stop listening."""
        await self._resources.aclose()


class GatewayAgentSettings(EnvironmentAgentSettings):
    model_name: str = "policy"
    timeout_s: PositiveFloat = 1800.0
    """Maximum duration of a rollout's program."""
    max_model_calls: PositiveInt | None = 256
    max_output_tokens: PositiveInt | None = None
    gateway_host: str = "127.0.0.1"
    gateway_address: str | None = None
    """The host name under which programs reach the gateway, if it differs from `gateway_host`."""


class GatewayAgent(EnvironmentAgent):
    """An agent whose program reaches the policy at a URL of its rollout."""

    settings: GatewayAgentSettings

    def __init__(self, name: str, settings: GatewayAgentSettings, context: ServerContext) -> None:
        super().__init__(name, settings, context)
        self._gateway = Gateway(name, context)
        self.listener = GatewayListener(self._gateway, settings.gateway_host, settings.gateway_address)

    async def stop(self) -> None:
        await self.listener.close()

    @asynccontextmanager
    async def open_endpoint(
        self, params: CreateParams, scope: Scope
    ) -> AsyncIterator[tuple[RolloutEndpoint, RolloutAddress]]:
        """The rollout's endpoint, closed at the end of the block."""
        settings = self.settings
        targets = EndpointTargets(
            settings.model_server.name,
            settings.resources_server.name,
            settings.model_timeout_s,
            settings.tool_timeout_s,
        )
        limits = RolloutLimits(settings.max_model_calls, settings.max_output_tokens)
        endpoint, address = self._gateway.open(await self.listener.base_url(), targets, limits, params, scope)
        try:
            yield endpoint, address
        finally:
            await self._gateway.close(endpoint)

    def capture(self, endpoint: RolloutEndpoint, rollout_id: str | None) -> JsonObject:
        """The row attachment `ng_model_call_capture`."""
        model_ref = {"type": "responses_api_models", "name": self.settings.model_server.name}
        return endpoint.trace.capture(rollout_id, model_ref)
