"""A whole submit: plan the run or go on with it, count what it still needs, bring the code, start the workers."""

from __future__ import annotations

import shlex
import tempfile
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from gymnast.cluster.code_travel import CHOICES, bring_code
from gymnast.cluster.components.sandbox import ITS_ADDRESS, sandbox_component
from gymnast.cluster.components.servers import POLICY, kind_named, server_component
from gymnast.cluster.components.spec import Component
from gymnast.cluster.executor import WorkersWanted
from gymnast.cluster.executors import NAMES, executor_named
from gymnast.cluster.hosts import host_named
from gymnast.cluster.local import LocalExecutor
from gymnast.cluster.planning import InChunks, plan_run
from gymnast.cluster.reopening import with_failed
from gymnast.cluster.site import HERE, Site
from gymnast.cluster.slurm.assembly import WORKER, SlurmOptions, modest
from gymnast.cluster.slurm.client import Slurm
from gymnast.cluster.slurm.executor import FINISH, SlurmExecutor
from gymnast.cluster.submissions import next_number, write_submission
from gymnast.cluster.submitting import Standing, one_submit, record_found, standing, start_workers
from gymnast.errors import DataError, NotFoundError, UserError, suggest
from gymnast.store.chunk_layout import ChunkLayout
from gymnast.store.chunk_look import read_chunk_plan
from gymnast.store.paths import RunPaths

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gymnast.cluster.code_travel import Code, CodeChoice
    from gymnast.cluster.components.sandbox import SandboxWanted
    from gymnast.cluster.executor import ClusterExecutor, Submission
    from gymnast.cluster.order import ConfigNames
    from gymnast.cluster.pipeline_options import ServerOptions
    from gymnast.config import Config
    from gymnast.rollouts.options import RunOptions
    from gymnast.store.chunk_files import ChunkPlan

TO_BE_PUBLISHED: Final = "addresses:///of-each-job"
"""The policy's address while the run is planned: each job has servers of its own."""


@dataclass(frozen=True, slots=True)
class SubmitRequest:
    """What is to be run, where, and by how many."""

    collect: RunOptions
    config: Config
    names: ConfigNames
    site: Site = HERE
    workers: int = 8
    at_once: int | None = None
    chunk_rows: int | None = None
    speculate: bool | None = None
    """None: where jobs have policy servers of their own, on which copies at the end cost nothing."""
    code: CodeChoice | None = None
    """None: what the container has, where there is one; else as it is installed."""
    server: ServerOptions | None = None
    sandbox: SandboxWanted | None = None
    """A sandbox service in each job."""
    run_after: tuple[str, ...] = ()
    finish: tuple[str, ...] = ()
    """Our commands that are run when all workers have ended: `merge`, `profile`."""
    name: str = "gymnast"
    cwd: Path = field(default_factory=Path.cwd)

    @property
    def serves(self) -> bool:
        """Whether each job has policy servers of its own."""
        return self.server is not None and self.server.is_self_hosted

    @property
    def run(self) -> Path:
        return self.collect.paths.output.absolute()

    @property
    def paths(self) -> RunPaths:
        return RunPaths(self.run)

    def finish_commands(self) -> list[tuple[str, ...]]:
        """The words of what is run at the end. Merge refuses what is owed; what failed for good stops no profile."""
        more = {"profile": ("--allow-partial",)}
        return [(word, str(self.run), *more.get(word, ())) for word in self.finish]


@dataclass(frozen=True, slots=True)
class Submitted:
    """What became of it."""

    plan: ChunkPlan
    before: Standing
    """How the run stood before anything was started."""
    submission: Submission | None
    """None: no more workers are needed."""
    finishing: Submission | None = None
    """Workers that were at it, and have got a job now that merges: theirs had not been queued."""
    code: Code | None = None
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class DryRun:
    """What would become of it."""

    plan: ChunkPlan
    workers: int
    live: int
    code: Code | None
    scripts: tuple[tuple[str, str], ...]
    """Where each would be, and what is in it."""


def chosen_site(
    site: Site, *, executor: str | None, container: str | None, changes: Mapping[str, Any], resources: Mapping[str, Any]
) -> Site:
    """The site with what the command line says laid over it."""
    if executor is not None and executor not in NAMES:
        raise NotFoundError(f"there is no executor '{executor}'", next=suggest(executor, NAMES))
    said = {"executor": executor, "container": container, **changes}
    site = msgspec.structs.replace(site, **{name: value for name, value in said.items() if value is not None})
    site.container_named(site.container)
    return msgspec.structs.replace(site, resources=site.resources.laid_over(**resources))


