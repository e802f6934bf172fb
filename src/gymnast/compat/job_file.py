"""The job file of `gym eval submit`: services, a Slurm cluster, and benchmarks to run against them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, Self

from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, model_validator
from yaml import YAMLError

from gymnast.errors import ConfigError, DataError, Problem

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

_POLICY_KEYS: Final = ("policy_base_url", "policy_model_name", "policy_api_key")


def _one_line(text: str) -> str:
    if re.search(r"[\r\n\0]", text):
        raise ValueError("expected a single line")
    return text


def _is_variable(name: str) -> str:
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
        raise ValueError(f"'{name}' is not a valid name for an environment variable")
    return name


def _is_folder_name(name: str) -> str:
    if not name or "/" in name or name in {".", ".."}:
        raise ValueError(f"'{name}' cannot be the name of a folder")
    return _one_line(name)


Line = Annotated[str, AfterValidator(_one_line)]
_Arguments = dict[Line, Line]
_Variables = dict[Annotated[str, AfterValidator(_is_variable)], str]


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid")


class HealthCheck(_Part):
    """How a service shows that it is ready."""

    path: Line = "/health"
    port: int | None = None
    timeout_seconds: int = 60


class _Service(_Part):
    container: Line
    placement: str | None = None
    health_check: HealthCheck | None = None
    env: _Variables = Field(default_factory=dict)
    mounts: list[Line] = Field(default_factory=list)
    """As Pyxis has them: `src`, `src:dst` or `src:dst:flags`."""


class Backend(_Part):
    """How several instances of vLLM share a node."""

    type: Literal["mp"] = "mp"


class VllmService(_Service):
    """A vLLM server."""

    type: Literal["vllm"]
    model: Line
    port: int = 8000
    tensor_parallel_size: int = 1
    pipeline_parallel_size: int = 1
    trust_remote_code: bool = False
    number_of_instances: int = Field(default=1, ge=1)
    distributed_backend: Backend | None = None

    @model_validator(mode="after")
    def _complete(self) -> Self:
        if self.number_of_instances == 1 and self.distributed_backend is not None:
            raise ValueError("distributed_backend needs more than one instance")
        if self.number_of_instances > 1 and self.distributed_backend is None:
            self.distributed_backend = Backend()
        check = self.health_check or HealthCheck()
        self.health_check = check.model_copy(update={"port": check.port or self.port})
        return self

    @property
    def gpus(self) -> int:
        """How many GPUs it needs."""
        return self.tensor_parallel_size * self.pipeline_parallel_size * self.number_of_instances


class RayService(_Service):
    """A Ray head node."""

    type: Literal["ray"]

    @model_validator(mode="after")
    def _has_port(self) -> Self:
        if self.health_check is not None and self.health_check.port is None:
            raise ValueError("the health_check of a Ray service needs a port")
        return self


Service = Annotated[VllmService | RayService, Field(discriminator="type")]


class NodePool(_Part):
    """Nodes of one partition."""

    partition: Line
    nodes: int = 1
    ntasks_per_node: int = 1
    gpus_per_node: int | None = None
    extra_args: _Arguments = Field(default_factory=dict)


class SlurmCluster(_Part):
    """Where the jobs run; without a hostname, this machine submits them."""

    type: Literal["slurm"]
    account: Line
    hostname: Line | None = None
    walltime: Line | None = None
    node_pools: dict[Line, NodePool] = Field(default_factory=dict)
    extra_args: _Arguments = Field(default_factory=dict)


class BenchmarkRun(_Part):
    """What to pass to `gym eval prepare` and `gym eval run`."""

    prepare: dict[str, Any] = Field(default_factory=dict)
    run: dict[str, Any] = Field(default_factory=dict)


class GymInstall(_Part):
    """What to install in the driver's container before it runs."""

    repo: Line
    ref: Line


class Driver(_Part):
    """What runs the benchmarks."""

    container: Line = "python:3.12"
    gym_install: GymInstall | None = None
    policy_model: str | None = None
    """The service that answers as the policy."""
    benchmarks: dict[Annotated[str, AfterValidator(_is_folder_name)], BenchmarkRun]
    env: _Variables = Field(default_factory=dict)
    mounts: list[Line] = Field(default_factory=list)


class Job(_Part):
    """Where the files of a job are; each submission makes a folder in it."""

    output_path: Line


class JobFile(_Part):
    """The whole file."""

    services: dict[Annotated[str, AfterValidator(_is_folder_name)], Service]
    compute: dict[str, SlurmCluster] = Field(min_length=1)
    driver: Driver
    job: Job

    @property
    def cluster(self) -> SlurmCluster:
        return next(iter(self.compute.values()))

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if len(self.compute) > 1:
            raise ValueError(f"expected one cluster in compute, got {', '.join(sorted(self.compute))}")
        for name, service in self.services.items():
            if service.placement not in {None, *self.compute}:
                raise ValueError(
                    f"service '{name}' has the placement '{service.placement}', which compute does not define"
                )
            if isinstance(service, VllmService) and service.gpus > (self.gpus_per_node or service.gpus):
                raise ValueError(
                    f"service '{name}' needs {service.gpus} GPUs, but the largest node has {self.gpus_per_node}:"
                    " reduce number_of_instances, tensor_parallel_size or pipeline_parallel_size"
                )
        return self._with_policy()

    def _with_policy(self) -> Self:
        """Point the benchmarks at the service that is the policy."""
        name = self.driver.policy_model
        if name is None:
            return self
        service = self.services.get(name)
        if service is None:
            raise ValueError(
                f"driver.policy_model is '{name}', but the services are {', '.join(sorted(self.services))}"
            )
        if isinstance(service, VllmService):
            for benchmark, settings in self.driver.benchmarks.items():
                conflicts = [key for key in _POLICY_KEYS if key in settings.run]
                if conflicts:
                    raise ValueError(f"benchmark '{benchmark}' sets {', '.join(conflicts)}, and so does policy_model")
                values = (f"http://localhost:{service.port}/v1", service.model, "dummy")
                settings.run.update(zip(_POLICY_KEYS, values, strict=True))
        return self

    @property
    def gpus_per_node(self) -> int | None:
        """Those of the largest node, if the file says it."""
        known = [pool.gpus_per_node for pool in self.cluster.node_pools.values() if pool.gpus_per_node is not None]
        return max(known, default=None)

    @property
    def warnings(self) -> Iterator[str]:
        """What is allowed and wasteful."""
        for name, service in self.services.items():
            if isinstance(service, VllmService) and service.gpus < (self.gpus_per_node or 0):
                yield f"service '{name}' uses {service.gpus} of {self.gpus_per_node} GPUs of a node"


def read_job_file(path: Path, overrides: Sequence[str]) -> JobFile:
    """Read a job file; `overrides` are `key.path=value`."""
    try:
        tree = OmegaConf.load(path)
        dotlist = [word.lstrip("+") for word in overrides]
        values = OmegaConf.to_container(OmegaConf.merge(tree, OmegaConf.from_dotlist(dotlist)), resolve=True)
        return JobFile.model_validate(values)
    except ValidationError as error:
        raise ConfigError([_problem(detail, path) for detail in error.errors(include_url=False)]) from error
    except (OSError, ValueError, YAMLError, OmegaConfBaseException) as error:
        raise DataError(f"cannot read the job file: {error}", where=str(path)) from error


def _problem(detail: Any, path: Path) -> Problem:
    where = ".".join(str(step) for step in detail["loc"])
    return Problem(detail["msg"].removeprefix("Value error, "), where=f"{path} {where}".strip())
