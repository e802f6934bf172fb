"""`gymnast nemo-gym-rollouts`: a job for each seed, with the options of the pipeline of that name; then all as one.

Options may be written with hyphens or, as that pipeline does, with underscores.
"""

# ruff: noqa: ARG001 - options are handed on by name, from the context

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

    from gymnast.cluster.pipeline import Submitted
    from gymnast.profile.across_seeds import AcrossSeeds


def command(
    ctx: typer.Context,
    *,
    output_dir: Annotated[str, option("output-dir", "Folder for rollouts-rsSEED.jsonl and the rest.")],
    config_paths: Annotated[str, option("config-paths", "Config files, separated by commas.")] = "",
    input_file: Annotated[str, option("input-file", "JSONL file of tasks.")] = "",
    cluster: Annotated[
        str | None, option("cluster", "A cluster's name or file; without it, jobs run here, one after the other.")
    ] = None,
    expname: Annotated[str, option("expname", "Name of the jobs.")] = "nemo-gym-rollouts",
    model: Annotated[str | None, option("model", "The policy: a name or a folder.")] = None,
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
        str | None, option("policy-model-name", "What requests call the model. [default: --model]")
    ] = None,
    with_sandbox: server.WithSandbox = False,
    sandbox_container: server.SandboxContainer = "sandbox",
    sandbox_command: server.SandboxCommand = None,
    gym_path: Annotated[
        str | None, option("gym-path", "A folder to look up configs, servers and data in first.")
    ] = None,
    num_random_seeds: Annotated[int | None, option("num-random-seeds", "How many seeds, a job each.", min=1)] = None,
    random_seeds: Annotated[str | None, option("random-seeds", "Which seeds: 0,2,5 or 0..3.")] = None,
    starting_seed: Annotated[int, option("starting-seed", "The first seed.", min=0)] = 0,
    rerun_done: Annotated[bool, option("rerun-done", "Collect seeds again that are done.")] = False,
    run_after: Annotated[
        list[str] | None, option("run-after", "Jobs that must have ended well before: name or number. Repeatable.")
    ] = None,
    before: Annotated[
        list[str] | None, option("before", "A command of ours to run first, e.g. 'data download …'. Repeatable.")
    ] = None,
    partition: Annotated[str | None, option("partition", "Of the cluster.")] = None,
    account: Annotated[str | None, option("account", "Of the cluster.")] = None,
    qos: Annotated[str | None, option("qos", "Of the cluster.")] = None,
    time: Annotated[str | None, option("time", "How long a job may take: 04:00:00.")] = None,
    time_min: Annotated[str | None, option("time-min", "The least time worth a start.")] = None,
    exclusive: Annotated[bool, option("exclusive", "Whole nodes.")] = False,
    sbatch_kwargs: Annotated[str, option("sbatch-kwargs", "Further options of sbatch: a=1,b=2 or --a=1.")] = "",
    container: Annotated[str | None, option("container", "The cluster's container for collecting.")] = None,
    mount_paths: Annotated[str | None, option("mount-paths", "Further mounts: /a:/b,/c:/d.")] = None,
    config_dir: Annotated[str | None, option("config-dir", "Folder with the clusters' files.")] = None,
    log_dir: Annotated[str | None, option("log-dir", "Folder for scripts and logs. [default: OUTPUT_DIR/jobs]")] = None,
    installation_command: Annotated[
        str | None, option("installation-command", "A line of shell at the start of every job.")
    ] = None,
    serve_args: Annotated[str, option("serve-args", "Overrides for the environments' servers.")] = "",
    collect_args: Annotated[str, option("collect-args", "Overrides for the collection.")] = "",
    dry_run: Annotated[bool, option("dry-run", "Print what would be submitted.")] = False,
    summary_only: Annotated[
        bool, option("summary-only", "Submit nothing: put the seeds that are there together.")
    ] = False,
    answer_key: Annotated[str, option("answer-key", "Field with the answer, for maj@k.")] = "extracted_answer",
    as_json: shared.JsonOutput = False,
) -> int:
    """Collect rollouts, one job for each seed, each with its own policy server or all with one that is there already.

    Further arguments (+agent_name=A, ++key=value) are overrides, as for ng_collect_rollouts. Seeds that are done are
    skipped; one that was interrupted goes on where it was. When all have ended: pass@1, maj@k and pass@k across seeds.
    """
    if summary_only:
        return summarize(Path(output_dir), answer_key, as_json=as_json)
    from gymnast.cluster.components.servers import split_arguments
    from gymnast.cluster.pipeline import nemo_gym_rollouts
    from gymnast.cluster.pipeline_options import Arguments, take_without_effect

    given = {name: value for name, value in ctx.params.items() if name not in _OWN}
    given["before"] = [split_arguments(text) for text in before or ()]
    words, without_effect = take_without_effect(ctx.args)
    arguments = Arguments(_overrides(words, ctx.params))
    found = nemo_gym_rollouts(arguments, on_note=shared.say, **given, **without_effect)
    if dry_run:
        print("\n".join(found.scripts), end="")
        return 0
    folder = found.jobs[0].output.parent if found.jobs else Path(output_dir)
    return _show(found, folder, answer_key, as_json=as_json)


