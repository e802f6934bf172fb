"""A whole submit: plan or resume the run, count the workers it still needs, prepare the code, start the workers."""

from __future__ import annotations

import shlex
import tempfile
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from gymnast.chunks.planning import ChunkingOptions, plan_run
from gymnast.chunks.reopen import chunks_with_failures
from gymnast.errors import DataError, NotFoundError, UserError, suggest
from gymnast.executors.code_transfer import CHOICES, Code, CodeChoice, prepare_code
from gymnast.executors.executor import Executor, Submission, WorkerRequest
from gymnast.executors.hosts import make_host
from gymnast.executors.local import LocalExecutor
from gymnast.executors.registry import EXECUTOR_NAMES, make_executor
from gymnast.executors.site import LOCAL_SITE, Resources, Site
from gymnast.executors.slurm.assembly import WORKER, SlurmOptions, minimal_resources
from gymnast.executors.slurm.client import Slurm
from gymnast.executors.slurm.executor import FINISH, SlurmExecutor
from gymnast.executors.submissions import next_number, write_submission
from gymnast.executors.worker_jobs import (
    SubmissionStatus,
    hold_submit_lease,
    read_submission_status,
    record_recovered,
    start_workers,
)
from gymnast.sidecars.component import Component
from gymnast.sidecars.policy_server import POLICY, make_server_component, parse_server_kind
from gymnast.sidecars.sandbox import SANDBOX_ENVIRONMENT, SandboxOptions, make_sandbox_component
from gymnast.store.chunk_layout import ChunkLayout
from gymnast.store.chunk_state import read_chunk_plan
from gymnast.store.paths import RunPaths

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gymnast.chunks.worker_spec import ConfigArguments
    from gymnast.config import Config
    from gymnast.rollouts.options import RunOptions
    from gymnast.sidecars.server_options import ServerOptions
    from gymnast.store.chunk_files import ChunkPlan

PENDING_POLICY_URL: Final = "addresses:///of-each-job"
"""The policy's address while the run is planned: each job will have its own servers."""


@dataclass(frozen=True, slots=True)
class SubmitRequest:
    """What to run, where, and with how many workers."""

    run_options: RunOptions
    config: Config
    config_arguments: ConfigArguments
    site: Site = LOCAL_SITE
    workers: int = 8
    max_running: int | None = None
    chunk_rows: int | None = None
    speculate: bool | None = None
    """None: if jobs have their own policy servers, where speculation at the end of the run is free."""
    code: CodeChoice | None = None
    """None: the container's, if there is one; else as installed."""
    server: ServerOptions | None = None
    sandbox: SandboxOptions | None = None
    """A sandbox service in each job."""
    run_after: tuple[str, ...] = ()
    finish: tuple[str, ...] = ()
    """Commands of ours to run when all workers have ended: `merge`, `profile`."""
    name: str = "gymnast"
    cwd: Path = field(default_factory=Path.cwd)

    @property
    def serves(self) -> bool:
        """Whether each job has its own policy servers."""
        return self.server is not None and self.server.is_self_hosted

    @property
    def run(self) -> Path:
        return self.run_options.paths.output.absolute()

    @property
    def paths(self) -> RunPaths:
        return RunPaths(self.run)

    def finish_commands(self) -> list[tuple[str, ...]]:
        """The commands to run at the end. A merge fails if rollouts are owed; a profile ignores permanent failures."""
        options = {"profile": ("--allow-partial",)}
        return [(command, str(self.run), *options.get(command, ())) for command in self.finish]


@dataclass(frozen=True, slots=True)
class SubmitResult:
    """What a submit did."""

    plan: ChunkPlan
    before: SubmissionStatus
    """Before anything was started."""
    submission: Submission | None
    """None: no more workers are needed."""
    merge_submission: Submission | None = None
    """An earlier submission that got its missing merge job now."""
    code: Code | None = None
    warnings: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class DryRun:
    """What a submit would do."""

    plan: ChunkPlan
    workers: int
    live: int
    code: Code | None
    scripts: tuple[tuple[str, str], ...]
    """Path and text of each."""


def override_site(
    site: Site, *, executor: str | None, container: str | None, changes: Mapping[str, Any], resources: Mapping[str, Any]
) -> Site:
    """The site with the command line's settings in place of its own."""
    if executor is not None and executor not in EXECUTOR_NAMES:
        raise NotFoundError(f"there is no executor '{executor}'", next=suggest(executor, EXECUTOR_NAMES))
    overrides = {"executor": executor, "container": container, **changes}
    site = msgspec.structs.replace(site, **{name: value for name, value in overrides.items() if value is not None})
    site.get_container(site.container)
    return msgspec.structs.replace(site, resources=site.resources.with_overrides(**resources))


