"""`nemo_gym.config_types`: the types with which servers and tools declare and read settings."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, ClassVar, Final, Literal, Self, TypeAlias

from omegaconf import DictConfig as DictConfig
from omegaconf import OmegaConf as OmegaConf
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError, field_validator, model_validator

from gymnast.compat.nemo_gym.errors import *  # noqa: F403 - the module has all names of the other
from gymnast.compat.nemo_gym.rollout_correlation import ROLLOUT_PATH_PREFIX as ROLLOUT_PATH_PREFIX
from gymnast.compat.nemo_gym.rollout_correlation import TOKEN_CAPTURE_PATH
from gymnast.compat.nemo_gym.surface import missing_from
from gymnast.config.datasets import LICENSES
from gymnast.config.instances import SERVER_KINDS
from gymnast.types.task import AGENT_REF

AGENT_REF_KEY: Final = AGENT_REF
TOKEN_CAPTURE_PATH_SEGMENT: Final = TOKEN_CAPTURE_PATH


class BaseNeMoGymCLIConfig(BaseModel):
    """The settings of a command."""


class AggregateMetricsRequest(BaseModel):
    """Verify rows to aggregate."""

    verify_responses: list[dict[str, Any]]


class AggregateMetrics(BaseModel):
    """Statistics per task, over all rollouts, and the key ones."""

    group_level_metrics: list[dict[str, Any]] = Field(default_factory=list)
    agent_metrics: dict[str, Any] = Field(default_factory=dict)
    key_metrics: dict[str, Any] = Field(default_factory=dict)


# --- servers ---------------------------------------------------------------------------------------------------------


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


class BenchmarkDatasetConfig(BaseModel):
    name: str
    type: Literal["benchmark"]
    jsonl_fpath: Path
    prepare_script: Path
    prompt_config: Path | None = None
    num_repeats: int = Field(default=1, ge=1)


class BaseServerConfig(BaseModel):
    host: str
    port: int
    num_workers: int | None = None


class BaseRunServerConfig(BaseServerConfig):
    """A server that is started from an entry file."""

    model_config = ConfigDict(extra="ignore")
    entrypoint: str
    domain: Domain | None = None


class BaseRunServerInstanceConfig(BaseRunServerConfig):
    name: str


class ModelServerRef(BaseModel):
    type: Literal["responses_api_models"]
    name: str


class ResourcesServerRef(BaseModel):
    type: Literal["resources_servers"]
    name: str


class AgentServerRef(BaseModel):
    type: Literal["responses_api_agents"]
    name: str


ServerRef: TypeAlias = ModelServerRef | ResourcesServerRef | AgentServerRef
ServerRefTypeAdapter: TypeAdapter[ServerRef] = TypeAdapter(ServerRef)


def is_server_ref(config_dict: Any) -> ServerRef | None:
    """The reference that a value is, or None."""
    try:
        return ServerRefTypeAdapter.validate_python(config_dict)
    except ValidationError:
        return None


# --- datasets --------------------------------------------------------------------------------------------------------

DatasetType: TypeAlias = Literal["train", "validation", "example"]


class JsonlDatasetGitlabIdentifer(BaseModel):
    """A file in GitLab's model registry."""

    dataset_name: str
    version: str
    artifact_fpath: str


class JsonlDatasetHuggingFaceIdentifer(BaseModel):
    """A dataset on the Hub, or one file of it."""

    repo_id: str
    artifact_fpath: str | None = None


class GitlabDatasetSource(JsonlDatasetGitlabIdentifer):
    """A source in GitLab's model registry."""

    type: Literal["gitlab"]


class HuggingFaceDatasetSource(JsonlDatasetHuggingFaceIdentifer):
    type: Literal["huggingface"]


DatasetSource: TypeAlias = Annotated[GitlabDatasetSource | HuggingFaceDatasetSource, Field(discriminator="type")]


class DatasetConfig(BaseModel):
    """A dataset of an agent. `source` and the older identifier fields are kept in step."""

    name: str
    type: DatasetType
    jsonl_fpath: str
    num_repeats: int = Field(default=1, ge=1)
    source: DatasetSource | None = None
    gitlab_identifier: JsonlDatasetGitlabIdentifer | None = None
    huggingface_identifier: JsonlDatasetHuggingFaceIdentifer | None = None
    license: str | None = None

    @field_validator("license")
    @classmethod
    def _known_license(cls, value: str | None) -> str | None:
        if value is not None and value not in LICENSES:
            raise ValueError(f"unknown license '{value}'; the known ones are {', '.join(LICENSES)}")
        return value

    @model_validator(mode="after")
    def _complete(self) -> Self:
        if self.type != "example" and self.license is None:
            raise ValueError(f"the {self.type} dataset '{self.name}' needs a license")
        older = [value for value in (self.gitlab_identifier, self.huggingface_identifier) if value is not None]
        if self.source is not None and older:
            raise ValueError(f"the dataset '{self.name}' has both a source and an identifier; keep the source")
        if isinstance(self.source, GitlabDatasetSource):
            self.gitlab_identifier = JsonlDatasetGitlabIdentifer(**self.source.model_dump(exclude={"type"}))
        elif isinstance(self.source, HuggingFaceDatasetSource):
            self.huggingface_identifier = JsonlDatasetHuggingFaceIdentifer(**self.source.model_dump(exclude={"type"}))
        elif len(older) == 1:
            kind = "gitlab" if self.gitlab_identifier is not None else "huggingface"
            self.source = TypeAdapter(DatasetSource).validate_python({"type": kind, **older[0].model_dump()})
        return self


