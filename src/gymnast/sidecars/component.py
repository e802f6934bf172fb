"""The components of a job as values. Other modules render and run them."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


@dataclass(frozen=True, slots=True)
class Mount:
    """A folder of the host inside a container."""

    source: str
    target: str
    read_only: bool = False

    def host_path(self, inside: str) -> str | None:
        """The host path of a path in the container; None if it is not below this mount."""
        top = self.target.rstrip("/")
        if inside != top and not inside.startswith(f"{top}/"):
            return None
        return (self.source.rstrip("/") + inside.removeprefix(top)) or "/"


@dataclass(frozen=True, slots=True)
class Container:
    """An image, by the site's name for it (resolved to `image`)."""

    name: str
    image: str
    mounts: tuple[Mount, ...] = ()
    workdir: str | None = None

    def with_folders(self, folders: Iterable[str]) -> Container:
        """The container with these folders mounted under the same paths, unless a mount has them already."""
        container = self
        for folder in folders:
            if container.host_path(folder) != folder:
                container = replace(container, mounts=(*container.mounts, Mount(folder, folder)))
        return container

    def host_path(self, inside: str) -> str | None:
        """The host path of a path in the container; None for one that belongs to the image."""
        paths = [(len(mount.target), path) for mount in self.mounts if (path := mount.host_path(inside)) is not None]
        return max(paths)[1] if paths else None


@dataclass(frozen=True, slots=True)
class Component:
    """One program of a job, on its share of the job's allocation."""

    name: str
    command: tuple[str, ...]
    """What it runs. `{port}`, `{host}`, `{task}` and `{gpus}` are filled in where it runs, never by a shell.

    So are `{folder}`, the job's; `{addresses:NAME}`, `{url:NAME}`, `{host:NAME}` and `{port:NAME}` of a component that
    it needs; and `{head}`, `{head_port}` and `{task*N}` of a multi-node program.
    """
    rest_command: tuple[str, ...] = ()
    """Set if its tasks are one multi-node program: what all tasks but the first run. Only the first serves requests."""
    nodes: int = 1
    tasks_per_node: int = 1
    """Replicas on each node."""
    gpus_per_task: int = 0
    cpus_per_task: int | None = None
    memory_mb: int | None = None
    container: Container | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    workdir: str | None = None
    het_group: int | None = None
    """Its part of a heterogeneous job; None if the job has one part."""
    needs: tuple[str, ...] = ()
    """Components that must be ready before it starts."""
    ready: ReadyCheck | None = None
    """How others know that it is ready; None for programs that no other needs."""
    restarts: int = 0
    """How often a replica that died is restarted before its death ends the job."""
    is_main: bool = False
    """The job ends when this one does, with its exit code."""
    stop_s: float = 20.0
    """How long it may take to end when it is told to."""

    @property
    def tasks(self) -> int:
        return self.nodes * self.tasks_per_node

    @property
    def addresses(self) -> int:
        """How many addresses it publishes when all of it is ready."""
        if self.ready is None:
            return 0
        return 1 if self.rest_command else self.tasks


@dataclass(frozen=True, slots=True)
class ReadyCheck:
    """A component is ready when its HTTP path replies with a status from 200 to 399."""

    path: str = "/health"
    deadline_s: float = 1800.0
    first_interval_s: float = 0.5
    longest_interval_s: float = 15.0
