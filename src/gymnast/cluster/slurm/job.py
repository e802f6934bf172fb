"""A Slurm job as a value: what its script is rendered from."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from gymnast.cluster.site import Resources

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gymnast.cluster.components.spec import Component
    from gymnast.cluster.site import Runtime


@dataclass(frozen=True, slots=True)
class InJob:
    """A word of a command that is known only inside the job: shell text of our own making, never of anybody else's."""

    text: str


Word = str | InJob


@dataclass(frozen=True, slots=True)
class Step:
    """One srun of a job: where the component runs, and the words that are run there."""

    component: Component
    words: tuple[Word, ...]
    log: str | None = None
    """Its own log file; None: the job's."""


@dataclass(frozen=True, slots=True)
class Array:
    """A job that is many."""

    count: int
    at_once: int | None = None


@dataclass(frozen=True, slots=True)
class Job:
    """One job: its steps run at the same time and end with the main one, or run one after the other."""

    name: str
    about: str
    """What it is for; a comment at the top of its script."""
    folder: str
    """Of the submission."""
    log: str
    """With Slurm's own places: `%A_%a`, `%j`."""
    steps: tuple[Step, ...]
    resources: tuple[Resources, ...] = (Resources(),)
    """One for each part of a heterogeneous job."""
    in_order: bool = False
    """Whether each step waits for the one before it, and the first that fails ends the job."""
    array: Array | None = None
    after: tuple[str, ...] = ()
    """What must have happened before: `afterany:17`."""
    drain_s: int | None = None
    """How long before its time is up the main step gets SIGUSR1."""
    requeue: int = 0
    runtime: Runtime = "none"
    environment: Mapping[str, str] = field(default_factory=dict)
    setup: tuple[str, ...] = ()
    srun_options: tuple[str, ...] = ()

    @property
    def main(self) -> Component:
        """The component that the job ends with."""
        return next((step.component for step in self.steps if step.component.is_main), self.steps[-1].component)
