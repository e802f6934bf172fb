"""Jobs made of components: run on this machine until they end, or queued on Slurm with one script each."""

from __future__ import annotations

import hashlib
import shlex
import sys
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import msgspec

from gymnast.config import read_environ
from gymnast.config.environ import inherited_environ
from gymnast.errors import UserError
from gymnast.executors.hosts import make_host
from gymnast.executors.site import LOCAL_SITE, Site, find_site
from gymnast.executors.slurm.assembly import minimal_resources
from gymnast.executors.slurm.client import Slurm
from gymnast.executors.slurm.job import Job, Step, Word
from gymnast.executors.slurm.script import JOB_FOLDER, render
from gymnast.sidecars.local_job import run_local_job
from gymnast.sidecars.packing import sidecar_command, sort_by_needs, write_job_files
from gymnast.sidecars.stop_request import stop_on_signals
from gymnast.store.atomic import atomic_write
from gymnast.types.job import JobState

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from gymnast.compat.nemo_skills.options import JobPlacement
    from gymnast.sidecars.component import Component


@dataclass(frozen=True, slots=True)
class PipelineJob:
    name: str
    folder: Path
    """Folders of jobs are created below it."""
    components: tuple[Component, ...]
    placement: JobPlacement
    after: tuple[str, ...] = ()
    """Numbers or names of jobs, also as `afterany:NUMBER`."""
    secrets: Mapping[str, str] = field(default_factory=dict)
    """Variables that must not be written to files."""
    is_sequential: bool = False
    """Whether its components run one after the other, without sidecars."""
    shared_folders: tuple[Path, ...] = ()
    """Folders that its containers must have under the same paths."""
    is_minimal: bool = False
    """Whether it needs no GPUs and no further nodes: it then gets the site's resources for merging."""
    output: Path | None = None
    """What it makes. While an earlier job of this name for the same output is pending or running, it is not queued."""

    @property
    def token(self) -> str | None:
        """The argument of its script, by which it is found. For a sequential job it depends on the commands, too."""
        if self.output is None:
            return None
        commands = repr([(item.command, self.after) for item in self.components]) if self.is_sequential else ""
        text = "\0".join((self.name, str(self.output), commands))
        return hashlib.sha256(text.encode(errors="surrogateescape")).hexdigest()[:16]

    def depends_on(self, queued: Sequence[str]) -> bool:
        """Whether it waits for these jobs, or for jobs of its own name: then it is not one of them."""
        names = {part for text in self.after for part in text.split(":")}
        return not names.isdisjoint({self.name, self.placement.expname, *queued})


@dataclass(frozen=True, slots=True)
class QueuedJob:
    """A job that was queued, or has run."""

    folder: str
    job: str | None = None
    exit_code: int | None = None
    message: str | None = None
    """If it ran here and failed: what went wrong."""


def select_site(placement: JobPlacement) -> Site:
    """The cluster of a placement; without a name, this machine."""
    if placement.cluster in {None, "local", "none"} and not (placement.cluster and _has_cluster_file(placement)):
        return LOCAL_SITE
    assert placement.cluster is not None
    site = find_site(placement.cluster, _cluster_folders(placement))
    if site.executor == "ray":
        raise UserError(
            "jobs made of components run on this machine or on Slurm, not on Ray",
            where=site.where,
            next="name a cluster with `executor: slurm`, or use gymnast submit",
        )
    return site


def _has_cluster_file(placement: JobPlacement) -> bool:
    names = [f"{placement.cluster}{suffix}" for suffix in (".yaml", ".yml")]
    return any((folder / name).is_file() for folder in _cluster_folders(placement) for name in names)


def _cluster_folders(placement: JobPlacement) -> list[Path]:
    return [*([placement.config_dir] if placement.config_dir else []), *read_environ().cluster_dirs]


