"""Rollouts by seed, one job each, on this machine or on Slurm: `gymnast nemo-gym-rollouts` and its function.

The options are those of the pipeline `ns nemo_gym_rollouts`, so that its calls run with only the import changed.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gymnast.compat.nemo_skills.component_jobs import (
    PipelineJob,
    QueuedJob,
    python_for,
    remember_jobs,
    scripts,
    select_site,
    submit_job,
)
from gymnast.compat.nemo_skills.options import (
    Arguments,
    RolloutsRequest,
    make_placement,
    reject_unknown_options,
    split_list,
)
from gymnast.compat.nemo_skills.seed_jobs import KEY_VARIABLE, collect_container, seed_components, to_host_paths
from gymnast.compat.nemo_skills.seeds import Seed, done_seeds, resolve_seeds, seed_output
from gymnast.errors import UserError
from gymnast.sidecars.component import Component
from gymnast.sidecars.policy_server import split_arguments
from gymnast.sidecars.sandbox import SandboxOptions
from gymnast.sidecars.server_options import DUMMY_KEY, ServerOptions
from gymnast.store.paths import RunPaths

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from gymnast.executors.site import Site


@dataclass(frozen=True, slots=True)
class SeedJob:
    seed: Seed
    output: Path
    job: str | None = None
    """Its number at the scheduler; None if it ran here, or in a dry run."""
    exit_code: int | None = None
    """If it ran here."""


@dataclass(frozen=True, slots=True)
class PipelineResult:
    """What a call did."""

    executor: str
    jobs: tuple[SeedJob, ...]
    skipped: tuple[Seed, ...] = ()
    """Seeds that were already done."""
    others: tuple[str, ...] = ()
    """Further jobs: the data job first, the summary last."""
    scripts: tuple[str, ...] = ()
    """In a dry run: what would be submitted."""

    @property
    def exit_code(self) -> int:
        return max((job.exit_code or 0 for job in self.jobs), default=0)


def nemo_gym_rollouts(
    ctx: Arguments | None = None,
    cluster: str | None = None,
    config_paths: str | Sequence[str] = "",
    input_file: str = "",
    output_dir: str = "",
    expname: str = "nemo-gym-rollouts",
    *,
    model: str | None = None,
    server_address: str | None = None,
    server_type: Any = None,
    server_gpus: int | None = None,
    server_nodes: int = 1,
    server_args: str | Sequence[str] = "",
    server_entrypoint: str | None = None,
    server_container: str | None = None,
    with_sandbox: bool = False,
    sandbox_container: str = "sandbox",
    sandbox_command: str | None = None,
    gym_path: str | None = None,
    policy_api_key: str = DUMMY_KEY,
    policy_model_name: str | None = None,
    num_random_seeds: int | None = None,
    random_seeds: str | Iterable[int] | None = None,
    starting_seed: int = 0,
    rerun_done: bool = False,
    run_after: str | Sequence[str] | None = None,
    partition: str | None = None,
    account: str | None = None,
    qos: str | None = None,
    time: str | None = None,
    time_min: str | None = None,
    exclusive: bool | None = None,
    sbatch_kwargs: str | dict[str, Any] | None = None,
    container: str | None = None,
    mount_paths: str | Sequence[str] | None = None,
    config_dir: str | None = None,
    log_dir: str | None = None,
    installation_command: str | None = None,
    dry_run: bool = False,
    trust_remote_code: bool = False,
    server_replicas: int | None = None,
    tensor_parallel: int | None = None,
    pipeline_parallel: int | None = None,
    data_parallel: int | None = None,
    server_restarts: int = 3,
    server_ready_path: str | None = None,
    server_ready_timeout_s: float = 3600.0,
    serve_args: str | Sequence[str] = "",
    collect_args: str | Sequence[str] = "",
    before: Sequence[Sequence[str]] = (),
    on_note: Callable[[str], None] | None = None,
    **without_effect: Any,
) -> PipelineResult:
    """Collect rollouts, one job per seed, with a policy server in each job or one that is already running.

    `ctx` holds further Hydra-style arguments (`wrap_arguments("+agent_name=A …")`). Without `cluster`, jobs run on this
    machine, one after the other, and the call returns when they have ended. Done seeds are skipped unless `rerun_done`.
    """
    options, say = dict(locals()), on_note or (lambda _: None)
    reject_unknown_options(without_effect, say)
    request = RolloutsRequest(
        config_paths=split_list(config_paths),
        input_file=input_file,
        output_dir=Path(output_dir).absolute() if output_dir else Path(),
        seeds=tuple(resolve_seeds(num_random_seeds, starting_seed, random_seeds)),
        rerun_done=rerun_done,
        server=ServerOptions(
            model=model,
            address=server_address,
            type=str(getattr(server_type, "value", server_type)) if server_type is not None else None,
            gpus=server_gpus,
            nodes=server_nodes,
            arguments=split_arguments(server_args),
            entrypoint=split_arguments(server_entrypoint),
            container=server_container,
            trust_remote_code=trust_remote_code,
            replicas=server_replicas,
            tensor_parallel=tensor_parallel,
            pipeline_parallel=pipeline_parallel,
            data_parallel=data_parallel,
            restarts=server_restarts,
            ready_path=server_ready_path,
            ready_deadline_s=server_ready_timeout_s,
            policy_model_name=policy_model_name,
            policy_api_key=policy_api_key,
        ).require_valid(),
        placement=make_placement(options),
        gym_path=gym_path,
        sandbox=SandboxOptions(sandbox_container, split_arguments(sandbox_command)) if with_sandbox else None,
        serve_args=split_arguments(serve_args),
        collect_args=(*split_arguments(collect_args), *(word for word in (ctx.args if ctx else ()) if word)),
        before=tuple(tuple(words) for words in before),
    )
    return submit_rollouts(request, say)


def submit_rollouts(request: RolloutsRequest, say: Callable[[str], None]) -> PipelineResult:
    """Submit (or run) the jobs of all seeds that are not done yet."""
    request.check_required()
    site = select_site(request.placement)
    request = to_host_paths(request, site)
    done = [] if request.rerun_done else done_seeds(request.output_dir, request.seeds)
    if done:
        say(f"already done, skipped: {', '.join(map(_describe_seed, done))} (rerun_done collects them again)")
    python = python_for(site, request.placement)
    jobs = {seed: _make_seed_job(request, seed, site, python) for seed in request.seeds if seed not in done}
    if not jobs:
        return PipelineResult(site.executor, (), tuple(done))
    data_job = _make_data_job(request, site, python)
    if request.placement.dry_run:
        texts = [text for job in [*([data_job] if data_job else []), *jobs.values()] for text in scripts(job, site)]
        seed_jobs = tuple(SeedJob(seed, seed_output(request.output_dir, seed)) for seed in jobs)
        return PipelineResult(site.executor, seed_jobs, tuple(done), scripts=tuple(texts))
    if request.rerun_done:
        _set_done_aside(request, say)
    after: tuple[str, ...] = request.placement.run_after
    others: list[str] = []
    if data_job is not None:
        data = submit_job(data_job, site, say)
        if data.exit_code:
            raise UserError("cannot prepare the data", where=data.message or data.folder)
        if data.job is not None:
            others.append(data.job)
            after = (*after, data.job)
    seed_jobs = tuple(
        _to_seed_job(seed, request, submit_job(replace(job, after=after), site, say)) for seed, job in jobs.items()
    )
    if site.executor == "slurm":
        remember_jobs(site, request.placement.expname, [job.job for job in seed_jobs if job.job])
        others.append(_submit_summary(request, site, python, [job.job for job in seed_jobs if job.job], say))
    return PipelineResult(site.executor, seed_jobs, tuple(done), tuple(others))


def _make_seed_job(request: RolloutsRequest, seed: Seed, site: Site, python: str) -> PipelineJob:
    key = request.server.policy_api_key
    return _make_job(
        request,
        "" if seed is None else f"-rs{seed}",
        seed_components(request, seed, site, python),
        secrets={} if key == DUMMY_KEY else {KEY_VARIABLE: key},
        output=seed_output(request.output_dir, seed),
    )


def _make_job(request: RolloutsRequest, suffix: str, components: Iterable[Component], **options: Any) -> PipelineJob:
    placement = request.placement
    folder, name = request.output_dir, f"{placement.expname}{suffix}"
    defaults: dict[str, Any] = {"after": placement.run_after, "output": folder, "shared_folders": (folder,)}
    return PipelineJob(name, request.job_folder, tuple(components), placement, **(defaults | options))


def _make_data_job(request: RolloutsRequest, site: Site, python: str) -> PipelineJob | None:
    """The data steps (`data download …`, `data prepare …`), one after the other, before all seeds."""
    if not request.before:
        return None
    steps = tuple(
        Component(
            f"data-{number}",
            (python, "-P", "-m", "gymnast.cli.main", *words),
            container=collect_container(request, site),
            environment={"NEMO_GYM_EXTRA_ROOTS": request.gym_path} if request.gym_path else {},
            is_main=True,
        )
        for number, words in enumerate(request.before)
    )
    return _make_job(request, "-data", steps, is_sequential=True)


def _submit_summary(
    request: RolloutsRequest, site: Site, python: str, seeds: Sequence[str], say: Callable[[str], None]
) -> str:
    """Submit the job that summarizes all seeds when they have ended, however they ended."""
    words = (python, "-P", "-m", "gymnast.cli.main", "nemo-gym-rollouts", "--summary-only")
    component = Component(
        "summary",
        (*words, "--output-dir", str(request.output_dir)),
        container=collect_container(request, site),
        is_main=True,
    )
    after = tuple(f"afterany:{number}" for number in seeds)
    job = _make_job(request, "-summary", [component], after=after, is_sequential=True, is_minimal=True)
    queued = submit_job(job, site, say)
    assert queued.job is not None
    return queued.job


def _to_seed_job(seed: Seed, request: RolloutsRequest, queued: QueuedJob) -> SeedJob:
    return SeedJob(seed, seed_output(request.output_dir, seed), queued.job, queued.exit_code)


def _set_done_aside(request: RolloutsRequest, say: Callable[[str], None]) -> None:
    for seed in done_seeds(request.output_dir, request.seeds):
        folder = RunPaths(seed_output(request.output_dir, seed)).set_aside()
        if folder is not None:
            say(f"{_describe_seed(seed)}: the earlier run was moved to {folder}")


def _describe_seed(seed: Seed) -> str:
    return "the run" if seed is None else f"seed {seed}"
