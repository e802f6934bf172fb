"""`gymnast submit`: the same run on many workers, started by Slurm, on Ray or on this machine."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from gymnast.cli import collect
from gymnast.cli import options as shared
from gymnast.cli import server_options as server

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gymnast.chunks.worker_spec import ConfigArguments
    from gymnast.executors.site import Site
    from gymnast.sidecars.sandbox import SandboxOptions
    from gymnast.sidecars.server_options import ServerOptions

_RESOURCES: Final = (
    *("partition", "account", "qos", "time", "nodes", "exclusive", "gres", "gpus_per_node", "cpus_per_task"),
    *("memory", "comment", "mail_user", "mail_type", "extra_sbatch"),
)


def command(
    overrides: shared.Overrides = None,
    *,
    output: Annotated[Path, typer.Option("--output", "-o", help="JSONL file for the scored rollouts.")],
    source: collect.Input = None,
    split: collect.Split = None,
    config_files: shared.ConfigFiles = None,
    environments: shared.Environments = None,
    model_type: shared.ModelType = None,
    model: shared.ModelName = None,
    model_url: shared.ModelUrl = None,
    model_key_name: shared.ModelKeyName = None,
    search_dirs: shared.SearchDirs = None,
    unsafe_no_sandbox: shared.UnsafeNoSandbox = False,
    agent: Annotated[
        str | None,
        typer.Option(
            "--agent",
            "-a",
            help="Configured agent for rows that name none, or a recipe that replaces all agents (gymnast agents).",
        ),
    ] = None,
    num_repeats: collect.Repeats = None,
    concurrency: collect.Concurrency = None,
    limit: collect.Limit = None,
    temperature: collect.Temperature = None,
    top_p: collect.TopP = None,
    max_output_tokens: collect.MaxOutputTokens = None,
    prompt_config: shared.PromptConfig = None,
    prompt: shared.Prompt = None,
    map: shared.Map = None,  # noqa: A002 - as the option is called
    add_seed: collect.AddSeed = False,
    skip_bad_rows: collect.SkipBadRows = False,
    rollout_timeout_s: collect.RolloutTimeout = 7200.0,
    max_attempts: collect.MaxAttempts = 3,
    give_up_after_s: collect.GiveUpAfter = 600.0,
    truncated: collect.Truncated = "score",
    resume: collect.Resume = False,
    retry_failed: collect.RetryFailed = False,
    overwrite: collect.Overwrite = False,
    track: shared.Track = None,
    trace: shared.Trace = None,
    trace_sample: shared.TraceSample = 0.01,
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
    workers: Annotated[int, typer.Option("--workers", "--jobs", min=1, max=100_000, help="Number of workers.")] = 8,
    max_running: Annotated[
        int | None, typer.Option("--max-running", min=1, help="Workers that may run at the same time.")
    ] = None,
    speculate: Annotated[
        bool | None,
        typer.Option(
            help="Near the end, let idle workers run copies of rollouts in flight elsewhere, in case those are lost. "
            "[default: on if jobs start their own policy server]",
        ),
    ] = None,
    chunk_rows: Annotated[
        int | None, typer.Option("--chunk-rows", min=1, help="Rollouts per chunk. [default: based on --workers]")
    ] = None,
    cluster: Annotated[
        str | None,
        typer.Option("--cluster", help="Cluster: a file, or a name in ./cluster_configs and similar folders."),
    ] = None,
    executor: Annotated[
        str | None, typer.Option("--executor", help="local, slurm or ray. [default: the cluster's, or local]")
    ] = None,
    host: Annotated[
        str | None, typer.Option("--host", help="Login node on which to run the scheduler's commands, through ssh.")
    ] = None,
    code: Annotated[
        str | None,
        typer.Option("--code", help="Code that jobs run: installed, snapshot (git), snapshot+dirty or container."),
    ] = None,
    container: Annotated[
        str | None, typer.Option("--container", help="Container of the workers, as named in the cluster file.")
    ] = None,
    run_after: Annotated[
        list[str] | None,
        typer.Option("--run-after", help="Start after this job: number, name or afterany:NUMBER. Repeatable."),
    ] = None,
    merge: Annotated[
        bool | None, typer.Option("--merge/--no-merge", help="Merge once all workers have ended. [default: on Slurm]")
    ] = None,
    profile: Annotated[bool, typer.Option("--profile/--no-profile", help="Profile after merging.")] = True,
    wait: Annotated[bool, typer.Option("--wait", help="Wait until all workers have ended.")] = False,
    requeue: Annotated[
        int | None, typer.Option("--requeue", min=0, help="How often a job that hits its time limit is requeued.")
    ] = None,
    drain_s: Annotated[
        int | None, typer.Option("--drain", min=0, help="Seconds before its time limit at which a job starts to drain.")
    ] = None,
    name: Annotated[str | None, typer.Option("--name", help="Name of the jobs. [default: gymnast-RUN]")] = None,
    partition: Annotated[str | None, typer.Option("--partition", help="Slurm partition.")] = None,
    account: Annotated[str | None, typer.Option("--account", help="Slurm account.")] = None,
    qos: Annotated[str | None, typer.Option("--qos", help="Slurm QOS.")] = None,
    time: Annotated[str | None, typer.Option("--time", help="Time limit of each job: 04:00:00.")] = None,
    nodes: Annotated[int | None, typer.Option("--nodes", min=1, help="Nodes per job.")] = None,
    exclusive: Annotated[bool, typer.Option("--exclusive", help="Reserve whole nodes.")] = False,
    gres: Annotated[str | None, typer.Option("--gres", help="Slurm generic resources: gpu:8.")] = None,
    gpus_per_node: Annotated[int | None, typer.Option("--gpus-per-node", min=1, help="GPUs per node.")] = None,
    cpus_per_task: Annotated[int | None, typer.Option("--cpus-per-task", min=1, help="CPUs per task.")] = None,
    memory: Annotated[str | None, typer.Option("--mem", help="Memory per node: 64G.")] = None,
    comment: Annotated[str | None, typer.Option("--comment", help="Comment of the jobs.")] = None,
    mail_user: Annotated[str | None, typer.Option("--mail-user", help="Address for Slurm's e-mails.")] = None,
    mail_type: Annotated[str | None, typer.Option("--mail-type", help="Events that send an e-mail: END,FAIL.")] = None,
    extra_sbatch: Annotated[
        list[str] | None, typer.Option("--sbatch", help="Extra sbatch option: --sbatch=--nice=5. Repeatable.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the plan and the scripts; write nothing.")] = False,
    as_json: shared.JsonOutput = False,
) -> int:
    """Run a collection on many workers (Slurm, Ray or local).

    Plans the run once, starts workers that take chunks of it, and merges and profiles when all have ended. Takes the
    options of `gymnast collect`. Workers may be preempted, time out or die: rollouts they did not settle are owed, and
    --resume starts as many workers as those need. `gymnast status`, `logs` and `cancel` take the run.
    """
    from dataclasses import replace

    from gymnast.cli.submit_output import show_dry_run, submit
    from gymnast.config import read_environ
    from gymnast.config.known_keys import RUN_KEYS
    from gymnast.executors.submit_run import SubmitRequest, override_site, parse_code_choice
    from gymnast.rollouts.options import run_options
    from gymnast.tracking.telemetry import check_telemetry

    arguments = dict(locals())
    _check_single_run(agent, model)
    config_arguments = {key: arguments[key] for key in (*shared.CONFIG_OPTIONS, "agent")}
    resources = {key: arguments[key] for key in _RESOURCES} | {"extra_sbatch": tuple(extra_sbatch or ())}
    site = override_site(
        _site(cluster, executor, read_environ().cluster_dirs),
        executor=executor,
        container=container,
        changes={"host": host, "requeue": requeue, "drain_s": drain_s},
        resources=resources,
    )
    policy_server = _policy_server(arguments, config_arguments)
    config = shared.load(overrides, **config_arguments, command_keys=RUN_KEYS).require_valid()
    if merge is None:
        merge = wait or site.executor == "slurm"
    request = SubmitRequest(
        run_options=replace(
            run_options(
                config,
                **{key: arguments[key] for key in (*shared.SOURCE_OPTIONS, *shared.RUN_OPTIONS, "truncated")},
            ),
            telemetry=check_telemetry(track, trace, trace_sample),
        ),
        config=config,
        config_arguments=_names(overrides or [], config_arguments),
        site=site,
        workers=workers,
        max_running=max_running,
        chunk_rows=chunk_rows,
        speculate=speculate,
        code=parse_code_choice(code),
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
    from gymnast.executors.site import LOCAL_SITE, Site, find_site

    if cluster is not None:
        return find_site(cluster, folders)
    return Site() if executor == "slurm" else LOCAL_SITE


def _check_single_run(agent: str | None, model: str | None) -> None:
    from gymnast.cli.matrix import make_cells
    from gymnast.errors import UserError

    if len(make_cells(agent, model)) > 1:
        raise UserError(
            "submit starts one run: it takes one agent and one model",
            next="submit once for each, with an --output of its own",
        )


def _policy_server(arguments: dict[str, Any], config_arguments: dict[str, Any]) -> ServerOptions:
    """The policy server of each job, if it starts one; `config_arguments` then name the model that it serves."""
    from gymnast.executors.submit_run import PENDING_POLICY_URL
    from gymnast.sidecars.policy_server import served_model_name, split_arguments
    from gymnast.sidecars.server_options import ServerOptions, base_url

    if arguments["server_address"] is not None:
        config_arguments["model_url"] = config_arguments["model_url"] or base_url(arguments["server_address"])
    hosted = ServerOptions(
        model=config_arguments["model"],
        address=config_arguments["model_url"],
        type=arguments["server_type"],
        gpus=arguments["server_gpus"],
        nodes=arguments["server_nodes"],
        arguments=split_arguments(arguments["server_args"]),
        entrypoint=split_arguments(arguments["server_entrypoint"]),
        container=arguments["server_container"],
        trust_remote_code=arguments["trust_remote_code"],
        replicas=arguments["server_replicas"],
        tensor_parallel=arguments["tensor_parallel"],
        pipeline_parallel=arguments["pipeline_parallel"],
        data_parallel=arguments["data_parallel"],
        restarts=arguments["server_restarts"],
        ready_path=arguments["server_ready_path"],
        ready_deadline_s=arguments["server_ready_timeout_s"],
    ).require_valid()
    if hosted.is_self_hosted:
        config_arguments["model"] = served_model_name(hosted.to_spec(None, None))
        config_arguments["model_url"] = PENDING_POLICY_URL
    return hosted


def _sandbox(*, with_sandbox: bool, container: str, command: str | None) -> SandboxOptions | None:
    from gymnast.errors import UserError
    from gymnast.sidecars.policy_server import split_arguments
    from gymnast.sidecars.sandbox import SandboxOptions

    if with_sandbox:
        return SandboxOptions(container, split_arguments(command))
    if command is not None:
        raise UserError("--sandbox-command needs --with-sandbox", next="add --with-sandbox")
    return None


def _names(overrides: list[str], config_arguments: dict[str, Any]) -> ConfigArguments:
    from gymnast.chunks.worker_spec import ConfigArguments

    return ConfigArguments(
        environments=tuple(config_arguments["environments"] or ()),
        config_paths=tuple(config_arguments["config_files"] or ()),
        overrides=tuple(overrides),
        model_type=config_arguments["model_type"],
        model=config_arguments["model"],
        model_url=config_arguments["model_url"],
        model_key_name=config_arguments["model_key_name"],
        search_dirs=tuple(str(folder.absolute()) for folder in config_arguments["search_dirs"] or ()),
        folder=str(Path.cwd()),
        unsafe_no_sandbox=config_arguments["unsafe_no_sandbox"],
        agent=config_arguments["agent"],
    )
