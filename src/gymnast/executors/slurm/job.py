"""A Slurm job as a value, from which its script is rendered."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from gymnast.executors.site import Resources, Runtime

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gymnast.sidecars.component import Component


@dataclass(frozen=True, slots=True)
class ShellText:
    """A word of a command that is known only inside the job: our own shell text, never user input."""

    text: str


Word = str | ShellText


@dataclass(frozen=True, slots=True)
class Step:
    """One srun of a job: a component, and the command to run for it."""

    component: Component
    words: tuple[Word, ...]
    log: str | None = None
    """Its log file; None: the job's."""


@dataclass(frozen=True, slots=True)
class Array:
    count: int
    max_running: int | None = None


@dataclass(frozen=True, slots=True)
class Job:
    """One job. Its steps run at the same time and end with the main one, or run one after the other."""

    name: str
    description: str
    """A comment at the top of its script."""
    folder: str
    """Of the submission."""
    log: str
    """With Slurm's placeholders: `%A_%a`, `%j`."""
    steps: tuple[Step, ...]
    resources: tuple[Resources, ...] = (Resources(),)
    """One entry for each part of a heterogeneous job."""
    is_sequential: bool = False
    """Whether steps run one after the other, and the first that fails ends the job."""
    array: Array | None = None
    after: tuple[str, ...] = ()
    """Dependencies: `afterany:17`."""
    drain_s: int | None = None
    """How long before its time limit the main step gets SIGUSR1."""
    requeue: int = 0
    runtime: Runtime = "none"
    environment: Mapping[str, str] = field(default_factory=dict)
    setup: tuple[str, ...] = ()
    srun_options: tuple[str, ...] = ()

    @property
    def main(self) -> Component:
        return next((step.component for step in self.steps if step.component.is_main), self.steps[-1].component)
