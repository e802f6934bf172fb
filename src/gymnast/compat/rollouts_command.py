"""`gymnast nemo-gym-rollouts`: one job per seed, with the options of NeMo Skills' pipeline, then a summary.

Options may be written with hyphens or, as that pipeline does, with underscores.
"""

# ruff: noqa: ARG001 - options are passed on by name, from the context

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gymnast.cli import options as shared
from gymnast.cli import server_options as server
from gymnast.cli.server_options import option
from gymnast.store.paths import RunPaths

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from gymnast.compat.nemo_skills.pipeline import PipelineResult
    from gymnast.profile.seeds import CombinedSeeds


def command(
    ctx: typer.Context,
    *,
    output_dir: Annotated[str, option("output-dir", "Folder for rollouts-rsSEED.jsonl and other files.")],
    config_paths: Annotated[str, option("config-paths", "Config files, separated by commas.")] = "",
    input_file: Annotated[str, option("input-file", "JSONL file of tasks.")] = "",
    cluster: Annotated[
        str | None, option("cluster", "Cluster name or file; without it, jobs run here, one after the other.")
    ] = None,
    expname: Annotated[str, option("expname", "Name of the jobs.")] = "nemo-gym-rollouts",
    model: Annotated[str | None, option("model", "Name or folder of the policy model.")] = None,
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
    policy_api_key: Annotated[str, option("policy-api-key", "Key of the policy server.")] = "dummy",
    policy_model_name: Annotated[
        str | None, option("policy-model-name", "Model name in requests. [default: --model]")
    ] = None,
    with_sandbox: server.WithSandbox = False,
    sandbox_container: server.SandboxContainer = "sandbox",
    sandbox_command: server.SandboxCommand = None,
    gym_path: Annotated[
        str | None, option("gym-path", "Search this folder first for configs, servers and data.")
    ] = None,
    num_random_seeds: Annotated[int | None, option("num-random-seeds", "Number of seeds, one job each.", min=1)] = None,
    random_seeds: Annotated[str | None, option("random-seeds", "Seeds: 0,2,5 or 0..3.")] = None,
    starting_seed: Annotated[int, option("starting-seed", "The first seed.", min=0)] = 0,
    rerun_done: Annotated[bool, option("rerun-done", "Collect finished seeds again.")] = False,
    run_after: Annotated[
        list[str] | None, option("run-after", "Start after this job has succeeded: name or number. Repeatable.")
    ] = None,
    before: Annotated[
        list[str] | None, option("before", "gymnast command to run first, e.g. 'data download …'. Repeatable.")
    ] = None,
    partition: Annotated[str | None, option("partition", "Slurm partition.")] = None,
    account: Annotated[str | None, option("account", "Slurm account.")] = None,
    qos: Annotated[str | None, option("qos", "Slurm QOS.")] = None,
    time: Annotated[str | None, option("time", "Time limit of each job: 04:00:00.")] = None,
    time_min: Annotated[str | None, option("time-min", "Minimum time limit of each job.")] = None,
    exclusive: Annotated[bool, option("exclusive", "Reserve whole nodes.")] = False,
    sbatch_kwargs: Annotated[str, option("sbatch-kwargs", "Extra sbatch options: a=1,b=2 or --a=1.")] = "",
    container: Annotated[
        str | None, option("container", "Container of the workers, as named in the cluster file.")
    ] = None,
    mount_paths: Annotated[str | None, option("mount-paths", "Extra mounts: /a:/b,/c:/d.")] = None,
    config_dir: Annotated[str | None, option("config-dir", "Folder with cluster files.")] = None,
    log_dir: Annotated[str | None, option("log-dir", "Folder for scripts and logs. [default: OUTPUT_DIR/jobs]")] = None,
    installation_command: Annotated[
        str | None, option("installation-command", "Shell command to run at the start of every job.")
    ] = None,
    serve_args: Annotated[str, option("serve-args", "Overrides for the environments' servers.")] = "",
    collect_args: Annotated[str, option("collect-args", "Overrides for the collection.")] = "",
    dry_run: Annotated[bool, option("dry-run", "Print the scripts; submit nothing.")] = False,
    summary_only: Annotated[bool, option("summary-only", "Summarize the finished seeds; submit nothing.")] = False,
    answer_key: Annotated[str, option("answer-key", "Field with the answer, for maj@k.")] = "extracted_answer",
    as_json: shared.JsonOutput = False,
) -> int:
    """Collect with one job per seed (NeMo Skills' options).

    Jobs start their own policy server or share a running one. Further arguments (+agent_name=A, ++key=value) are
    overrides, as for ng_collect_rollouts. Finished seeds are skipped, interrupted ones continue. When all have ended,
    prints pass@1, maj@k and pass@k across seeds.
    """
    if summary_only:
        return summarize(Path(output_dir), answer_key, as_json=as_json)
    from gymnast.compat.nemo_skills.options import Arguments, split_ignored_options
    from gymnast.compat.nemo_skills.pipeline import nemo_gym_rollouts
    from gymnast.sidecars.policy_server import split_arguments

    options = {name: value for name, value in ctx.params.items() if name not in _NOT_PASSED_ON}
    options["before"] = [split_arguments(text) for text in before or ()]
    words, ignored = split_ignored_options(ctx.args)
    arguments = Arguments(_overrides(words, ctx.params))
    submitted = nemo_gym_rollouts(arguments, on_note=shared.say, **options, **ignored)
    if dry_run:
        print("\n".join(submitted.scripts), end="")
        return 0
    folder = submitted.jobs[0].output.parent if submitted.jobs else Path(output_dir)
    return _show(submitted, folder, answer_key, as_json=as_json)