_OWN = frozenset({"summary_only", "answer_key", "as_json", "before"})


def _overrides(words: list[str], options: Iterable[str]) -> list[str]:
    unknown = [word for word in words if word.startswith("-")]
    if unknown:
        from gymnast.errors import UserError, suggest

        known = [name.replace("_", "-") for name in options]
        raise UserError(f"there is no option {unknown[0]}", next=suggest(unknown[0].lstrip("-").split("=")[0], known))
    return words


def _show(found: Submitted, folder: Path, answer_key: str, *, as_json: bool) -> int:
    if found.executor == "slurm":
        for job in found.jobs:
            print(f"{'seed ' + str(job.seed) if job.seed is not None else 'run':<10} job {job.job}  {job.output}")
        if found.jobs:
            print(f"across seeds, when all have ended: gymnast nemo-gym-rollouts --summary-only --output-dir {folder}")
        return 0
    if found.exit_code and not any(RunPaths(job.output).manifest.exists() for job in found.jobs):
        return found.exit_code  # nothing was collected, and why was said
    return summarize(folder, answer_key, as_json=as_json) or found.exit_code


def summarize(folder: Path, answer_key: str, *, as_json: bool) -> int:
    """Put the seeds in a folder together: print it, and write it beside them."""
    import msgspec

    from gymnast.cluster.seeds import seeds_there
    from gymnast.profile.across_seeds import across_seeds, write_metrics

    found = across_seeds(seeds_there(folder), answer_key=answer_key)
    path = write_metrics(found, folder)
    if as_json:
        sys.stdout.write(msgspec.json.encode(found).decode() + "\n")
        return 0
    for line in lines(found):
        print(line)
    print(f"metrics   {path}")
    return 0


def lines(found: AcrossSeeds) -> Iterator[str]:
    """All seeds for people."""
    from gymnast.cli.profile import shown

    for one in found.seeds:
        name = "run" if one.seed is None else f"seed {one.seed}"
        mean = "no reward yet" if one.mean_reward is None else f"mean reward {one.mean_reward:.4f}"
        state = "" if one.is_done else ", not finished"
        yield f"{name:<9} {one.scored}/{one.requested} rollouts, {mean}{state}  {one.output}"
    yield f"{found.tasks} tasks, {found.rollouts} rollouts, {found.missing} without a score (excluded, not zeros)"
    if not found.pass_at:
        return
    k = found.k
    yield f"  {f'pass@1[avg-of-{k}]':<18} {shown(found.pass_at[0][1])}"
    if k > 1:
        yield f"  {f'maj@{k}':<18} {shown(found.majority_at[-1][1])}  (over {found.voted_by})"
        yield f"  {f'pass@{k}':<18} {shown(found.pass_at[-1][1])}"
