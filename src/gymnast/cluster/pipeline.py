"""Rollouts by seed, a job each, here or on Slurm: `gymnast nemo-gym-rollouts` and the function of that name.

Options are those of the pipeline `ns nemo_gym_rollouts`, so that its calls run with only the import changed.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gymnast.cluster.component_jobs import JobWanted, python_of, remember, scripts, site_for, submitted
from gymnast.cluster.components.sandbox import SandboxWanted
from gymnast.cluster.components.servers import split_arguments
from gymnast.cluster.components.spec import Component
from gymnast.cluster.pipeline_jobs import KEY_VARIABLE, container_of, on_the_host, seed_components
from gymnast.cluster.pipeline_options import (
    DUMMY_KEY,
    Arguments,
    RolloutsWanted,
    ServerOptions,
    listed,
    place_of,
    refuse_unknown,
)
from gymnast.cluster.seeds import done_seeds, seed_output, seeds_meant
from gymnast.errors import UserError
from gymnast.store.paths import RunPaths

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from gymnast.cluster.component_jobs import Queued
    from gymnast.cluster.seeds import Seed
    from gymnast.cluster.site import Site


@dataclass(frozen=True, slots=True)
class SeedJob:
    """One seed's job."""

    seed: Seed
    output: Path
    job: str | None = None
    """Its number at the scheduler; None where it ran here or was only looked at."""
    exit_code: int | None = None
    """Where it ran here."""


@dataclass(frozen=True, slots=True)
class Submitted:
    """What became of a call."""

    executor: str
    jobs: tuple[SeedJob, ...]
    skipped: tuple[Seed, ...] = ()
    """Seeds that are done."""
    others: tuple[str, ...] = ()
    """Further jobs: data first, the summary last."""
    scripts: tuple[str, ...] = ()
    """With `dry_run`: what would be submitted."""

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
) -> Submitted:
    """Collect rollouts, a job for each seed, with a policy server in each job or one that is there already.

    `ctx` holds further Hydra-style arguments (`wrap_arguments("+agent_name=A …")`). Without `cluster`, jobs run here,
    one after the other, and the call returns when they have ended. Seeds that are done are skipped unless `rerun_done`.
    """
    say = on_note or (lambda _: None)
    refuse_unknown(without_effect, say)
    wanted = RolloutsWanted(
        config_paths=listed(config_paths),
        input_file=input_file,
        output_dir=Path(output_dir).absolute() if output_dir else Path(),
        seeds=tuple(seeds_meant(num_random_seeds, starting_seed, random_seeds)),
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
        ).checked(),
        place=place_of(
            cluster=cluster,
            expname=expname,
            run_after=run_after,
            container=container,
            mount_paths=mount_paths,
            config_dir=config_dir,
            log_dir=log_dir,
            installation_command=installation_command,
            dry_run=dry_run,
            time_min=time_min,
            sbatch_kwargs=sbatch_kwargs,
            partition=partition,
            account=account,
            qos=qos,
            time=time,
            exclusive=exclusive,
        ),
        gym_path=gym_path,
        sandbox=SandboxWanted(sandbox_container, split_arguments(sandbox_command)) if with_sandbox else None,
        serve_args=split_arguments(serve_args),
        collect_args=(*split_arguments(collect_args), *(word for word in (ctx.args if ctx else ()) if word)),
        before=tuple(tuple(words) for words in before),
    )
    return submit_rollouts(wanted, say)


