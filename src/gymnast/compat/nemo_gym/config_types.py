"""`nemo_gym.config_types`: the types with which servers declare their settings."""

from enum import StrEnum
from pathlib import Path
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
    "BenchmarkDatasetConfig",
    "DictConfig",
    "Domain",
    "ModelServerRef",
    "OmegaConf",
    "ResourcesServerRef",
]


class Domain(StrEnum):
    """The subject of an environment."""

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
    """A reference to a model server."""

    type: Literal["responses_api_models"]
    name: str


class ResourcesServerRef(BaseModel):
    """A reference to a resources server."""

    type: Literal["resources_servers"]
    name: str


class AgentServerRef(BaseModel):
    """A reference to an agent."""

    type: Literal["responses_api_agents"]
    name: str


class BenchmarkDatasetConfig(BaseModel):
    """The dataset of a benchmark."""

    name: str
    type: Literal["benchmark"]
    jsonl_fpath: Path
    prepare_script: Path
    prompt_config: Path | None = None
    num_repeats: int = Field(default=1, ge=1)


class BaseServerConfig(BaseModel):
    """The address of a server."""

    host: str
    port: int
    num_workers: int | None = None


class BaseRunServerConfig(BaseServerConfig):
    """A server that is started from an entry file."""

    model_config = ConfigDict(extra="ignore")
    entrypoint: str
    domain: Domain | None = None


class BaseRunServerInstanceConfig(BaseRunServerConfig):
    """A server with a name."""

    name: str


class AggregateMetricsRequest(BaseModel):
    """Verify rows to aggregate."""

    verify_responses: list[dict[str, Any]]


class AggregateMetrics(BaseModel):
    """Statistics per task, over all rollouts, and the key ones."""

    group_level_metrics: list[dict[str, Any]] = Field(default_factory=list)
    agent_metrics: dict[str, Any] = Field(default_factory=dict)
    key_metrics: dict[str, Any] = Field(default_factory=dict)


__getattr__ = missing_from("nemo_gym.config_types")
