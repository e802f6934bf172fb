"""`gymnast submit`: the same run on many workers, started by Slurm, on Ray or here."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from gymnast.cli import collect
from gymnast.cli import options as shared
from gymnast.cli import server_options as server

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gymnast.cluster.components.sandbox import SandboxWanted
    from gymnast.cluster.order import ConfigNames
    from gymnast.cluster.pipeline_options import ServerOptions
    from gymnast.cluster.site import Site

_CONFIG: Final = (
    "config_files",
    "environments",
    "model_type",
    "model",
    "model_url",
    "search_dirs",
    "unsafe_no_sandbox",
)
_RUN: Final = (
    *("source", "split", "output", "agent", "num_repeats", "concurrency", "limit", "temperature", "top_p"),
    *("max_output_tokens", "prompt_config", "add_seed", "skip_bad_rows", "rollout_timeout_s", "max_attempts"),
    *("give_up_after_s", "resume", "retry_failed", "overwrite"),
)
_RESOURCES: Final = (
    *("partition", "account", "qos", "time", "nodes", "exclusive", "gres", "gpus_per_node", "cpus_per_task"),
    *("memory", "comment", "mail_user", "mail_type", "extra_sbatch"),
)


def command(
    overrides: shared.Overrides = None,
    *,
    output: collect.Output,
    source: collect.Input = None,
    split: collect.Split = None,
    config_files: shared.ConfigFiles = None,
    environments: shared.Environments = None,
    model_type: shared.ModelType = None,
    model: shared.ModelName = None,
    model_url: shared.ModelUrl = None,
    search_dirs: shared.SearchDirs = None,
    unsafe_no_sandbox: shared.UnsafeNoSandbox = False,
    agent: collect.Agent = None,
    num_repeats: collect.Repeats = 1,
    concurrency: collect.Concurrency = None,
    limit: collect.Limit = None,
    temperature: collect.Temperature = None,
    top_p: collect.TopP = None,
    max_output_tokens: collect.MaxOutputTokens = None,
    prompt_config: collect.PromptConfig = None,
    add_seed: collect.AddSeed = False,
    skip_bad_rows: collect.SkipBadRows = False,
    rollout_timeout_s: collect.RolloutTimeout = 7200.0,
    max_attempts: collect.MaxAttempts = 3,
    give_up_after_s: collect.GiveUpAfter = 600.0,
    resume: collect.Resume = False,
    retry_failed: collect.RetryFailed = False,
    overwrite: collect.Overwrite = False,
    server_address: server.ServerAddress = None,
    server_type: server.ServerType = None,
    server_gpus: server.ServerGpus = None,
    server_nodes: server.ServerNodes = 1,
    server_args: server.ServerArgs = "",
    server_entrypoint: server.ServerEntrypoint = None,
    server_container: server.ServerContainer = None,
    server_replicas: server.ServerReplicas = None,
    tensor_parallel: server.TensorParallel = None,
    pipeline_parallel: server.PipelineParallel = None,
    data_parallel: server.DataParallel = None,
    server_restarts: server.ServerRestarts = 3,
    server_ready_path: server.ServerReadyPath = None,
    server_ready_timeout_s: server.ServerReadyTimeout = 3600.0,
    trust_remote_code: server.TrustRemoteCode = False,
    with_sandbox: server.WithSandbox = False,
    sandbox_container: server.SandboxContainer = "sandbox",
    sandbox_command: server.SandboxCommand = None,
    workers: Annotated[int, typer.Option("--workers", "--jobs", min=1, help="Workers that should work on it.")] = 8,
    at_once: Annotated[
        int | None, typer.Option("--at-once", min=1, help="Of these, how many may run at the same time.")
    ] = None,
    speculate: Annotated[
        bool | None,
        typer.Option(
            help="At the end, idle workers copy what others have in flight, in case those are lost. "
            "[default: where jobs bring their own policy server]",
        ),
    ] = None,
    chunk_rows: Annotated[
        int | None, typer.Option("--chunk-rows", min=1, help="Rollouts of a chunk. [default: fits the workers]")
    ] = None,
    cluster: Annotated[
        str | None, typer.Option("--cluster", help="The cluster: a name in ./cluster_configs and the like, or a file.")
    ] = None,
    executor: Annotated[
        str | None, typer.Option("--executor", help="local, slurm or ray. [default: the cluster's, else local]")
    ] = None,
    host: Annotated[
        str | None, typer.Option("--host", help="Login node: the scheduler's commands run there, over your own ssh.")
    ] = None,
    code: Annotated[
        str | None,
        typer.Option("--code", help="What jobs run: installed, snapshot (git), snapshot+dirty, container."),
    ] = None,
    container: Annotated[
        str | None, typer.Option("--container", help="The workers' container, by the cluster's name for it.")
    ] = None,
    run_after: Annotated[
        list[str] | None,
        typer.Option("--run-after", help="Start after this job: number or name, also afterany:NUMBER. Repeatable."),
    ] = None,
    merge: Annotated[
        bool | None, typer.Option("--merge/--no-merge", help="Merge when all workers have ended. [default: on Slurm]")
    ] = None,
    profile: Annotated[bool, typer.Option("--profile/--no-profile", help="Profile after merging.")] = True,
    wait: Annotated[bool, typer.Option("--wait", help="Stay until all workers have ended.")] = False,
    requeue: Annotated[
        int | None, typer.Option("--requeue", min=0, help="How often a job whose time is up queues itself again.")
    ] = None,
    drain_s: Annotated[
        int | None, typer.Option("--drain", min=0, help="Seconds before the end of its time that a job finishes in.")
    ] = None,
    name: Annotated[str | None, typer.Option("--name", help="Of the jobs. [default: gymnast-RUN]")] = None,
    partition: Annotated[str | None, typer.Option("--partition")] = None,
    account: Annotated[str | None, typer.Option("--account")] = None,
    qos: Annotated[str | None, typer.Option("--qos")] = None,
    time: Annotated[str | None, typer.Option("--time", help="Of each job: 04:00:00.")] = None,
    nodes: Annotated[int | None, typer.Option("--nodes", min=1)] = None,
    exclusive: Annotated[bool, typer.Option("--exclusive")] = False,
    gres: Annotated[str | None, typer.Option("--gres")] = None,
    gpus_per_node: Annotated[int | None, typer.Option("--gpus-per-node", min=1)] = None,
    cpus_per_task: Annotated[int | None, typer.Option("--cpus-per-task", min=1)] = None,
    memory: Annotated[str | None, typer.Option("--mem")] = None,
    comment: Annotated[str | None, typer.Option("--comment")] = None,
    mail_user: Annotated[str | None, typer.Option("--mail-user")] = None,
    mail_type: Annotated[str | None, typer.Option("--mail-type")] = None,
    extra_sbatch: Annotated[
        list[str] | None, typer.Option("--sbatch", help="A further option of sbatch: --sbatch=--nice=5. Repeatable.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the plan and the scripts; write nothing.")] = False,
    as_json: shared.JsonOutput = False,
) -> int:
    """Submit a run: plan it once, start workers that take chunks of it, merge and profile when all have ended.

    Takes the options of `gymnast collect`. Workers may be preempted, time out or die: what they had not settled is
    owed, and --resume starts as many workers as that still needs. `gymnast status`, `logs` and `cancel` take the run.
    """
    from gymnast.cli.submitted import show_dry_run, submit
    from gymnast.cluster.submit_run import SubmitRequest, chosen_code, chosen_site
    from gymnast.config import read_environ
    from gymnast.rollouts.options import run_options

    given = dict(locals())
    configured = {key: given[key] for key in _CONFIG}
    resources = {key: given[key] for key in _RESOURCES} | {"extra_sbatch": tuple(extra_sbatch or ())}
    site = chosen_site(
        _site(cluster, executor, read_environ().cluster_dirs),
        executor=executor,
        container=container,
        changes={"host": host, "requeue": requeue, "drain_s": drain_s},
        resources=resources,
    )
    policy_server = _policy_server(given, configured)
    config = shared.load(overrides, **configured).checked()
    if merge is None:
        merge = wait or site.executor == "slurm"
    request = SubmitRequest(
        collect=run_options(config, **{key: given[key] for key in _RUN}),
        config=config,
        names=_names(overrides or [], configured),
        site=site,
        workers=workers,
        at_once=at_once,
        chunk_rows=chunk_rows,
        speculate=speculate,
        code=chosen_code(code),
        server=policy_server,
        sandbox=_sandbox(with_sandbox=with_sandbox, container=sandbox_container, command=sandbox_command),
        run_after=tuple(run_after or ()),
        finish=(*(("merge",) if merge else ()), *(("profile",) if merge and profile else ())),
        name=name or f"gymnast-{output.stem}",
    )
    if dry_run:
        return show_dry_run(request, as_json=as_json)
    return submit(request, wait=wait, as_json=as_json)


def _site(cluster: str | None, executor: str | None, folders: Iterable[Path]) -> Site:
    from gymnast.cluster.site import HERE, Site, find_site

    if cluster is not None:
        return find_site(cluster, folders)
    return Site() if executor == "slurm" else HERE


def _policy_server(given: dict[str, Any], configured: dict[str, Any]) -> ServerOptions:
    """The policy server of each job, if there is to be one; the configuration then names what it serves."""
    from gymnast.cluster.components.servers import served_name, split_arguments
    from gymnast.cluster.pipeline_jobs import base_url
    from gymnast.cluster.pipeline_options import ServerOptions
    from gymnast.cluster.submit_run import TO_BE_PUBLISHED

    if given["server_address"] is not None:
        configured["model_url"] = configured["model_url"] or base_url(given["server_address"])
    hosted = ServerOptions(
        model=configured["model"],
        address=configured["model_url"],
        type=given["server_type"],
        gpus=given["server_gpus"],
        nodes=given["server_nodes"],
        arguments=split_arguments(given["server_args"]),
        entrypoint=split_arguments(given["server_entrypoint"]),
        container=given["server_container"],
        trust_remote_code=given["trust_remote_code"],
        replicas=given["server_replicas"],
        tensor_parallel=given["tensor_parallel"],
        pipeline_parallel=given["pipeline_parallel"],
        data_parallel=given["data_parallel"],
        restarts=given["server_restarts"],
        ready_path=given["server_ready_path"],
        ready_deadline_s=given["server_ready_timeout_s"],
    ).checked()
    if hosted.is_self_hosted:
        configured["model"] = served_name(hosted.wanted(None, None))
        configured["model_url"] = TO_BE_PUBLISHED
    return hosted


def _sandbox(*, with_sandbox: bool, container: str, command: str | None) -> SandboxWanted | None:
    from gymnast.cluster.components.sandbox import SandboxWanted
    from gymnast.cluster.components.servers import split_arguments
    from gymnast.errors import UserError

    if with_sandbox:
        return SandboxWanted(container, split_arguments(command))
    if command is not None:
        raise UserError("--sandbox-command is for a sandbox service in each job", next="give --with-sandbox, too")
    return None


def _names(overrides: list[str], configured: dict[str, Any]) -> ConfigNames:
    from gymnast.cluster.order import ConfigNames

    return ConfigNames(
        environments=tuple(configured["environments"] or ()),
        config_paths=tuple(configured["config_files"] or ()),
        overrides=tuple(overrides),
        model_type=configured["model_type"],
        model=configured["model"],
        model_url=configured["model_url"],
        search_dirs=tuple(str(folder.absolute()) for folder in configured["search_dirs"] or ()),
        folder=str(Path.cwd()),
        unsafe_no_sandbox=configured["unsafe_no_sandbox"],
    )
