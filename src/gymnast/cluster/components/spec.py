"""What one job is made of: its components as values. Rendering them and running them live elsewhere."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True)
class Mount:
    """A folder of the host inside a container."""

    source: str
    target: str
    read_only: bool = False


@dataclass(frozen=True, slots=True)
class Container:
    """An image, by the name that the site's configuration gives it (already resolved to `image`)."""

    name: str
    image: str
    mounts: tuple[Mount, ...] = ()
    workdir: str | None = None


@dataclass(frozen=True, slots=True)
class Component:
    """One program of a job, on its own share of the job's allocation."""

    name: str
    command: tuple[str, ...]
    """What it runs. `{port}`, `{host}`, `{task}` and `{gpus}` are filled in where it runs, never by a shell."""
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


@dataclass(frozen=True, slots=True)
class ReadyCheck:
    """A component is ready when its HTTP path answers with a status below 400 (200 unless said otherwise)."""

    path: str = "/health"
    deadline_s: float = 1800.0
    first_interval_s: float = 0.5
    longest_interval_s: float = 15.0