def chosen_code(text: str | None) -> CodeChoice | None:
    """What `--code` says. Raises NotFoundError for a word that is none of them."""
    if text is None:
        return None
    found = next((choice for choice in CHOICES if choice == text), None)
    if found is None:
        raise NotFoundError(f"--code cannot be '{text}'", next=suggest(text, CHOICES))
    return found


def submit_run(asked: SubmitRequest) -> Submitted:
    """Plan the run (or check one that is gone on with) and start the workers that it still needs."""
    asked = _checked(asked)
    planned = plan_run(asked.collect, asked.config, asked.names, _in_chunks(asked))
    layout = ChunkLayout.of(asked.paths)
    with one_submit(layout):
        before = standing(layout)
        record_found(layout, before)
        count = before.needed(asked.workers)
        warnings = tuple(planned.warnings)
        if not count:
            return Submitted(planned.plan, before, None, add_missing_merge(asked, layout, before), warnings=warnings)
        code = _code(asked, layout.folder / "code")
        submission = start_workers(
            asked.paths,
            layout,
            _wanted(asked, count),
            lambda _: _executor(asked, code, before),
            f"{code.choice} {code.digest}",
        )
        if FINISH in submission.details:  # it waits for all that live; a submit that is refused takes nothing away
            for earlier, _ in before.jobs:
                SlurmExecutor().drop_finish(earlier)
    return Submitted(planned.plan, before, submission, code=code, warnings=warnings)


def add_missing_merge(asked: SubmitRequest, layout: ChunkLayout, before: Standing) -> Submission | None:
    """Queue the job that merges if workers are at it and none waits for the end of all of them: their submit was killed
    before it could, or had not been asked for one."""
    live = _live_here(asked.site, before)
    if not live or not asked.finish:
        return None
    slurm, newest = SlurmExecutor(), live[-1]
    begun = [one for one, _ in before.jobs if one.executor == "slurm"]
    waiting = [one for one in begun if (view := slurm.finish_state(one)) is not None and not view.state.is_over]
    if any(one.number >= newest.number for one in waiting):
        return None
    executor = SlurmExecutor(_slurm_options(asked, _code(asked, layout.folder / "code"), before))
    found = executor.add_finish(_wanted(asked, 1), newest)
    if found is not None:
        write_submission(layout, found)
        for earlier in waiting:
            slurm.drop_finish(earlier)
    return found


def _live_here(site: Site, before: Standing) -> list[Submission]:
    """Submissions to the same cluster that still wait or run: a job can wait for no others."""
    if site.executor != "slurm":
        return []
    found = [one for one in before.live_submissions() if one.executor == "slurm"]
    return [one for one in found if one.details.get("host") == site.host]


def dry_run(asked: SubmitRequest) -> DryRun:
    """What `submit_run` would do. Writes nothing that stays."""
    asked = _checked(asked)
    layout = ChunkLayout.of(asked.paths)
    with tempfile.TemporaryDirectory(prefix="gymnast-plan-") as scratch:
        if asked.collect.existing == "resume" and layout.is_planned:
            plan, before = read_chunk_plan(layout), standing(layout)
            if asked.collect.retry_failed:
                again = sum(view.look.is_done for view, _ in with_failed(layout, plan))
                before = replace(before, open_chunks=before.open_chunks + again)
        else:
            elsewhere = replace(asked.collect, output=Path(scratch) / asked.run.name, existing="refuse")
            plan = plan_run(elsewhere, asked.config, asked.names, _in_chunks(asked)).plan
            before = Standing(len(plan.chunks), len(plan.chunks))
        count = before.needed(asked.workers)
        place = Path(scratch) / "code"
        code = _code(asked, place)
        code = code.moved(place, layout.folder / "code") if code.folder else code
    found: tuple[tuple[str, str], ...] = ()
    if count and asked.site.executor == "slurm":
        executor = SlurmExecutor(_slurm_options(asked, code, before))
        found = tuple((str(one.path), one.text) for one in executor.scripts(_wanted(asked, count), next_number(layout)))
    return DryRun(plan, count, before.live, code, found)


def _checked(asked: SubmitRequest) -> SubmitRequest:
    """The request with what it waits for by number. Whatever can be refused is refused before anything is planned."""
    site = asked.site
    if asked.collect.existing == "overwrite":
        _refuse_to_work_under(asked)
    if site.executor == "slurm":
        _choice(asked)
        slurm = Slurm(host_named(site.host, site.ssh_options))
        _beside(asked)
        return replace(asked, run_after=tuple(slurm.after(one) for one in asked.run_after))
    if _beside(asked) and site.executor == "ray":
        raise UserError(
            "servers in the job need Slurm or this machine, not Ray", next="give --model-url of a server that runs"
        )
    if asked.run_after:
        raise UserError(f"--run-after needs Slurm, not the executor '{site.executor}'")
    if asked.code not in {None, "installed"}:
        raise UserError(f"--code {asked.code} needs Slurm: elsewhere workers run what is installed")
    return asked


