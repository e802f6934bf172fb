"""Jobs that are made of components: run here to their end, or put into a Slurm queue with one script each."""

from __future__ import annotations

import hashlib
import shlex
import sys
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import msgspec

from gymnast.cluster.components.here import run_here
from gymnast.cluster.components.packing import companion_command, in_order, write_orders
from gymnast.cluster.executor import JobState
from gymnast.cluster.hosts import host_named
from gymnast.cluster.local import listening
from gymnast.cluster.site import HERE, find_site
from gymnast.cluster.slurm.assembly import modest
from gymnast.cluster.slurm.client import Slurm
from gymnast.cluster.slurm.job import Job, Step
from gymnast.cluster.slurm.script import JOB_FOLDER, render
from gymnast.config import read_environ
from gymnast.config.environ import inherited_environ
from gymnast.errors import UserError
from gymnast.store.replacing import write_replacing

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from gymnast.cluster.components.spec import Component
    from gymnast.cluster.pipeline_options import Place
    from gymnast.cluster.site import Site
    from gymnast.cluster.slurm.job import Word


@dataclass(frozen=True, slots=True)
class JobWanted:
    """One job."""

    name: str
    folder: Path
    """Folders of jobs go below it."""
    components: tuple[Component, ...]
    place: Place
    after: tuple[str, ...] = ()
    """Numbers or names of jobs, also as `afterany:NUMBER`."""
    secrets: Mapping[str, str] = field(default_factory=dict)
    """Variables that must not be written down."""
    in_order: bool = False
    """Its components run one after the other, each to its end, without companions."""
    reaches: tuple[Path, ...] = ()
    """Folders that its containers must have under the same names."""
    is_modest: bool = False
    """No GPUs, no further nodes: what the site says of merging."""
    result: Path | None = None
    """What it makes. While an earlier job of this name for the same waits or runs, that one is meant."""

    @property
    def word(self) -> str | None:
        """By this its script is known to the scheduler. Of a job without servers, what it does belongs to it."""
        if self.result is None:
            return None
        does = repr([(one.command, self.after) for one in self.components]) if self.in_order else ""
        text = "\0".join((self.name, str(self.result), does))
        return hashlib.sha256(text.encode(errors="surrogateescape")).hexdigest()[:16]

    def is_behind(self, queued: Sequence[str]) -> bool:
        """Whether it is to wait for these jobs, or for those of its own name: then it is not one of them."""
        named = {part for asked in self.after for part in asked.split(":")}
        return not named.isdisjoint({self.name, self.place.expname, *queued})


@dataclass(frozen=True, slots=True)
class Queued:
    """A job that was queued, or ran."""

    folder: str
    job: str | None = None
    exit_code: int | None = None
    said: str | None = None
    """What went wrong where it ran here."""


def site_for(place: Place) -> Site:
    """The cluster that is meant; without a name, this machine."""
    if place.cluster in {None, "local", "none"} and not (place.cluster and _is_described(place)):
        return HERE
    assert place.cluster is not None
    folders = [*([place.config_dir] if place.config_dir else []), *read_environ().cluster_dirs]
    site = find_site(place.cluster, folders)
    if site.executor == "ray":
        raise UserError(
            "jobs that are made of components run here or on Slurm, not on Ray",
            where=site.where,
            next="name a cluster with `executor: slurm`, or use gymnast submit",
        )
    return site


def _is_described(place: Place) -> bool:
    folders = [*([place.config_dir] if place.config_dir else []), *read_environ().cluster_dirs]
    return any((folder / f"{place.cluster}{suffix}").is_file() for folder in folders for suffix in (".yaml", ".yml"))


def python_of(site: Site, place: Place) -> str:
    """The Python that has Gymnast where jobs run."""
    in_container = site.runtime != "none" and (place.container or site.container) is not None
    return site.python or ("python3" if in_container else sys.executable)


def submitted(job: JobWanted, site: Site, say: Callable[[str], None]) -> Queued:
    """Queue a job where there is a queue; else run it."""
    return queue(job, site, say) if site.executor == "slurm" else run_now(job, say)


def run_now(job: JobWanted, say: Callable[[str], None]) -> Queued:
    """Run a job here to its end."""
    parts = [(one,) for one in job.components] if job.in_order else [job.components]
    orders = _new_folder(job)
    for part in parts:
        if any(one.container is not None for one in part):
            raise UserError("jobs on this machine run without containers", where=job.name)
        folder = orders / part[-1].name if job.in_order else orders
        write_orders(folder, part)
        say(f"{job.name}: running here, logs in {folder / 'job' / 'logs'}")
        with listening() as asked:
            end = run_here(folder, folder / "job", asked, job.secrets)
        if end.exit_code:
            said = f"{job.name} ended with {end.component}: {end.said or f'exit code {end.exit_code}'}"
            say(said.splitlines()[0])  # the rest was said aloud when it happened
            return Queued(str(folder), exit_code=end.exit_code, said=said)
    return Queued(str(orders), exit_code=0)


