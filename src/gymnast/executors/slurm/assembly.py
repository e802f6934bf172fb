"""The jobs of one submission, assembled from the request, the site and the code. Pure."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

import msgspec

from gymnast.errors import UserError
from gymnast.executors.site import Resources, Site
from gymnast.executors.slurm.job import Array, Job, Step, Word
from gymnast.executors.slurm.script import JOB_FOLDER
from gymnast.executors.worker_command import worker_command
from gymnast.sidecars.component import Component, Container
from gymnast.sidecars.packing import sidecar_command, sort_by_needs

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from gymnast.executors.code_transfer import Code
    from gymnast.executors.executor import WorkerRequest

WORKER: Final = "worker"
_SINGLE_NODE: Final = {"nodes": None, "exclusive": False, "gres": None, "gpus_per_node": None, "memory": None}


@dataclass(frozen=True, slots=True)
class SlurmOptions:
    """Options of a submission, besides its workers."""

    site: Site = field(default_factory=Site)
    code: Code | None = None
    """None: as installed."""
    workdir: str | None = None
    """The workers' working folder, unless the code sets another."""
    components: tuple[Component, ...] = ()
    """Components of every job besides the worker: policy servers, a sandbox."""
    worker: Component | None = None
    """Nodes, CPUs, container and needs of the worker; its command is filled in."""
    parts: tuple[Resources, ...] = ()
    """Of a heterogeneous job; empty for a job with one part, which is the site's."""
    after: tuple[str, ...] = ()
    """Dependencies of the workers, as Slurm writes them."""
    finish: tuple[tuple[str, ...], ...] = ()
    """Commands of ours to run when all workers have ended: merge, profile."""
    finish_after: tuple[str, ...] = ()
    """Further jobs that it waits for, by number."""

    @property
    def python(self) -> str:
        """The Python with Gymnast where jobs run."""
        container = self.worker.container if self.worker is not None else None
        return self.site.python or ("python3" if container or self.site.container else sys.executable)

    @property
    def is_heterogeneous(self) -> bool:
        """Whether each worker's job has several parts. Slurm does not support arrays of those."""
        return len(self.parts) > 1


def worker_job(
    request: WorkerRequest, number: int, folder: Path, options: SlurmOptions, earlier: Sequence[str] = ()
) -> Job:
    """The workers: an array, or the next heterogeneous job, after those queued `earlier`."""
    components = job_components(request, folder, options)
    if any(component.is_main and component.het_group for component in components):
        raise UserError("the worker of a heterogeneous job must be in its first part, where the job's script runs")
    site, is_heterogeneous = options.site, options.is_heterogeneous
    # Not a `singleton`: the parts of a heterogeneous job would wait for each other.
    limit = request.max_running if is_heterogeneous else None
    predecessor = (f"afterany:{earlier[-limit]}",) if limit and len(earlier) >= limit else ()
    return Job(
        name=request.name,
        description=f"Workers of {request.run} (submission {number}), written by gymnast submit.",
        folder=str(folder),
        log=_log_path(request, number, str(len(earlier)) if is_heterogeneous else "%a"),
        steps=tuple(_step(component, folder, alone=len(components) == 1) for component in components),
        resources=options.parts or (site.resources,),
        after=(*options.after, *predecessor),
        drain_s=site.drain_s,
        requeue=site.requeue,
        **_environment(request, options),
        array=None if is_heterogeneous else Array(request.count, request.max_running),
    )


def finish_job(request: WorkerRequest, number: int, folder: Path, options: SlurmOptions, workers: Iterable[str]) -> Job:
    """The job that runs when all workers have ended, however they ended: merge reports what is missing."""
    site = options.site
    component = Component("finish", (), container=_container(request, folder, options), workdir=_workdir(options))
    start = (options.python, "-P", "-m", "gymnast.cli.main")
    steps = tuple(Step(replace(component, name=words[0]), (*start, *words)) for words in options.finish)
    dependencies = [f"afterany:{job}" for job in (*workers, *options.finish_after)]
    return Job(
        name=f"{request.name}-finish",
        description=f"When all workers of {request.run} have ended: {', '.join(words[0] for words in options.finish)}.",
        folder=str(folder),
        log=_log_path(request, number, "finish"),
        steps=steps,
        resources=(minimal_resources(site, site.merge),),
        is_sequential=True,
        after=tuple(dependencies),
        **_environment(request, options),
    )


def job_components(request: WorkerRequest, folder: Path, options: SlurmOptions) -> list[Component]:
    """The components of every job of the submission, sorted by their needs."""
    template = options.worker or Component(WORKER, (), is_main=True)
    worker = replace(
        template,
        command=worker_command(request, die_with_parent=False, python=options.python),
        container=_container(request, folder, options),
        workdir=template.workdir or _workdir(options),
        cpus_per_task=template.cpus_per_task or (None if options.components else options.site.resources.cpus_per_task),
        is_main=True,
    )
    components = [
        replace(component, container=_mount_folders(component.container, request, folder))
        for component in options.components
    ]
    return sort_by_needs([*components, worker])


def _step(component: Component, folder: Path, *, alone: bool) -> Step:
    """The srun of a component: its command if it is alone, else its sidecar, which runs the command."""
    if alone:
        return Step(component, component.command)
    words: tuple[Word, ...] = (*sidecar_command(str(folder), component.name), "--folder", JOB_FOLDER)
    return Step(replace(component, environment={}, workdir=None), words)


def _container(request: WorkerRequest, folder: Path, options: SlurmOptions) -> Container | None:
    container = options.worker.container if options.worker is not None else None
    default = options.site.get_container(options.site.container)
    code = () if options.code is None or options.code.folder is None else (options.code.folder,)
    return _mount_folders(container or default, request, folder, code)


def _mount_folders(
    container: Container | None, request: WorkerRequest, folder: Path, code: tuple[str, ...] = ()
) -> Container | None:
    """The container with the folders of the run, the job and the code, unless a mount has them already."""
    return container.with_folders((str(request.run.parent), str(folder), *code)) if container is not None else None


def _workdir(options: SlurmOptions) -> str | None:
    return options.code.workdir if options.code is not None and options.code.workdir else options.workdir


def _environment(request: WorkerRequest, options: SlurmOptions) -> dict[str, Any]:
    """What every job of a submission takes from the site, the code and the request."""
    site, code = options.site, options.code.environment() if options.code is not None else {}
    environment = {**site.environment, **code, **request.environment}
    return {"runtime": site.runtime, "environment": environment, "setup": site.setup, "srun_options": site.srun_options}


def minimal_resources(site: Site, overrides: Resources | None) -> Resources:
    """The site's account and partition, but no GPUs or further nodes unless `overrides` has them."""
    base = msgspec.structs.replace(site.resources, cpus_per_task=None, **_SINGLE_NODE)
    return base.with_overrides(**msgspec.structs.asdict(overrides)) if overrides is not None else base


def _log_path(request: WorkerRequest, number: int, suffix: str) -> str:
    assert request.logs is not None
    folder = str(request.logs).replace("%", "%%")
    return f"{folder}/{request.name}-{number}-{suffix}.log"
