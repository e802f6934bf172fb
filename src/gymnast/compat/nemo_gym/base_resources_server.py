"""`nemo_gym.base_resources_server`: the base classes of environments."""

import operator
from abc import ABC, abstractmethod
from enum import StrEnum
from typing import Any, ClassVar

from fastapi import FastAPI
from pydantic import BaseModel, Field

from gymnast.compat.nemo_gym.config_types import AggregateMetrics as AggregateMetrics
from gymnast.compat.nemo_gym.config_types import AggregateMetricsRequest as AggregateMetricsRequest
from gymnast.compat.nemo_gym.config_types import BaseRunServerInstanceConfig
from gymnast.compat.nemo_gym.judge import judge_failsafe
from gymnast.compat.nemo_gym.mcp_auto_exposure import NEMO_GYM_MCP_METADATA_KEY as NEMO_GYM_MCP_METADATA_KEY
from gymnast.compat.nemo_gym.mcp_auto_exposure import MCPTool, add_mcp_offer, strip_mcp_names
from gymnast.compat.nemo_gym.openai_utils import NeMoGymResponse as NeMoGymResponse
from gymnast.compat.nemo_gym.openai_utils import NeMoGymResponseCreateParamsNonStreaming
from gymnast.compat.nemo_gym.reward_profile import AggregateMetricsMixin
from gymnast.compat.nemo_gym.rollout_correlation import RolloutContextMiddleware
from gymnast.compat.nemo_gym.server_utils import BaseServer, SimpleServer
from gymnast.compat.nemo_gym.surface import missing_from
from gymnast.config.instances import ServerKind


def _is_none(value: Any) -> bool:
    return value is None


class ReverifyMode(StrEnum):
    """Whether stored rollouts can be scored again."""

    STATELESS = "stateless"
    UNSUPPORTED = "unsupported"
    UNKNOWN = "unknown"


class BaseResourcesServerConfig(BaseRunServerInstanceConfig):
    """Settings of every environment."""

    expose_tools_over_mcp: bool = False
    REVERIFY_MODE: ClassVar[ReverifyMode] = ReverifyMode.UNKNOWN


class BaseRunRequest(BaseModel):
    """A row of a dataset."""

    responses_create_params: NeMoGymResponseCreateParamsNonStreaming


class BaseVerifyRequest(BaseRunRequest):
    """A dataset row and the response to it."""

    response: NeMoGymResponse


class BaseVerifyResponse(BaseVerifyRequest):
    """A scored response. Of its optional fields, which came after 0.5.1, a reply has those that are set."""

    reward: float
    mask_sample: bool = Field(default=False, exclude_if=operator.not_)
    """Whether the reward says nothing about the policy, so that no mean and no training step may use it."""
    failure_kind: str | None = Field(default=None, exclude_if=_is_none)
    failure_reason: str | None = Field(default=None, exclude_if=_is_none)
    """What went wrong in the environment, for people."""


class BaseMultiRewardVerifyResponse(BaseVerifyResponse):
    """A response scored in several ways."""

    reward_components: dict[str, float]


class BaseSeedSessionRequest(BaseModel):
    """The request that starts a session."""


class BaseSeedSessionResponse(BaseModel):
    """The reply of a new session."""


class BaseResourcesServer(BaseServer):
    """A server of the kind `resources_servers`."""

    GYMNAST_KIND: ClassVar[ServerKind] = "resources_servers"
    config: BaseResourcesServerConfig


class SimpleResourcesServer(BaseResourcesServer, AggregateMetricsMixin, SimpleServer, ABC):
    """An environment: its tools are routes, and `verify` scores a response."""

    config: BaseResourcesServerConfig

    def setup_webserver(self) -> FastAPI:
        """The application; subclasses add the routes of their tools to it."""
        app = FastAPI()
        self.setup_session_middleware(app)
        app.add_middleware(RolloutContextMiddleware)
        self.setup_liveness(app)
        seed: Any = self.seed_session
        verify: Any = judge_failsafe(self.verify)
        if self.config.expose_tools_over_mcp:
            seed, verify = add_mcp_offer(self, seed), strip_mcp_names(self, verify)
        app.post("/seed_session")(seed)
        app.post("/verify")(verify)
        app.post("/aggregate_metrics")(self.aggregate_metrics)
        app.get("/reverify_mode")(self.get_reverify_mode)
        return app

    def normalize_tool_name(self, name: str) -> str:
        """The tool behind the name `mcp__SERVER__TOOL`."""
        parts = name.split("__", 2)
        return parts[2] if len(parts) == 3 and parts[0] == "mcp" else name

    def mcp_tools(self, harvested: list[MCPTool], catchall: Any | None) -> list[MCPTool] | None:
        """The tools to offer over MCP; None offers those of the routes."""
        return None

    def mcp_allowed_tools_for_session(self, seed_body: dict[str, Any]) -> list[str] | None:
        """The tools that a session may call over MCP; None allows all."""
        return None

    async def seed_session(self, body: BaseSeedSessionRequest) -> BaseSeedSessionResponse:
        """Start a session."""
        return BaseSeedSessionResponse()

    @abstractmethod
    async def verify(self, body: BaseVerifyRequest) -> BaseVerifyResponse:
        """Score a response."""

    async def aggregate_metrics(self, body: AggregateMetricsRequest) -> AggregateMetrics:
        """Aggregate verify rows."""
        return self.compute_aggregate(body)

    async def get_reverify_mode(self) -> ReverifyMode:
        """Whether stored rollouts can be scored again."""
        return type(self.config).REVERIFY_MODE


__getattr__ = missing_from("nemo_gym.base_resources_server")
