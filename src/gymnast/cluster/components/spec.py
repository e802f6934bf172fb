"""What one job is made of: its components as values. Rendering them and running them live elsewhere."""

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

    def outside(self, inside: str) -> str | None:
        """The folder of the host that has this name in the container; None if this mount does not show it."""
        top = self.target.rstrip("/")
        if inside != top and not inside.startswith(f"{top}/"):
            return None
        return (self.source.rstrip("/") + inside.removeprefix(top)) or "/"


@dataclass(frozen=True, slots=True)
class Container:
    """An image, by the name that the site's configuration gives it (already resolved to `image`)."""

    name: str
    image: str
    mounts: tuple[Mount, ...] = ()
    workdir: str | None = None

    def reaching(self, folders: Iterable[str]) -> Container:
        """The same with these folders inside under their own names, unless a mount has them there already."""
        found = self
        for folder in folders:
            if found.outside(folder) != folder:
                found = replace(found, mounts=(*found.mounts, Mount(folder, folder)))
        return found

    def outside(self, inside: str) -> str | None:
        """The folder of the host that has this name inside; None for one that the image itself has."""
        shown = [(len(one.target), where) for one in self.mounts if (where := one.outside(inside)) is not None]
        return max(shown)[1] if shown else None


@dataclass(frozen=True, slots=True)
class Component:
    """One program of a job, on its own share of the job's allocation."""

    name: str
    command: tuple[str, ...]
    """What it runs. `{port}`, `{host}`, `{task}` and `{gpus}` are filled in where it runs, never by a shell.

    So are `{folder}`, the job's; `{addresses:NAME}`, `{url:NAME}`, `{host:NAME}` and `{port:NAME}` of a component that
    it needs; and `{head}`, `{head_port}` and `{task*N}` where its tasks are one program over several nodes.
    """
    rest_command: tuple[str, ...] = ()
    """What all tasks but the first run, where its tasks are one program over several nodes (only the first answers)."""
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
    """Its part of a heterogeneous job; None where the job has one part."""
    needs: tuple[str, ...] = ()
    """Components that must be ready before it starts."""
    ready: ReadyCheck | None = None
    """How others know that it is ready; None for programs nobody waits for."""
    restarts: int = 0
    """How often a replica that died is started again, before its death ends the job."""
    is_main: bool = False
    """The job ends when this one does, with its exit code."""
    stop_s: float = 20.0
    """How long it may take to end when told to."""

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
    """A component is ready when its HTTP path answers with a status below 400 (200 unless said otherwise)."""

    path: str = "/health"
    deadline_s: float = 1800.0
    first_interval_s: float = 0.5
    longest_interval_s: float = 15.0