# --- server blocks ---------------------------------------------------------------------------------------------------


class BaseRunServerTypeConfig(BaseRunServerConfig):
    """The settings in a server's block; its address may be assigned later."""

    model_config = ConfigDict(extra="allow")
    host: str | None = None  # type: ignore[assignment] # as there
    port: int | None = None  # type: ignore[assignment] # as there
    datasets: list[DatasetConfig | BenchmarkDatasetConfig] | None = None


_OneServer: TypeAlias = Annotated[dict[str, BaseRunServerTypeConfig], Field(min_length=1, max_length=1)]


class BaseServerTypeConfig(BaseModel):
    model_config = ConfigDict(extra="allow")
    SERVER_TYPE: ClassVar[Literal["responses_api_models", "resources_servers", "responses_api_agents"]]


class ResponsesAPIModelServerTypeConfig(BaseServerTypeConfig):
    SERVER_TYPE = "responses_api_models"
    responses_api_models: _OneServer


class ResourcesServerTypeConfig(BaseServerTypeConfig):
    SERVER_TYPE = "resources_servers"
    resources_servers: _OneServer


class ResponsesAPIAgentServerTypeConfig(BaseServerTypeConfig):
    SERVER_TYPE = "responses_api_agents"
    responses_api_agents: _OneServer


ServerTypeConfig: TypeAlias = (
    ResponsesAPIModelServerTypeConfig | ResourcesServerTypeConfig | ResponsesAPIAgentServerTypeConfig
)


class BaseServerInstanceConfig(BaseServerTypeConfig):
    """A server's block and the name of its instance. Resources servers must have a domain; others have none."""

    model_config = ConfigDict(arbitrary_types_allowed=True)
    name: str
    server_type_config_dict: DictConfig = Field(exclude=True)

    @model_validator(mode="after")
    def _check_domain(self) -> Self:
        config = self.get_inner_run_server_config()
        if self.SERVER_TYPE != "resources_servers":
            del config.domain
        elif config.domain is None:
            raise ValueError(f"the resources server '{self.name}' needs a domain")
        return self

    def get_server_ref(self) -> ServerRef | None:
        return is_server_ref({"type": self.SERVER_TYPE, "name": self.name})

    def get_inner_run_server_config(self) -> BaseRunServerTypeConfig:
        """The settings in the block."""
        servers: dict[str, BaseRunServerTypeConfig] = getattr(self, self.SERVER_TYPE)
        return next(iter(servers.values()))

    def get_inner_run_server_config_dict(self) -> DictConfig:
        """The settings in the block, as in the configuration."""
        settings: DictConfig = next(iter(self.server_type_config_dict[self.SERVER_TYPE].values()))
        return settings

    @property
    def datasets(self) -> list[DatasetConfig | BenchmarkDatasetConfig] | None:
        return self.get_inner_run_server_config().datasets


class ResponsesAPIModelServerInstanceConfig(ResponsesAPIModelServerTypeConfig, BaseServerInstanceConfig):
    """An instance of a model server."""


class ResourcesServerInstanceConfig(ResourcesServerTypeConfig, BaseServerInstanceConfig):
    """An instance of a resources server."""


class ResponsesAPIAgentServerInstanceConfig(ResponsesAPIAgentServerTypeConfig, BaseServerInstanceConfig):
    """An instance of an agent."""


ServerInstanceConfig: TypeAlias = (
    ResponsesAPIModelServerInstanceConfig | ResourcesServerInstanceConfig | ResponsesAPIAgentServerInstanceConfig
)
ServerInstanceConfigTypeAdapter: TypeAdapter[ServerInstanceConfig] = TypeAdapter(ServerInstanceConfig)


def maybe_get_server_instance_config(
    name: str, server_type_config_dict: Any
) -> tuple[ServerInstanceConfig | None, ValidationError | None]:
    """The instance that a value of the configuration is, or why it is none; both None if it is not even a block."""
    if not isinstance(server_type_config_dict, DictConfig):
        return None, None
    block: Any = OmegaConf.to_container(server_type_config_dict)
    try:
        return ServerInstanceConfigTypeAdapter.validate_python(
            {"name": name, "server_type_config_dict": server_type_config_dict, **block}
        ), None
    except ValidationError as error:
        return None, error


def is_almost_server(server_type_config_dict: Any) -> bool:
    """Whether a value of the configuration looks like a server: a kind of servers with an entry file."""
    if not isinstance(server_type_config_dict, DictConfig):
        return False
    kinds = [server_type_config_dict[kind] for kind in SERVER_KINDS if kind in server_type_config_dict]
    blocks = [block for kind in kinds if isinstance(kind, DictConfig) for block in kind.values()]
    return any(isinstance(block, DictConfig) and "entrypoint" in block for block in blocks)


__getattr__ = missing_from("nemo_gym.config_types")
