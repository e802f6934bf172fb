"""`gymnast submit`: the same run on many workers, started by Slurm, on Ray or here."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from gymnast.cli import collect, nemo_gym_rollouts
from gymnast.cli import options as shared
from gymnast.cli.borrowing import borrowing

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
_REQUEST: Final = (
    *("source", "split", "output", "agent", "num_repeats", "concurrency", "limit", "temperature", "top_p"),
    *("max_output_tokens", "prompt_config", "add_seed", "skip_bad_rows", "rollout_timeout_s", "max_attempts"),
    *("give_up_after_s", "resume", "retry_failed", "overwrite"),
)
_SERVER: Final = (
    *("server_address", "server_type", "server_gpus", "server_nodes", "server_args", "server_entrypoint"),
    *("server_container", "server_replicas", "tensor_parallel", "pipeline_parallel", "data_parallel"),
    *("server_restarts", "server_ready_path", "server_ready_timeout_s", "trust_remote_code"),
)
_SANDBOX: Final = ("with_sandbox", "sandbox_container", "sandbox_command")
_RESOURCES: Final = (
    *("partition", "account", "qos", "time", "nodes", "exclusive", "gres", "gpus_per_node", "cpus_per_task"),
    *("memory", "comment", "mail_user", "mail_type", "extra_sbatch"),
)


@borrowing(
    configured=(collect.command, _CONFIG),
    asked=(collect.command, _REQUEST),
    served=(nemo_gym_rollouts.command, _SERVER),
    walled=(nemo_gym_rollouts.command, _SANDBOX),
)
def command(
    overrides: shared.Overrides = None,
    *,
    configured: dict[str, Any],
    asked: dict[str, Any],
    served: dict[str, Any],
    walled: dict[str, Any],
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

    given = dict(locals())
    resources = {key: given[key] for key in _RESOURCES} | {"extra_sbatch": tuple(extra_sbatch or ())}
    site = chosen_site(
        _site(cluster, executor, read_environ().cluster_dirs),
        executor=executor,
        container=container,
        changes={"host": host, "requeue": requeue, "drain_s": drain_s},
        resources=resources,
    )
    server = _server(served, configured)
    config = shared.load(overrides, **configured).checked()
    if merge is None:
        merge = wait or site.executor == "slurm"
    request = SubmitRequest(
        collect=collect.requested(config, **asked),
        config=config,
        names=_names(overrides or [], configured),
        site=site,
        workers=workers,
        at_once=at_once,
        chunk_rows=chunk_rows,
        speculate=speculate,
        code=chosen_code(code),
        server=server,
        sandbox=_sandbox(**walled),
        run_after=tuple(run_after or ()),
        finish=(*(("merge",) if merge else ()), *(("profile",) if merge and profile else ())),
        name=name or f"gymnast-{asked['output'].stem}",
    )
    if dry_run:
        return show_dry_run(request, as_json=as_json)
    return submit(request, wait=wait, as_json=as_json)


def _site(cluster: str | None, executor: str | None, folders: Iterable[Path]) -> Site:
    from gymnast.cluster.site import HERE, Site, find_site

    if cluster is not None:
        return find_site(cluster, folders)
    return Site() if executor == "slurm" else HERE


def _server(served: dict[str, Any], configured: dict[str, Any]) -> ServerOptions:
    """The policy server of each job, if there is to be one; the configuration then names what it serves."""
    from gymnast.cluster.components.servers import served_name, split_arguments
    from gymnast.cluster.pipeline_jobs import base_url
    from gymnast.cluster.pipeline_options import ServerOptions
    from gymnast.cluster.submit_run import TO_BE_PUBLISHED

    if served["server_address"] is not None:
        configured["model_url"] = configured["model_url"] or base_url(served["server_address"])
    server = ServerOptions(
        model=configured["model"],
        address=configured["model_url"],
        type=served["server_type"],
        gpus=served["server_gpus"],
        nodes=served["server_nodes"],
        arguments=split_arguments(served["server_args"]),
        entrypoint=split_arguments(served["server_entrypoint"]),
        container=served["server_container"],
        trust_remote_code=served["trust_remote_code"],
        replicas=served["server_replicas"],
        tensor_parallel=served["tensor_parallel"],
        pipeline_parallel=served["pipeline_parallel"],
        data_parallel=served["data_parallel"],
        restarts=served["server_restarts"],
        ready_path=served["server_ready_path"],
        ready_deadline_s=served["server_ready_timeout_s"],
    ).checked()
    if server.is_self_hosted:
        configured["model"] = served_name(server.wanted(None, None))
        configured["model_url"] = TO_BE_PUBLISHED
    return server


def _sandbox(*, with_sandbox: bool, sandbox_container: str, sandbox_command: str | None) -> SandboxWanted | None:
    from gymnast.cluster.components.sandbox import SandboxWanted
    from gymnast.cluster.components.servers import split_arguments
    from gymnast.errors import UserError

    if with_sandbox:
        return SandboxWanted(sandbox_container, split_arguments(sandbox_command))
    if sandbox_command is not None:
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
