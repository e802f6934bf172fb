"""What the built-in agents share: one environment and one model, and how they use both."""

from __future__ import annotations

from gymnast.kit import (
    Agent,
    AgentSettings,
    CallError,
    CreateParams,
    JsonObject,
    ModelRef,
    ResourcesRef,
    Response,
    Scope,
    Stage,
)


class EnvironmentAgentSettings(AgentSettings):
    resources_server: ResourcesRef
    model_server: ModelRef


class EnvironmentAgent(Agent):
    """An agent of one environment and one model; `respond` is a plain model call."""

    settings: EnvironmentAgentSettings

    async def respond(self, params: CreateParams, scope: Scope) -> Response:
        response: Response = await self.call_model(self.settings.model_server.name, params, scope)
        return response

    async def aggregate_metrics(self, body: JsonObject) -> JsonObject:
        reply: JsonObject = await self.calls.expect(
            self.settings.resources_server.name, "/aggregate_metrics", body, stage=Stage.AGENT
        )
        return reply

    async def close_session(self, scope: Scope, path: str = "/close_session") -> None:
        """End the session of a rollout that failed; another failure here is only logged."""
        try:
            await self.calls.call(
                self.settings.resources_server.name, path, {}, scope, stage=Stage.CLOSE, timeout_s=5.0
            )
        except CallError as error:
            self.log.warning("could not close the session of rollout %s: %s", scope.rollout_id, error)