def queue(job: JobWanted, site: Site, say: Callable[[str], None]) -> Queued:
    """Put a job into the queue of a Slurm cluster."""
    missing = [name for name in job.secrets if name not in inherited_environ([name])]
    if missing:
        raise UserError(
            f"a key is not written into scripts: {missing[0]} must be set where jobs are submitted",
            next=f"export {missing[0]}=… (sbatch hands it on), or put policy_api_key into env.yaml there",
        )
    slurm = Slurm(host_named(site.host, site.ssh_options))
    queued = slurm.waiting_with(job.word) if job.word is not None else []
    if queued and not job.is_behind(queued):
        say(f"{job.name}: job {queued[-1]} waits or runs already, left alone")
        remember(site, job.name, queued[-1:])
        return Queued(str(job.folder / job.name), queued[-1])
    after = [known for asked in job.after if (known := _dependency(slurm, site, asked, say))]
    folder = _new_folder(job)
    slurm_job = _slurm_job(replace(job, after=tuple(after)), site, folder)
    if not job.in_order:
        write_orders(folder, job.components)
    script = folder / "job.sh"
    write_replacing(script, render(slurm_job).encode())
    number = slurm.submit(str(script), *([job.word] if job.word is not None else []))
    remember(site, job.name, [number])
    say(f"{job.name}: job {number}, script {script}")
    return Queued(str(folder), number)


def scripts(job: JobWanted, site: Site) -> list[str]:
    """What would run, for people to read; nothing is written."""
    folder = job.folder / job.name / "N"
    if site.executor == "slurm":
        after = tuple(asked if asked.startswith("after") else f"afterok:{asked}" for asked in job.after)
        return [render(_slurm_job(replace(job, after=after), site, folder))]
    lines = [f"# {job.name}: on this machine, in the order of their needs"]
    for one in in_order(job.components) if not job.in_order else job.components:
        times = f" ({one.tasks} times)" if one.tasks > 1 else ""
        needs = f" after {', '.join(one.needs)}" if one.needs else ""
        lines += [f"# {one.name}{times}{needs}", shlex.join(one.command)]
    return ["\n".join(lines) + "\n"]


def _slurm_job(job: JobWanted, site: Site, folder: Path) -> Job:
    given = {key: value for key, value in job.place.resources.items() if value}
    if job.is_modest:
        given = {key: value for key, value in given.items() if key in {"partition", "account", "qos"}}
    resources = (modest(site, site.merge) if job.is_modest else site.resources).laid_over(**given)
    together = not job.in_order
    ordered = in_order(job.components) if together else list(job.components)
    return Job(
        name=job.name,
        about=f"{job.name}, as gymnast nemo-gym-rollouts wrote it.",
        folder=str(folder),
        log=f"{str(folder).replace('%', '%%')}/job-%j.log",
        steps=tuple(_step(one, job, site, folder, together=together) for one in ordered),
        resources=(resources,),
        in_order=not together,
        after=job.after,
        drain_s=site.drain_s if together else None,
        requeue=site.requeue if together else 0,
        runtime=site.runtime,
        environment=site.environment,
        setup=(*site.setup, *job.place.setup),
        srun_options=site.srun_options,
    )


def _step(component: Component, job: JobWanted, site: Site, folder: Path, *, together: bool) -> Step:
    container = component.container
    places = map(str, (*job.reaches, job.folder, folder))
    inside = replace(component, container=container.reaching(places) if container is not None else None)
    if not together:
        return Step(inside, component.command)
    python = "python3" if component.container is not None else site.python or sys.executable
    words: tuple[Word, ...] = (*companion_command(str(folder), component.name, python=python), "--folder", JOB_FOLDER)
    return Step(replace(inside, environment={}, workdir=None), words)


def _new_folder(job: JobWanted) -> Path:
    """A folder of this submission's own: two at the same moment get two."""
    base = job.folder / job.name
    try:
        for folder in (*job.reaches, base):  # runtimes do not make what they are to mount
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


# --- what jobs wait for ----------------------------------------------------------------------------------------------


def _dependency(slurm: Slurm, site: Site, asked: str, say: Callable[[str], None]) -> str | None:
    """What a job waits for, as Slurm writes it. One that is known to have ended well needs no waiting."""
    kind, _, what = asked.rpartition(":") if asked.startswith("after") else ("", "", asked)
    numbers = [what] if what.isdecimal() and not kind else _remembered(site, what)
    if not numbers:
        return slurm.after(asked)
    views = slurm.views(numbers)
    if not views and what.isdecimal():
        return slurm.after(asked)  # which says that there is no such job
    failed = [view for view in views if view.state.is_over and view.state is not JobState.COMPLETED]
    if failed and kind in {"", "afterok"}:
        raise UserError(
            f"'{asked}' ended badly: job {failed[0].job} is {failed[0].state}",
            next="submit it again first, or leave run_after out",
        )
    waiting = sorted({view.job.partition("_")[0] for view in views if not view.state.is_over})
    if not waiting:
        say(f"'{asked}' is over (jobs {', '.join(numbers)}): nothing to wait for")
        return None
    return f"{kind or 'afterok'}:{':'.join(waiting)}"


def _remembered(site: Site, name: str) -> list[str]:
    """The numbers of the jobs last submitted under a name from here."""
    try:
        return msgspec.json.decode(_memory(site, name).read_bytes(), type=list[str])
    except (OSError, msgspec.MsgspecError):
        return []


def remember(site: Site, name: str, numbers: Sequence[str]) -> None:
    """From now on these jobs are what is meant by a name."""
    path = _memory(site, name)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_replacing(path, msgspec.json.encode(list(numbers)))


def _memory(site: Site, name: str) -> Path:
    return read_environ().state_dir / "experiments" / site.name / f"{name.replace('/', '_')}.json"