_NOT_PASSED_ON = frozenset({"summary_only", "answer_key", "as_json", "before"})


def _overrides(words: list[str], options: Iterable[str]) -> list[str]:
    unknown = [word for word in words if word.startswith("-")]
    if unknown:
        from gymnast.errors import UserError, suggest

        known = [name.replace("_", "-") for name in options]
        raise UserError(f"unknown option {unknown[0]}", next=suggest(unknown[0].lstrip("-").split("=")[0], known))
    return words


def _show(submitted: PipelineResult, folder: Path, answer_key: str, *, as_json: bool) -> int:
    if submitted.executor == "slurm":
        for job in submitted.jobs:
            print(f"{'seed ' + str(job.seed) if job.seed is not None else 'run':<10} job {job.job}  {job.output}")
        if submitted.jobs:
            print(f"across seeds, when all have ended: gymnast nemo-gym-rollouts --summary-only --output-dir {folder}")
        return 0
    if submitted.exit_code and not any(RunPaths(job.output).manifest.exists() for job in submitted.jobs):
        return submitted.exit_code  # nothing was collected, and the reason is already printed
    return summarize(folder, answer_key, as_json=as_json) or submitted.exit_code


def summarize(folder: Path, answer_key: str, *, as_json: bool) -> int:
    """Summarize the seeds in a folder: print the metrics, and write them there."""
    import msgspec

    from gymnast.compat.nemo_skills.seeds import find_seeds
    from gymnast.profile.seeds import combine_seeds, write_metrics

    metrics = combine_seeds(find_seeds(folder), answer_key=answer_key)
    path = write_metrics(metrics, folder)
    if as_json:
        sys.stdout.write(msgspec.json.encode(metrics).decode() + "\n")
        return 0
    for line in lines(metrics):
        print(line)
    print(f"metrics   {path}")
    return 0


def lines(metrics: CombinedSeeds) -> Iterator[str]:
    from gymnast.cli.profile import format_estimate

    for run in metrics.seeds:
        name = "run" if run.seed is None else f"seed {run.seed}"
        mean = "no reward yet" if run.mean_reward is None else f"mean reward {run.mean_reward:.4f}"
        state = "" if run.is_done else ", not finished"
        yield f"{name:<9} {run.scored}/{run.requested} rollouts, {mean}{state}  {run.output}"
    yield f"{metrics.tasks} tasks, {metrics.rollouts} rollouts, {metrics.missing} without a score (excluded, not zeros)"
    if not metrics.pass_at:
        return
    k = metrics.k
    yield f"  {f'pass@1[avg-of-{k}]':<18} {format_estimate(metrics.pass_at[0][1])}"
    if k > 1:
        yield f"  {f'maj@{k}':<18} {format_estimate(metrics.majority_at[-1][1])}  (over {metrics.voted_by})"
        yield f"  {f'pass@{k}':<18} {format_estimate(metrics.pass_at[-1][1])}"