def _refuse_to_work_under(asked: SubmitRequest) -> None:
    """Workers that are at a run would write into the files of the one that takes its place."""
    layout, live = ChunkLayout.of(asked.paths), 0
    if layout.is_planned:
        with suppress(DataError):  # what cannot be read any more is what --overwrite is for
            live = standing(layout).live
    if live:
        raise UserError(
            f"{live} workers are at the run that stands there",
            where=str(asked.run),
            next=f"gymnast cancel {shlex.quote(str(asked.run))}, and the same again when they have ended",
        )


def _in_chunks(asked: SubmitRequest) -> InChunks:
    grace_s = asked.site.grace_s if asked.site.executor == "slurm" else InChunks().grace_s
    speculates = asked.serves if asked.speculate is None else asked.speculate
    return InChunks(workers=asked.workers, chunk_rows=asked.chunk_rows, grace_s=grace_s, speculates=speculates)


def _wanted(asked: SubmitRequest, count: int) -> WorkersWanted:
    return WorkersWanted(
        run=asked.run,
        count=count,
        at_once=min(asked.at_once, count) if asked.at_once is not None else None,
        arguments=("--model-url", f"{{addresses:{POLICY}}}") if asked.serves else (),
        name=asked.name,
    )


def _choice(asked: SubmitRequest) -> CodeChoice:
    choice = asked.code or ("container" if asked.site.container is not None else "installed")
    if choice == "container" and asked.site.container is None:
        raise UserError("--code container needs a container", next="name one with --container")
    if choice == "installed" and asked.site.container is not None and asked.site.python is None:
        raise UserError(
            "what is installed here is not in the container",
            next="use --code container or snapshot, or say `python:` in the cluster's file",
        )
    return choice


def _code(asked: SubmitRequest, into: Path) -> Code:
    base, container = asked.site.job_dir, asked.site.container_named(asked.site.container)
    return bring_code(_choice(asked), into=Path(base) / "code" if base else into, cwd=asked.cwd, container=container)


def _executor(asked: SubmitRequest, code: Code, before: Standing) -> ClusterExecutor:
    if asked.site.executor == "slurm":
        return SlurmExecutor(_slurm_options(asked, code, before))
    if asked.site.executor == "ray":
        from gymnast.cluster.ray import RayExecutor, RayOptions  # noqa: PLC0415 - Ray is imported when it is used

        each = asked.site.resources
        cpus, gpus = float(each.cpus_per_task or 1), float(each.gpus_per_node or 0)
        return RayExecutor(RayOptions(address=asked.site.ray_address, cpus=cpus, gpus=gpus))
    if beside := _beside(asked):
        return LocalExecutor(beside=beside, environment=_worker_environment(asked))
    return executor_named(asked.site.executor)


def _slurm_options(asked: SubmitRequest, code: Code, before: Standing) -> SlurmOptions:
    site, beside = asked.site, _beside(asked)
    is_spread = asked.serves and site.worker is not None
    needs = tuple(one.name for one in beside)
    worker = Component(WORKER, (), environment=_worker_environment(asked), needs=needs, is_main=True)
    earlier = [job for one in _live_here(site, before) for job in one.jobs]
    return SlurmOptions(
        site=site,
        code=code,
        workdir=None if site.container is not None else str(asked.cwd),
        beside=tuple(replace(one, het_group=int(one.name == POLICY)) for one in beside) if is_spread else beside,
        worker=replace(worker, het_group=0) if is_spread else worker,
        parts=(modest(site, site.worker), site.resources) if is_spread else (),
        after=asked.run_after,
        finish=tuple(asked.finish_commands()),
        finish_after=tuple(earlier),
    )


def _beside(asked: SubmitRequest) -> tuple[Component, ...]:
    """What each job has besides the worker. Raises UserError for what cannot be."""
    found: list[Component] = []
    site, server = asked.site, asked.server
    if server is not None and server.type is not None:
        name = server.container or (kind_named(server.type) if site.runtime != "none" else None)
        found.append(server_component(server.wanted(site.container_named(name), None)))
    if asked.sandbox is not None:
        is_contained = site.runtime != "none" and site.executor == "slurm"
        container = site.container_named(asked.sandbox.container) if is_contained else None
        found.append(sandbox_component(asked.sandbox, container, site.where))
    return tuple(found)


def _worker_environment(asked: SubmitRequest) -> dict[str, str]:
    return ITS_ADDRESS if asked.sandbox is not None else {}
