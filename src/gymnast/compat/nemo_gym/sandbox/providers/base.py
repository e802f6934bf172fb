"""`nemo_gym.sandbox.providers.base`: the interface of sandbox providers and its types."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from gymnast.compat.nemo_gym.surface import missing_from


class SandboxStatus(StrEnum):
    STARTING = "starting"
    RUNNING = "running"
    STOPPED = "stopped"
    ERROR = "error"
    UNKNOWN = "unknown"


class SandboxCreateError(RuntimeError):
    """A sandbox could not be created."""


@dataclass(slots=True)
class SandboxExecResult:
    """The result of a command. `error_type` is set if it did not end on its own: `timeout` or `sandbox`."""

    stdout: str | None
    stderr: str | None
    return_code: int
    error_type: str | None = None


@dataclass(slots=True)
class SandboxEndpoint:
    """The address of a port of a sandbox."""

    endpoint: str
    headers: dict[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class SandboxResources:
    cpu: float | None = None
    memory_mib: int | None = None
    disk_gib: int | None = None
    gpu: int | None = None
    gpu_type: str | None = None

    @classmethod
    def from_mapping(cls, resources: Mapping[str, Any] | None) -> "SandboxResources":
        """Read from a configuration."""
        return cls(**dict(resources or {}))


@dataclass(slots=True)
class SandboxSpec:
    image: str | None = None
    ttl_s: int | float | None = None
    ready_timeout_s: int | float | None = None
    workdir: str | None = None
    env: dict[str, str] = field(default_factory=dict)
    files: dict[str, str] = field(default_factory=dict)
    """Initial files: path and text."""
    metadata: dict[str, str] = field(default_factory=dict)
    resources: SandboxResources | Mapping[str, Any] = field(default_factory=SandboxResources)
    entrypoint: list[str] | None = None
    provider_options: dict[str, Any] = field(default_factory=dict)
    ports: tuple[int, ...] | list[int] = field(default_factory=tuple)

    def __post_init__(self) -> None:
        self.ports = tuple(int(port) for port in self.ports)
        self.resources = self.limits()

    def limits(self) -> SandboxResources:
        resources = self.resources
        return resources if isinstance(resources, SandboxResources) else SandboxResources.from_mapping(resources)


@dataclass(slots=True)
class SandboxHandle:
    """A provider's handle of a sandbox."""

    sandbox_id: str
    provider_name: str
    raw: Any


class SandboxProvider(Protocol):
    """Creates sandboxes and runs commands in them."""

    name: str

    async def create(self, spec: SandboxSpec) -> SandboxHandle: ...

    async def exec(
        self,
        handle: SandboxHandle,
        command: str,
        *,
        cwd: str | None = None,
        env: dict[str, str] | None = None,
        timeout_s: float | None = 180,
        user: str | int | None = None,
    ) -> SandboxExecResult: ...

    async def upload_file(self, handle: SandboxHandle, source_path: Path, target_path: str) -> None: ...

    async def download_file(self, handle: SandboxHandle, source_path: str, target_path: Path) -> None: ...

    async def status(self, handle: SandboxHandle) -> SandboxStatus: ...

    async def endpoint(self, handle: SandboxHandle, port: int) -> SandboxEndpoint: ...

    async def close(self, handle: SandboxHandle) -> None: ...


@runtime_checkable
class ConnectableProvider(Protocol):
    """A provider whose sandboxes other processes can connect to."""

    async def serialize_handle(self, handle: SandboxHandle, *, scope: str | None = None) -> dict[str, Any]: ...

    async def connect(self, descriptor: Mapping[str, Any]) -> SandboxHandle: ...


__getattr__ = missing_from("nemo_gym.sandbox.providers.base")
