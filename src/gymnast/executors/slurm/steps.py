"""The srun commands of a job: each component on its share of the allocation, in its container. Pure."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Final

from gymnast.executors.slurm.job import Job, ShellText, Step, Word

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gymnast.sidecars.component import Component, Container, Mount

_WIDTH: Final = 110


def step_command(job: Job, step: Step) -> list[list[Word]]:
    """The words of one component's srun, in groups: placement, container, command."""
    component = step.component
    placement: list[Word] = ["srun", "--kill-on-bad-exit=1"]
    if not job.is_sequential:
        placement.append("--overlap")
    placement += _placement(job, component)
    if step.log is not None:
        placement.append(f"--output={step.log}")
    placement += job.srun_options
    return [placement, [*_container(job, component)], [*_environment(component), *step.words]]


def format_command(groups: list[list[Word]]) -> str:
    """Format a command as shell text in readable lines."""
    lines = []
    for group in filter(None, groups):
        current = ""
        for word in group:
            text = word.text if isinstance(word, ShellText) else shlex.quote(word)
            if current and len(current) + len(text) > _WIDTH:
                lines.append(current)
                current = ""
            current = f"{current} {text}" if current else text
        lines.append(current)
    return " \\\n    ".join(lines)


def hosts_variable(component: Component) -> str:
    """The shell array with the host names of a component's part of the job."""
    return "hosts" if component.het_group is None else f"hosts_{component.het_group}"


def nodes_of(job: Job, component: Component) -> int:
    """The number of nodes in a component's part of the job."""
    group = component.het_group or 0
    nodes = (step.component.nodes for step in job.steps if (step.component.het_group or 0) == group)
    return job.resources[group].nodes or max(nodes)


def _placement(job: Job, component: Component) -> Iterator[Word]:
    if component.het_group is not None:
        yield f"--het-group={component.het_group}"
    yield f"--nodes={component.nodes}"
    yield f"--ntasks={component.tasks}"
    if component.tasks_per_node > 1:
        yield f"--ntasks-per-node={component.tasks_per_node}"
    if component.nodes < nodes_of(job, component):
        yield ShellText(f'--nodelist="$(join_hosts "${{{hosts_variable(component)}[@]:0:{component.nodes}}}")"')
    if component.cpus_per_task is not None:
        yield f"--cpus-per-task={component.cpus_per_task}"
    elif not job.is_sequential and len(job.steps) > 1:
        yield "--cpu-bind=none"  # components that share a node and request no CPUs may use all of them
    if component.gpus_per_task:
        yield f"--gpus-per-node={component.gpus_per_task * component.tasks_per_node}"
    if component.memory_mb is not None:
        yield f"--mem={component.memory_mb}M"


def _container(job: Job, component: Component) -> Iterator[Word]:
    container = component.container
    if container is None or job.runtime == "none":
        if component.workdir is not None:
            yield f"--chdir={component.workdir}"
    elif job.runtime == "pyxis":
        yield from _pyxis(container, component.workdir or container.workdir)
    else:
        yield from _apptainer(container, component)


def _pyxis(container: Container, workdir: str | None) -> Iterator[Word]:
    yield f"--container-image={container.image}"
    if container.mounts:
        yield f"--container-mounts={','.join(map(_mount, container.mounts))}"
    if workdir is not None:
        yield f"--container-workdir={workdir}"


def _apptainer(container: Container, component: Component) -> Iterator[Word]:
    yield from ("apptainer", "exec")
    if component.gpus_per_task:
        yield "--nv"
    for mount in container.mounts:
        yield f"--bind={_mount(mount)}"
    workdir = component.workdir or container.workdir
    if workdir is not None:
        yield f"--pwd={workdir}"
    yield container.image


def _mount(mount: Mount) -> str:
    return f"{mount.source}:{mount.target}{':ro' if mount.read_only else ''}"


def _environment(component: Component) -> Iterator[Word]:
    """Variables of the component alone. `env` sets them inside the container, whatever the runtime does with ours."""
    if component.environment:
        yield "env"
        yield from (f"{name}={value}" for name, value in sorted(component.environment.items()))
