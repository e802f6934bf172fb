"""Rollouts run by an environment of the package `verifiers`: its own harness, with a policy URL per rollout.

The gateway captures the harness's model calls; the environment gives the reward.
"""

from __future__ import annotations

from typing import Any

import msgspec

from gymnast.builtin.responses_api_agents.command_agent.outcome import make_traced_response
from gymnast.builtin.responses_api_agents.gateway_agent import GatewayAgent, GatewayAgentSettings
from gymnast.kit import (
    CallError,
    CreateParams,
    FailureDetail,
    JsonObject,
    RolloutEndpoint,
    Scope,
    Stage,
    request_verdict,
    seed_session,
)


class VerifiersAgent(GatewayAgent):
    """Runs one episode per rollout."""

    settings: GatewayAgentSettings

    async def run(self, row: JsonObject, params: CreateParams, scope: Scope) -> JsonObject:
        environment = self.settings.resources_server.name
        await seed_session(self.calls, environment, row, scope, self.settings)
        try:
            endpoint = await self._run_episode(params, scope)
            response = make_traced_response(params, endpoint, endpoint.trace.main_output(), endpoint.ended_by)
            verdict = await request_verdict(self.calls, environment, row, response, scope, self.settings)
        except BaseException:
            await self.close_session(scope)
            raise
        return {**verdict, "ng_model_call_capture": self.capture(endpoint, scope.rollout_id)}

    async def _run_episode(self, params: CreateParams, scope: Scope) -> RolloutEndpoint:
        async with self.open_endpoint(params, scope) as (endpoint, address):
            body: Any = {"base_url": address.openai_url, "api_key": address.key, "model": self.settings.model_name}
            try:
                await self.calls.expect(
                    self.settings.resources_server.name,
                    "/run_episode",
                    body,
                    scope,
                    stage=Stage.AGENT,
                    timeout_s=self.settings.timeout_s,
                )
            except CallError as error:
                raise CallError(self._cause(endpoint, error.detail)) from error
        failure = self._cause(endpoint, None)
        if failure is not None:
            raise CallError(failure)
        return endpoint

    def _cause(self, endpoint: RolloutEndpoint, detail: FailureDetail | None) -> Any:
        """The cause of a failed episode: a model call that failed without a later success, or the harness's failure."""
        failure = endpoint.last_failure if endpoint.ended_by is None else None
        return msgspec.structs.replace(failure, chain=(*failure.chain, f"{self.name} episode")) if failure else detail