def parse_code_choice(text: str | None) -> CodeChoice | None:
    """Parse `--code`. Raises NotFoundError for an unknown choice."""
    if text is None:
        return None
    choice = next((choice for choice in CHOICES if choice == text), None)
    if choice is None:
        raise NotFoundError(f"--code cannot be '{text}'", next=suggest(text, CHOICES))
    return choice


def submit_run(request: SubmitRequest) -> SubmitResult:
    """Plan the run (or check one that is resumed) and start the workers that it still needs."""
    request = _validate(request)
    planned = plan_run(request.run_options, request.config, request.config_arguments, _make_chunking_options(request))
    layout = ChunkLayout.of(request.paths)
    with hold_submit_lease(layout):
        before = read_submission_status(layout)
        record_recovered(layout, before)
        count = before.count_missing(request.workers)
        warnings, notes = tuple(planned.warnings), tuple(planned.notes)
        if not count:
            merge_submission = add_missing_merge(request, layout, before)
            return SubmitResult(planned.plan, before, None, merge_submission, warnings=warnings, notes=notes)
        code = _prepare_code(request, layout.folder / "code")
        submission = start_workers(
            request.paths,
            layout,
            _worker_request(request, count),
            lambda _: _make_executor(request, code, before),
            f"{code.choice} {code.digest}",
        )
        if FINISH in submission.details:  # it waits for all live workers; only now are earlier ones superseded
            for earlier, _ in before.jobs:
                SlurmExecutor().drop_finish(earlier)
    return SubmitResult(planned.plan, before, submission, code=code, warnings=warnings, notes=notes)


def add_missing_merge(request: SubmitRequest, layout: ChunkLayout, before: SubmissionStatus) -> Submission | None:
    """Queue a merge job for live workers if none waits for all of them.

    Their submit was killed before it could queue one, or was not asked to.
    """
    live = _live_on_site(request.site, before)
    if not live or not request.finish:
        return None
    slurm, newest = SlurmExecutor(), live[-1]
    queued = [submission for submission, _ in before.jobs if submission.executor == "slurm"]
    waiting = [item for item in queued if (view := slurm.finish_state(item)) is not None and not view.state.is_over]
    if any(submission.number >= newest.number for submission in waiting):
        return None
    code = _prepare_code(request, layout.folder / "code")
    submission = SlurmExecutor(_slurm_options(request, code, before)).add_finish(_worker_request(request, 1), newest)
    if submission is not None:
        write_submission(layout, submission)
        for earlier in waiting:
            slurm.drop_finish(earlier)
    return submission


def _live_on_site(site: Site, before: SubmissionStatus) -> list[Submission]:
    """Live submissions to the same cluster: a Slurm job cannot depend on others."""
    if site.executor != "slurm":
        return []
    live = [submission for submission in before.live_submissions() if submission.executor == "slurm"]
    return [submission for submission in live if submission.details.get("host") == site.host]


def dry_run(request: SubmitRequest) -> DryRun:
    """What `submit_run` would do. Leaves no files behind."""
    request = _validate(request)
    layout = ChunkLayout.of(request.paths)
    with tempfile.TemporaryDirectory(prefix="gymnast-plan-") as scratch:
        if request.run_options.existing == "resume" and layout.is_planned:
            plan, before = read_chunk_plan(layout), read_submission_status(layout)
            if request.run_options.retry_failed:
                reopened = sum(view.folder_state.is_done for view, _ in chunks_with_failures(layout, plan))
                before = replace(before, open_chunks=before.open_chunks + reopened)
        else:
            options = replace(request.run_options, output=Path(scratch) / request.run.name, existing="refuse")
            plan = plan_run(options, request.config, request.config_arguments, _make_chunking_options(request)).plan
            before = SubmissionStatus(len(plan.chunks), len(plan.chunks))
        count = before.count_missing(request.workers)
        folder = Path(scratch) / "code"
        code = _prepare_code(request, folder)
        code = code.relocate(folder, layout.folder / "code") if code.folder else code
    scripts: tuple[tuple[str, str], ...] = ()
    if count and request.site.executor == "slurm":
        executor = SlurmExecutor(_slurm_options(request, code, before))
        rendered = executor.scripts(_worker_request(request, count), next_number(layout))
        scripts = tuple((str(script.path), script.text) for script in rendered)
    return DryRun(plan, count, before.live, code, scripts)


def _validate(request: SubmitRequest) -> SubmitRequest:
    """The request with job numbers to wait for. Raises UserError for what is unsupported, before planning."""
    site = request.site
    if request.run_options.existing == "overwrite":
        _raise_if_workers_live(request)
    if site.executor == "slurm":
        _choose_code(request)
        slurm = Slurm(make_host(site.host, site.ssh_options))
        _job_components(request)
        return replace(request, run_after=tuple(slurm.resolve_dependency(job) for job in request.run_after))
    if _job_components(request) and site.executor == "ray":
        raise UserError(
            "servers in the job need Slurm or this machine, not Ray",
            next="give --model-url of a server that is running",
        )
    if request.run_after:
        raise UserError(f"--run-after needs Slurm, not the executor '{site.executor}'")
    if request.code not in {None, "installed"}:
        raise UserError(f"--code {request.code} needs Slurm: elsewhere workers run what is installed")
    return request