def python_for(site: Site, placement: JobPlacement) -> str:
    """The Python with Gymnast where jobs run."""
    in_container = site.runtime != "none" and (placement.container or site.container) is not None
    return site.python or ("python3" if in_container else sys.executable)


def submit_job(job: PipelineJob, site: Site, say: Callable[[str], None]) -> QueuedJob:
    """Queue a job if the site has a queue; else run it."""
    return queue_job(job, site, say) if site.executor == "slurm" else run_locally(job, say)


def run_locally(job: PipelineJob, say: Callable[[str], None]) -> QueuedJob:
    """Run a job on this machine until it ends."""
    parts = [(component,) for component in job.components] if job.is_sequential else [job.components]
    base = _new_folder(job)
    for part in parts:
        if any(component.container is not None for component in part):
            raise UserError("jobs on this machine run without containers", where=job.name)
        folder = base / part[-1].name if job.is_sequential else base
        write_job_files(folder, part)
        say(f"{job.name}: running here, logs in {folder / 'job' / 'logs'}")
        with stop_on_signals() as is_stop_requested:
            result = run_local_job(folder, folder / "job", is_stop_requested, job.secrets)
        if result.exit_code:
            message = f"{job.name} ended with {result.component}: {result.message or f'exit code {result.exit_code}'}"
            say(message.splitlines()[0])  # the rest was logged when it happened
            return QueuedJob(str(folder), exit_code=result.exit_code, message=message)
    return QueuedJob(str(base), exit_code=0)


def queue_job(job: PipelineJob, site: Site, say: Callable[[str], None]) -> QueuedJob:
    """Queue a job on a Slurm cluster."""
    missing = [name for name in job.secrets if name not in inherited_environ([name])]
    if missing:
        raise UserError(
            f"{missing[0]} must be set where jobs are submitted: keys are not written to scripts",
            next=f"export {missing[0]}=… (sbatch passes it on), or put policy_api_key into env.yaml there",
        )
    slurm = Slurm(make_host(site.host, site.ssh_options))
    queued = slurm.find_pending_by_token(job.token) if job.token is not None else []
    if queued and not job.depends_on(queued):
        say(f"{job.name}: job {queued[-1]} is already pending or running, left alone")
        remember_jobs(site, job.name, queued[-1:])
        return QueuedJob(str(job.folder / job.name), queued[-1])
    after = [resolved for text in job.after if (resolved := _resolve_dependency(slurm, site, text, say))]
    folder = _new_folder(job)
    slurm_job = _make_slurm_job(replace(job, after=tuple(after)), site, folder)
    if not job.is_sequential:
        write_job_files(folder, job.components)
    script = folder / "job.sh"
    atomic_write(script, render(slurm_job).encode())
    number = slurm.submit(str(script), *([job.token] if job.token is not None else []))
    remember_jobs(site, job.name, [number])
    say(f"{job.name}: job {number}, script {script}")
    return QueuedJob(str(folder), number)


def scripts(job: PipelineJob, site: Site) -> list[str]:
    """What would run, for people to read. Writes nothing."""
    folder = job.folder / job.name / "N"
    if site.executor == "slurm":
        after = tuple(text if text.startswith("after") else f"afterok:{text}" for text in job.after)
        return [render(_make_slurm_job(replace(job, after=after), site, folder))]
    lines = [f"# {job.name}: on this machine, in the order of their needs"]
    for component in job.components if job.is_sequential else sort_by_needs(job.components):
        times = f" ({component.tasks} times)" if component.tasks > 1 else ""
        needs = f" after {', '.join(component.needs)}" if component.needs else ""
        lines += [f"# {component.name}{times}{needs}", shlex.join(component.command)]
    return ["\n".join(lines) + "\n"]


