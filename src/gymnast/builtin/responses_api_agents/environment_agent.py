"""What the built-in agents share: one environment and one model, and how they use both."""

from __future__ import annotations

from typing import cast

from gymnast.kit import (
    PARAMS,
    Agent,
    AgentSettings,
    CallError,
    CreateParams,
    JsonObject,
    ModelRef,
    OfferTools,
    ResourcesRef,
    Response,
    Scope,
    ServerContext,
    Stage,
    list_tools,
)


class EnvironmentAgentSettings(AgentSettings):
    resources_server: ResourcesRef
    model_server: ModelRef
    tools: OfferTools = "auto"
    """The tools of a row that names none: those of the environment (auto), or none (row)."""


class EnvironmentAgent(Agent):
    """An agent of one environment and one model; `respond` is a plain model call."""

    settings: EnvironmentAgentSettings

    def __init__(self, name: str, settings: EnvironmentAgentSettings, context: ServerContext) -> None:
        super().__init__(name, settings, context)
        self._environment_tools: list[JsonObject] | None = None

    async def prepare(self, row: JsonObject, params: CreateParams, scope: Scope) -> tuple[JsonObject, CreateParams]:
        """Offer the environment's tools to the model if the row says nothing about tools."""
        if self.settings.tools == "row" or "tools" in params:
            return row, params
        if self._environment_tools is None:  # they do not change while it runs
            name, timeout_s = self.settings.resources_server.name, self.settings.seed_timeout_s
            self._environment_tools = await list_tools(self.calls, name, timeout_s)
        tools = self._environment_tools
        if not tools:
            return row, params
        return {**row, PARAMS: {**row[PARAMS], "tools": tools}}, cast("CreateParams", {**params, "tools": tools})

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