def _raise_if_workers_live(request: SubmitRequest) -> None:
    """Workers of the old run would write into the files of the new one."""
    layout, live = ChunkLayout.of(request.paths), 0
    if layout.is_planned:
        with suppress(DataError):  # --overwrite also replaces a run that cannot be read
            live = read_submission_status(layout).live
    if live:
        raise UserError(
            f"{live} workers are still running on the existing run",
            where=str(request.run),
            next=f"gymnast cancel {shlex.quote(str(request.run))}, and repeat this command when they have ended",
        )


def _make_chunking_options(request: SubmitRequest) -> ChunkingOptions:
    return ChunkingOptions(
        workers=request.workers,
        chunk_rows=request.chunk_rows,
        grace_s=request.site.grace_s if request.site.executor == "slurm" else ChunkingOptions().grace_s,
        speculates=request.serves if request.speculate is None else request.speculate,
    )


def _worker_request(request: SubmitRequest, count: int) -> WorkerRequest:
    return WorkerRequest(
        run=request.run,
        count=count,
        max_running=min(request.max_running, count) if request.max_running is not None else None,
        arguments=("--model-url", f"{{addresses:{POLICY}}}") if request.serves else (),
        name=request.name,
    )


def _choose_code(request: SubmitRequest) -> CodeChoice:
    choice = request.code or ("container" if request.site.container is not None else "installed")
    if choice == "container" and request.site.container is None:
        raise UserError("--code container needs a container", next="name one with --container")
    if choice == "installed" and request.site.container is not None and request.site.python is None:
        raise UserError(
            "what is installed here is not in the container",
            next="use --code container or snapshot, or set `python:` in the cluster file",
        )
    return choice


def _prepare_code(request: SubmitRequest, into: Path) -> Code:
    base, container = request.site.job_dir, request.site.get_container(request.site.container)
    folder = Path(base) / "code" if base else into
    return prepare_code(_choose_code(request), into=folder, cwd=request.cwd, container=container)


def _make_executor(request: SubmitRequest, code: Code, before: SubmissionStatus) -> Executor:
    if request.site.executor == "slurm":
        return SlurmExecutor(_slurm_options(request, code, before))
    if request.site.executor == "ray":
        from gymnast.executors.ray import RayExecutor, RayOptions  # noqa: PLC0415 - on demand

        resources = request.site.resources
        cpus, gpus = float(resources.cpus_per_task or 1), float(resources.gpus_per_node or 0)
        return RayExecutor(RayOptions(address=request.site.ray_address, cpus=cpus, gpus=gpus))
    if components := _job_components(request):
        return LocalExecutor(components=components, environment=_worker_environment(request))
    return make_executor(request.site.executor)


def _slurm_options(request: SubmitRequest, code: Code, before: SubmissionStatus) -> SlurmOptions:
    site, components = request.site, _job_components(request)
    needs = tuple(component.name for component in components)
    worker = Component(WORKER, (), environment=_worker_environment(request), needs=needs, is_main=True)
    parts: tuple[Resources, ...] = ()
    if request.serves and site.worker is not None:
        components = tuple(replace(item, het_group=int(item.name == POLICY)) for item in components)
        worker = replace(worker, het_group=0)
        parts = (minimal_resources(site, site.worker), site.resources)
    return SlurmOptions(
        site=site,
        code=code,
        workdir=None if site.container is not None else str(request.cwd),
        components=components,
        worker=worker,
        parts=parts,
        after=request.run_after,
        finish=tuple(request.finish_commands()),
        finish_after=tuple(job for submission in _live_on_site(site, before) for job in submission.jobs),
    )


def _job_components(request: SubmitRequest) -> tuple[Component, ...]:
    """What each job has besides the worker. Raises UserError for an impossible layout."""
    components: list[Component] = []
    site, server = request.site, request.server
    if server is not None and server.type is not None:
        name = server.container or (parse_server_kind(server.type) if site.runtime != "none" else None)
        components.append(make_server_component(server.to_spec(site.get_container(name), None)))
    if request.sandbox is not None:
        is_contained = site.runtime != "none" and site.executor == "slurm"
        container = site.get_container(request.sandbox.container) if is_contained else None
        components.append(make_sandbox_component(request.sandbox, container, site.where))
    return tuple(components)


def _worker_environment(request: SubmitRequest) -> dict[str, str]:
    return SANDBOX_ENVIRONMENT if request.sandbox is not None else {}