def _make_slurm_job(job: PipelineJob, site: Site, folder: Path) -> Job:
    overrides = {key: value for key, value in job.placement.resources.items() if value}
    if job.is_minimal:
        overrides = {key: value for key, value in overrides.items() if key in {"partition", "account", "qos"}}
    resources = minimal_resources(site, site.merge) if job.is_minimal else site.resources
    components = list(job.components) if job.is_sequential else sort_by_needs(job.components)
    return Job(
        name=job.name,
        description=f"{job.name}, written by gymnast nemo-gym-rollouts.",
        folder=str(folder),
        log=f"{str(folder).replace('%', '%%')}/job-%j.log",
        steps=tuple(_make_step(component, job, site, folder) for component in components),
        resources=(resources.with_overrides(**overrides),),
        is_sequential=job.is_sequential,
        after=job.after,
        drain_s=None if job.is_sequential else site.drain_s,
        requeue=0 if job.is_sequential else site.requeue,
        runtime=site.runtime,
        environment=site.environment,
        setup=(*site.setup, *job.placement.setup),
        srun_options=site.srun_options,
    )


def _make_step(component: Component, job: PipelineJob, site: Site, folder: Path) -> Step:
    container = component.container
    folders = map(str, (*job.shared_folders, job.folder, folder))
    mounted = replace(component, container=container.with_folders(folders) if container is not None else None)
    if job.is_sequential:
        return Step(mounted, component.command)
    python = "python3" if container is not None else site.python or sys.executable
    words: tuple[Word, ...] = (*sidecar_command(str(folder), component.name, python=python), "--folder", JOB_FOLDER)
    return Step(replace(mounted, environment={}, workdir=None), words)


def _new_folder(job: PipelineJob) -> Path:
    """Create a folder for this submission; two at the same time get different ones."""
    base = job.folder / job.name
    try:
        for folder in (*job.shared_folders, base):  # container runtimes do not create what they mount
            folder.mkdir(parents=True, exist_ok=True)
        number = len(list(base.iterdir()))
        while True:
            number += 1
            try:
                (base / str(number)).mkdir()
            except FileExistsError:
                continue
            return base / str(number)
    except OSError as error:
        raise UserError(f"cannot write the job's files: {error.strerror}", where=str(base)) from error


# --- dependencies ----------------------------------------------------------------------------------------------------


def _resolve_dependency(slurm: Slurm, site: Site, text: str, say: Callable[[str], None]) -> str | None:
    """What a job waits for, as Slurm writes it; None if that has completed."""
    kind, _, job = text.rpartition(":") if text.startswith("after") else ("", "", text)
    numbers = [job] if job.isdecimal() and not kind else _remembered_jobs(site, job)
    if not numbers:
        return slurm.resolve_dependency(text)
    views = slurm.views(numbers)
    if not views and job.isdecimal():
        return slurm.resolve_dependency(text)  # which reports that there is no such job
    failed = [view for view in views if view.state.is_over and view.state is not JobState.COMPLETED]
    if failed and kind in {"", "afterok"}:
        raise UserError(
            f"'{text}' did not succeed: job {failed[0].job} is {failed[0].state}",
            next="submit it again first, or leave run_after out",
        )
    waiting = sorted({view.job.partition("_")[0] for view in views if not view.state.is_over})
    if not waiting:
        say(f"'{text}' is over (jobs {', '.join(numbers)}): nothing to wait for")
        return None
    return f"{kind or 'afterok'}:{':'.join(waiting)}"


def _remembered_jobs(site: Site, name: str) -> list[str]:
    """The numbers of the jobs last submitted under a name from here."""
    try:
        return msgspec.json.decode(_memory_path(site, name).read_bytes(), type=list[str])
    except (OSError, msgspec.MsgspecError):
        return []


def remember_jobs(site: Site, name: str, numbers: Sequence[str]) -> None:
    """Let a name refer to these jobs from now on."""
    path = _memory_path(site, name)
    path.parent.mkdir(parents=True, exist_ok=True)
    atomic_write(path, msgspec.json.encode(list(numbers)))


def _memory_path(site: Site, name: str) -> Path:
    return read_environ().state_dir / "experiments" / site.name / f"{name.replace('/', '_')}.json"