def submit_rollouts(wanted: RolloutsWanted, say: Callable[[str], None]) -> Submitted:
    """Submit (or run) the jobs of all seeds that are not done."""
    wanted.refuse_gaps()
    site = site_for(wanted.place)
    wanted = on_the_host(wanted, site)
    done = [] if wanted.rerun_done else done_seeds(wanted.output_dir, wanted.seeds)
    if done:
        say(f"done already, skipped: {', '.join(map(_shown, done))} (rerun_done collects them again)")
    python = python_of(site, wanted.place)
    jobs = {seed: _seed_job(wanted, seed, site, python) for seed in wanted.seeds if seed not in done}
    if not jobs:
        return Submitted(site.executor, (), tuple(done))
    first = _data_job(wanted, site, python)
    if wanted.place.dry_run:
        texts = [text for job in [*([first] if first else []), *jobs.values()] for text in scripts(job, site)]
        found = tuple(SeedJob(seed, seed_output(wanted.output_dir, seed)) for seed in jobs)
        return Submitted(site.executor, found, tuple(done), scripts=tuple(texts))
    if wanted.rerun_done:
        _set_aside(wanted, say)
    after: tuple[str, ...] = wanted.place.run_after
    others: list[str] = []
    if first is not None:
        data = submitted(first, site, say)
        if data.exit_code:
            raise UserError("the data could not be prepared", where=data.said or data.folder)
        if data.job is not None:
            others.append(data.job)
            after = (*after, data.job)
    found = tuple(
        _as_seed_job(seed, wanted, submitted(replace(job, after=after), site, say)) for seed, job in jobs.items()
    )
    if site.executor == "slurm":
        remember(site, wanted.place.expname, [job.job for job in found if job.job])
        others.append(_summary(wanted, site, python, [job.job for job in found if job.job], say))
    return Submitted(site.executor, found, tuple(done), tuple(others))


def _seed_job(wanted: RolloutsWanted, seed: Seed, site: Site, python: str) -> JobWanted:
    place = wanted.place
    key = wanted.server.policy_api_key
    return JobWanted(
        name=place.expname if seed is None else f"{place.expname}-rs{seed}",
        folder=place.log_dir or wanted.output_dir / "jobs",
        components=tuple(seed_components(wanted, seed, site, python)),
        place=place,
        after=place.run_after,
        reaches=(wanted.output_dir,),
        secrets={} if key == DUMMY_KEY else {KEY_VARIABLE: key},
        result=seed_output(wanted.output_dir, seed),
    )


def _data_job(wanted: RolloutsWanted, site: Site, python: str) -> JobWanted | None:
    """Data steps (`data download …`, `data prepare …`) one after the other, before all seeds."""
    if not wanted.before:
        return None
    steps = tuple(
        Component(
            f"data-{number}",
            (python, "-m", "gymnast.cli.main", *words),
            container=container_of(site, wanted.place.container or site.container, wanted.place.mounts),
            environment={"NEMO_GYM_EXTRA_ROOTS": wanted.gym_path} if wanted.gym_path else {},
            is_main=True,
        )
        for number, words in enumerate(wanted.before)
    )
    folder = wanted.place.log_dir or wanted.output_dir / "jobs"
    return JobWanted(
        f"{wanted.place.expname}-data",
        folder,
        steps,
        wanted.place,
        after=wanted.place.run_after,
        in_order=True,
        reaches=(wanted.output_dir,),
        result=wanted.output_dir,
    )


def _summary(wanted: RolloutsWanted, site: Site, python: str, seeds: Sequence[str], say: Callable[[str], None]) -> str:
    """The job that puts all seeds together when they have ended, however they ended."""
    words = (python, "-m", "gymnast.cli.main", "nemo-gym-rollouts", "--summary-only")
    component = Component(
        "summary",
        (*words, "--output-dir", str(wanted.output_dir)),
        container=container_of(site, wanted.place.container or site.container, wanted.place.mounts),
        is_main=True,
    )
    job = JobWanted(
        f"{wanted.place.expname}-summary",
        wanted.place.log_dir or wanted.output_dir / "jobs",
        (component,),
        wanted.place,
        after=tuple(f"afterany:{number}" for number in seeds),
        in_order=True,
        reaches=(wanted.output_dir,),
        is_modest=True,
        result=wanted.output_dir,
    )
    queued = submitted(job, site, say)
    assert queued.job is not None
    return queued.job


def _as_seed_job(seed: Seed, wanted: RolloutsWanted, queued: Queued) -> SeedJob:
    return SeedJob(seed, seed_output(wanted.output_dir, seed), queued.job, queued.exit_code)


def _set_aside(wanted: RolloutsWanted, say: Callable[[str], None]) -> None:
    for seed in done_seeds(wanted.output_dir, wanted.seeds):
        folder = RunPaths(seed_output(wanted.output_dir, seed)).set_aside()
        if folder is not None:
            say(f"{_shown(seed)}: the earlier run is now in {folder}")


def _shown(seed: Seed) -> str:
    return "the run" if seed is None else f"seed {seed}"
