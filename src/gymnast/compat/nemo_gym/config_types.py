"""The configuration types of `nemo_gym.config_types`: what servers declare their settings with."""

from enum import StrEnum
from typing import Any, Literal

from omegaconf import DictConfig, OmegaConf
from pydantic import BaseModel, ConfigDict, Field

from gymnast.compat.nemo_gym.surface import missing_from

__all__ = [
    "AgentServerRef",
    "AggregateMetrics",
    "AggregateMetricsRequest",
    "BaseRunServerConfig",
    "BaseRunServerInstanceConfig",
    "BaseServerConfig",
    "DictConfig",
    "Domain",
    "ModelServerRef",
    "OmegaConf",
    "ResourcesServerRef",
]


class Domain(StrEnum):
    """What an environment is about."""

    MATH = "math"
    CODING = "coding"
    AGENT = "agent"
    KNOWLEDGE = "knowledge"
    INSTRUCTION_FOLLOWING = "instruction_following"
    LONG_CONTEXT = "long_context"
    SAFETY = "safety"
    GAMES = "games"
    TRANSLATION = "translation"
    E2E = "e2e"
    RLHF = "rlhf"
    OTHER = "other"


class ModelServerRef(BaseModel):
    """Names a model server."""

    type: Literal["responses_api_models"]
    name: str


class ResourcesServerRef(BaseModel):
    """Names a resources server."""

    type: Literal["resources_servers"]
    name: str


class AgentServerRef(BaseModel):
    """Names an agent."""

    type: Literal["responses_api_agents"]
    name: str


class BaseServerConfig(BaseModel):
    """Where a server is."""

    host: str
    port: int
    num_workers: int | None = None


class BaseRunServerConfig(BaseServerConfig):
    """A server that is started from a file."""

    model_config = ConfigDict(extra="ignore")
    entrypoint: str
    domain: Domain | None = None


class BaseRunServerInstanceConfig(BaseRunServerConfig):
    """A server with a name."""

    name: str


class AggregateMetricsRequest(BaseModel):
    """Verify rows to be summed up."""

    verify_responses: list[dict[str, Any]]


class AggregateMetrics(BaseModel):
    """Statistics for each task, over all rollouts, and those to look at first."""

    group_level_metrics: list[dict[str, Any]] = Field(default_factory=list)
    agent_metrics: dict[str, Any] = Field(default_factory=dict)
    key_metrics: dict[str, Any] = Field(default_factory=dict)


__getattr__ = missing_from("nemo_gym.config_types")
