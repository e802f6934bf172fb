"""The jobs of one submission, put together from what is wanted, the site and the code that travels. Pure."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

import msgspec

from gymnast.cluster.components.packing import companion_command, in_order
from gymnast.cluster.components.spec import Component, Container
from gymnast.cluster.site import Resources, Site
from gymnast.cluster.slurm.job import Array, Job, Step
from gymnast.cluster.slurm.script import JOB_FOLDER
from gymnast.cluster.worker_command import worker_command
from gymnast.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from gymnast.cluster.code_travel import Code
    from gymnast.cluster.executor import WorkersWanted
    from gymnast.cluster.slurm.job import Word

WORKER: Final = "worker"
_FOR_ONE: Final = {"nodes": None, "exclusive": False, "gres": None, "gpus_per_node": None, "memory": None}


@dataclass(frozen=True, slots=True)
class SlurmOptions:
    """What a submission wants beyond its workers."""

    site: Site = field(default_factory=Site)
    code: Code | None = None
    """None: as it is installed."""
    workdir: str | None = None
    """Where workers run, if the code says nothing else."""
    beside: tuple[Component, ...] = ()
    """Components of every job besides the worker: policy servers, a sandbox."""
    worker: Component | None = None
    """Nodes, processors, container and needs of the worker; its command is filled in."""
    parts: tuple[Resources, ...] = ()
    """Of a heterogeneous job; empty where the job has one part, which is the site's."""
    after: tuple[str, ...] = ()
    """What must have happened before the workers start, as Slurm writes it."""
    finish: tuple[tuple[str, ...], ...] = ()
    """Words of our commands that a job runs when all workers have ended: merge, profile."""
    finish_after: tuple[str, ...] = ()
    """Further jobs that it waits for, by number."""

    @property
    def python(self) -> str:
        """The Python that has Gymnast where jobs run."""
        own = self.worker.container if self.worker is not None else None
        return self.site.python or ("python3" if own or self.site.container else sys.executable)

    @property
    def is_spread(self) -> bool:
        """Whether each worker's job has several parts; Slurm has no arrays of those."""
        return len(self.parts) > 1


def worker_job(
    wanted: WorkersWanted, number: int, folder: Path, options: SlurmOptions, earlier: Sequence[str] = ()
) -> Job:
    """The workers: an array, or the next of jobs that cannot be one (heterogeneous), after those queued `earlier`."""
    components = job_components(wanted, folder, options)
    if any(component.is_main and component.het_group for component in components):
        raise UserError("the worker of a heterogeneous job belongs into its first part, where the job's script runs")
    site, is_spread = options.site, options.is_spread
    # Not a `singleton`: the parts of a heterogeneous job would wait for each other.
    has_turn = is_spread and wanted.at_once is not None and len(earlier) >= wanted.at_once
    turn = (f"afterany:{earlier[-wanted.at_once]}",) if has_turn and wanted.at_once else ()
    return Job(
        name=wanted.name,
        about=f"Workers of {wanted.run} (submission {number}), as gymnast submit wrote them.",
        folder=str(folder),
        log=_log(wanted, number, str(len(earlier)) if is_spread else "%a"),
        steps=tuple(_step(component, folder, alone=len(components) == 1) for component in components),
        resources=options.parts or (site.resources,),
        after=(*options.after, *turn),
        drain_s=site.drain_s,
        requeue=site.requeue,
        runtime=site.runtime,
        environment={**site.environment, **_code_environment(options), **wanted.environment},
        setup=site.setup,
        srun_options=site.srun_options,
        array=None if is_spread else Array(wanted.count, wanted.at_once),
    )


def finish_job(wanted: WorkersWanted, number: int, folder: Path, options: SlurmOptions, workers: Iterable[str]) -> Job:
    """The job that runs when all workers have ended, however they ended: what is missing, merge says itself."""
    site = options.site
    own = Component("finish", (), container=_container(wanted, folder, options), workdir=_workdir(options))
    start = (options.python, "-m", "gymnast.cli.main")
    steps = tuple(Step(replace(own, name=words[0]), (*start, *words)) for words in options.finish)
    waits = [f"afterany:{job}" for job in (*workers, *options.finish_after)]
    return Job(
        name=f"{wanted.name}-finish",
        about=f"When all workers of {wanted.run} have ended: {', '.join(words[0] for words in options.finish)}.",
        folder=str(folder),
        log=_log(wanted, number, "finish"),
        steps=steps,
        resources=(modest(site, site.merge),),
        in_order=True,
        after=tuple(waits),
        runtime=site.runtime,
        environment={**site.environment, **_code_environment(options), **wanted.environment},
        setup=site.setup,
        srun_options=site.srun_options,
    )


def job_components(wanted: WorkersWanted, folder: Path, options: SlurmOptions) -> list[Component]:
    """The components of every job of the submission, in the order of their needs."""
    shape = options.worker or Component(WORKER, (), is_main=True)
    worker = replace(
        shape,
        command=worker_command(wanted, tethered=False, python=options.python),
        container=_container(wanted, folder, options),
        workdir=shape.workdir or _workdir(options),
        cpus_per_task=shape.cpus_per_task or (None if options.beside else options.site.resources.cpus_per_task),
        is_main=True,
    )
    beside = [replace(one, container=_with_folders(one.container, wanted, folder)) for one in options.beside]
    return in_order([*beside, worker])


def _step(component: Component, folder: Path, *, alone: bool) -> Step:
    """The srun of a component: of itself where it is alone, else of its companion, which knows the rest."""
    if alone:
        return Step(component, component.command)
    words: tuple[Word, ...] = (*companion_command(str(folder), component.name), "--folder", JOB_FOLDER)
    return Step(replace(component, environment={}, workdir=None), words)


def _container(wanted: WorkersWanted, folder: Path, options: SlurmOptions) -> Container | None:
    named = options.site.container_named(options.site.container)
    own = options.worker.container if options.worker is not None else None
    places = () if options.code is None or options.code.folder is None else (options.code.folder,)
    return _with_folders(own or named, wanted, folder, places)


def _with_folders(
    container: Container | None, wanted: WorkersWanted, folder: Path, places: tuple[str, ...] = ()
) -> Container | None:
    """The container with the run's folder, the job's and the code's, unless a mount has them already."""
    return container.reaching((str(wanted.run.parent), str(folder), *places)) if container is not None else None


def _workdir(options: SlurmOptions) -> str | None:
    return options.code.workdir if options.code is not None and options.code.workdir else options.workdir


def _code_environment(options: SlurmOptions) -> dict[str, str]:
    return options.code.environment() if options.code is not None else {}


def modest(site: Site, own: Resources | None) -> Resources:
    """The site's account and partition, and no GPUs or further nodes unless `own` says so."""
    base = msgspec.structs.replace(site.resources, cpus_per_task=None, **_FOR_ONE)
    return base.laid_over(**msgspec.structs.asdict(own)) if own is not None else base


def _log(wanted: WorkersWanted, number: int, which: str) -> str:
    assert wanted.logs is not None
    folder = str(wanted.logs).replace("%", "%%")
    return f"{folder}/{wanted.name}-{number}-{which}.log"
