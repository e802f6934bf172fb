"""Rollouts that an environment of the package `verifiers` plays by itself: its harness, at a URL of the rollout's own.

The gateway captures what the harness asks of the policy; the environment gives the reward.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
from pydantic import PositiveFloat, PositiveInt

from gymnast.errors import CallError
from gymnast.hub.responses_api_agents.command_agent.outcome import traced_response
from gymnast.hub.responses_api_agents.gateway_place import GatewayPlace
from gymnast.kit import Agent, AgentSettings, ModelRef, ResourcesRef
from gymnast.kit.door import Door
from gymnast.kit.door_rules import Limits, Places
from gymnast.kit.gateway import Gateway
from gymnast.kit.verify_call import verified
from gymnast.types.failure import FailureDetail, Stage

if TYPE_CHECKING:
    from gymnast.types.items import CreateParams, Response
    from gymnast.types.json import JsonObject
    from gymnast.wire.calls import Scope
    from gymnast.wire.server import Surroundings


class VerifiersAgentSettings(AgentSettings):
    resources_server: ResourcesRef
    model_server: ModelRef
    model_name: str = "policy"
    timeout_s: PositiveFloat = 1800.0
    """How long an episode may take."""
    max_model_calls: PositiveInt | None = 256
    max_output_tokens: PositiveInt | None = None
    gateway_host: str = "127.0.0.1"
    gateway_address: str | None = None
    """The host name under which harnesses reach the gateway, where that is not `gateway_host`."""


class VerifiersAgent(Agent):
    """Has one episode played for each rollout."""

    settings: VerifiersAgentSettings

    def __init__(self, name: str, settings: VerifiersAgentSettings, surroundings: Surroundings) -> None:
        super().__init__(name, settings, surroundings)
        self._gateway = Gateway(name, surroundings)
        self._place = GatewayPlace(self._gateway, settings.gateway_host, settings.gateway_address)

    async def stop(self) -> None:
        await self._place.close()

    async def run(self, row: JsonObject, params: CreateParams, scope: Scope) -> JsonObject:
        environment = self.settings.resources_server.name
        await self.calls.expect(
            environment, "/seed_session", row, scope, stage=Stage.SEED, timeout_s=self.settings.seed_timeout_s
        )
        try:
            door = await self._played(params, scope)
            response = traced_response(params, door, door.trace.main_output(), door.ended_by)
            verdict = await verified(self.calls, environment, row, response, scope, self.settings)
        except BaseException:
            await self._close_session(environment, scope)
            raise
        model_ref = {"type": "responses_api_models", "name": self.settings.model_server.name}
        return {**verdict, "ng_model_call_capture": door.trace.capture(scope.rollout_id, model_ref)}

    async def respond(self, params: CreateParams, scope: Scope) -> Response:
        """Without a task there is nothing to play: the model is asked."""
        response: Response = await self.ask(self.settings.model_server.name, params, scope)
        return response

    async def aggregate_metrics(self, body: JsonObject) -> JsonObject:
        reply: JsonObject = await self.calls.expect(
            self.settings.resources_server.name, "/aggregate_metrics", body, stage=Stage.AGENT
        )
        return reply

    async def _played(self, params: CreateParams, scope: Scope) -> Door:
        settings = self.settings
        places = Places(
            settings.model_server.name,
            settings.resources_server.name,
            settings.model_timeout_s,
            settings.tool_timeout_s,
        )
        limits = Limits(settings.max_model_calls, settings.max_output_tokens)
        door, address = self._gateway.open(await self._place.base_url(), places, limits, params, scope)
        asked: Any = {"base_url": address.openai_url, "api_key": address.key, "model": settings.model_name}
        try:
            await self.calls.expect(
                settings.resources_server.name,
                "/run_episode",
                asked,
                scope,
                stage=Stage.AGENT,
                timeout_s=settings.timeout_s,
            )
        except CallError as error:
            raise CallError(self._cause(door, error.detail)) from error
        finally:
            await self._gateway.close(door)
        failed = self._cause(door, None)
        if failed is not None:
            raise CallError(failed)
        return door

    def _cause(self, door: Door, detail: FailureDetail | None) -> Any:
        """A model call that failed and was never made good is what failed the episode, whatever the harness says."""
        found = door.last_failure if door.ended_by is None else None
        return msgspec.structs.replace(found, chain=(*found.chain, f"{self.name} episode")) if found else detail

    async def _close_session(self, environment: str, scope: Scope) -> None:
        try:
            await self.calls.call(environment, "/close_session", {}, scope, stage=Stage.CLOSE, timeout_s=5.0)
        except CallError as error:
            self.log.warning("could not close the session of rollout %s: %s", scope.rollout_id, error)
