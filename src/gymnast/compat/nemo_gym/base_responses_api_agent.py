"""`nemo_gym.base_responses_api_agent`: the base classes of agents."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar

from fastapi import Body as Body
from fastapi import FastAPI, Request

from gymnast.compat.nemo_gym.base_resources_server import BaseRunRequest, BaseVerifyResponse
from gymnast.compat.nemo_gym.config_types import AggregateMetrics, BaseRunServerInstanceConfig
from gymnast.compat.nemo_gym.config_types import AggregateMetricsRequest as AggregateMetricsRequest
from gymnast.compat.nemo_gym.context import CURRENT_REQUEST
from gymnast.compat.nemo_gym.observed_runs import ObservedRuns, observed_runs
from gymnast.compat.nemo_gym.openai_utils import NeMoGymResponse, NeMoGymResponseCreateParamsNonStreaming
from gymnast.compat.nemo_gym.reward_profile import AggregateMetricsMixin
from gymnast.compat.nemo_gym.rollout_correlation import TOKEN_CAPTURE_PATH, RolloutContextMiddleware
from gymnast.compat.nemo_gym.server_utils import (
    BaseServer,
    SimpleServer,
    apply_rollout_prefix,
    get_first_server_config_dict,
    rollout_path_prefix,
)
from gymnast.compat.nemo_gym.surface import missing_from
from gymnast.config.instances import ServerKind
from gymnast.types.task import correlation_id


class BaseResponsesAPIAgentConfig(BaseRunServerInstanceConfig):
    """Settings of every agent."""

    skip_verification: bool = False
    skip_verification_reward: float = 0.0
    token_id_capture: bool = False


class BaseResponsesAPIAgent(BaseServer):
    """A server of the kind `responses_api_agents`."""

    GYMNAST_KIND: ClassVar[ServerKind] = "responses_api_agents"
    config: BaseResponsesAPIAgentConfig


class SimpleResponsesAPIAgent(BaseResponsesAPIAgent, AggregateMetricsMixin, SimpleServer, ABC):
    """An agent: `run` turns a row into a verify row, `responses` a request into a response."""

    config: BaseResponsesAPIAgentConfig

    def setup_webserver(self) -> FastAPI:
        """The application. Paths with a rollout prefix reach the same routes."""
        app = FastAPI()
        self.setup_session_middleware(app)
        app.add_middleware(RolloutContextMiddleware)
        self.setup_liveness(app)
        app.post("/v1/responses")(self.responses)
        app.post("/run")(self.run)
        app.post("/aggregate_metrics")(self.aggregate_metrics)
        return app

    def gymnast_observed_runs(self) -> ObservedRuns | None:
        """The observed rollouts of this agent, or None if the run is not observed."""
        return observed_runs(self.server_client)

    def _capture_correlation_enabled(self) -> bool:
        """Whether model calls are correlated with rollouts."""
        return self._model_call_capture_enabled() or self._token_id_capture_enabled()

    def _model_call_capture_enabled(self) -> bool:
        return bool(self._global("observability_enabled"))

    def _token_id_capture_enabled(self) -> bool:
        block = self._global("token_id_capture") or {}
        return bool(block.get("enabled")) and (self.config.token_id_capture or bool(block.get("all_agents")))

    def _global(self, key: str) -> Any:
        """A key of the configuration; None for a mocked client, which has none."""
        config: Any = getattr(self.server_client, "global_config_dict", None)
        return config.get(key) if hasattr(config, "keys") else None

    def rollout_id_from_run(self, body: Any) -> str | None:
        """The id of the rollout that a row belongs to; None unless calls are correlated."""
        if not self._capture_correlation_enabled():
            return None
        return correlation_id(body if isinstance(body, dict) else body.model_dump())

    def url_path_for_run(self, url_path: str, body: Any) -> str:
        """A path of a model server, with the prefix of the row's rollout if calls are correlated."""
        return self._prefix(self.rollout_id_from_run(body)) + url_path

    def base_url_for_run(self, base_url: str, body: Any) -> str:
        """`url_path_for_run` for a base URL."""
        capture = self._token_id_capture_enabled()
        return apply_rollout_prefix(base_url, self.rollout_id_from_run(body), token_capture=capture)

    def url_path_for_request(self, url_path: str, request: Request | None) -> str:
        """`url_path_for_run` for the rollout that a request to this agent belongs to."""
        parameters = getattr(request, "path_params", None)
        rollout_id = parameters.get("rollout_id") if isinstance(parameters, Mapping) else None
        if rollout_id is None:
            return self._prefix(CURRENT_REQUEST.get().rollout_id) + url_path
        path = getattr(getattr(request, "url", None), "path", "")
        capture = f"/{TOKEN_CAPTURE_PATH}/" in path or self._token_id_capture_enabled()
        return rollout_path_prefix(rollout_id, token_capture=capture) + url_path

    def _prefix(self, rollout_id: str | None) -> str:
        if not self._capture_correlation_enabled():
            return ""
        return rollout_path_prefix(rollout_id, token_capture=self._token_id_capture_enabled())

    def resolve_model_base_url(self, model_server_name: str, rollout_id: str | None = None) -> str:
        """The base URL at which a harness reaches a model server, including `/v1`."""
        client = self.server_client
        block = get_first_server_config_dict(client.global_config_dict, model_server_name)
        base = f"{client._build_server_base_url(block)}/v1"  # noqa: SLF001 - part of the surface
        return apply_rollout_prefix(base, rollout_id, token_capture=self._token_id_capture_enabled())

    @abstractmethod
    async def responses(self, body: NeMoGymResponseCreateParamsNonStreaming = Body()) -> NeMoGymResponse:  # noqa: B008 - FastAPI's way
        """Answer a request."""

    @abstractmethod
    async def run(self, body: BaseRunRequest = Body()) -> BaseVerifyResponse:  # noqa: B008 - FastAPI's way
        """Turn a row into a verify row."""

    async def aggregate_metrics(self, body: AggregateMetricsRequest = Body()) -> AggregateMetrics:  # noqa: B008 - FastAPI's way
        """Aggregate verify rows."""
        if self.config.skip_verification:
            return AggregateMetrics()
        return self.compute_aggregate(body)


__getattr__ = missing_from("nemo_gym.base_responses_api_agent")
