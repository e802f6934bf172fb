"""`gymnast collect`: rollouts of a dataset, with everything they need running in this process."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from gymnast.cli import options as shared

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from gymnast.cli.matrix import Cell, CellResult
    from gymnast.config import Config
    from gymnast.rollouts.exit_status import Allowance
    from gymnast.rollouts.options import RunOptions

Input = Annotated[str | None, typer.Option("--input", "-i", help="Tasks: JSONL, JSON, CSV, Parquet, or a folder.")]
Split = Annotated[
    str | None,
    typer.Option("--split", help="Use the configured datasets of this type (train, benchmark, …) instead of --input."),
]
Output = Annotated[Path | None, typer.Option("--output", "-o", help="JSONL file for the scored rollouts. Required.")]
Agent = Annotated[
    str | None,
    typer.Option(
        "--agent",
        "-a",
        help="Configured agent for rows that name none, or a recipe that replaces all agents (gymnast agents). "
        "With commas: a run for each.",
    ),
]
Repeats = Annotated[
    int | None,
    typer.Option("--num-repeats", "-n", min=1, max=1_000_000, help="Rollouts per task. [default: 1]"),
]
Concurrency = Annotated[
    int | None,
    typer.Option(
        "--concurrency",
        min=1,
        help="Maximum rollouts in flight (num_samples_in_parallel). [default: tuned automatically]",
    ),
]
Limit = Annotated[int | None, typer.Option("--limit", min=1, help="Read at most this many input lines.")]
Temperature = Annotated[float | None, typer.Option("--temperature", min=0, help="Overrides the value in each row.")]
TopP = Annotated[float | None, typer.Option("--top-p", min=0, max=1, help="Overrides the value in each row.")]
MaxOutputTokens = Annotated[
    int | None, typer.Option("--max-output-tokens", min=1, help="Overrides the value in each row.")
]
AddSeed = Annotated[bool, typer.Option("--add-seed", help="Use the index of each repeat as its sampling seed.")]
SkipBadRows = Annotated[
    bool, typer.Option("--skip-bad-rows", help="Run the valid rows; record the invalid ones as failures.")
]
RolloutTimeout = Annotated[float, typer.Option("--rollout-timeout", min=0.001, help="Seconds a rollout may take.")]
MaxAttempts = Annotated[int, typer.Option("--max-attempts", min=1, help="Attempts per rollout, including the first.")]
MaxFailed = Annotated[
    str, typer.Option("--max-failed", help="Failed rollouts, as a count (5) or share (1%), that still exit 0.")
]
GiveUpAfter = Annotated[
    float, typer.Option("--give-up-after", min=0, help="Seconds to wait for an unreachable server or endpoint.")
]
MaxCost = Annotated[
    float | None,
    typer.Option(
        "--max-cost",
        min=0,
        help="Start no more rollouts at this cost of all attempts (needs `prices`). Those in flight may exceed it.",
    ),
]
MaxTokens = Annotated[
    int | None,
    typer.Option(
        "--max-tokens",
        min=1,
        help="Start no more rollouts at this many tokens, in and out, of all attempts. Those in flight may exceed it.",
    ),
]
Truncated = Annotated[
    str,
    typer.Option(
        "--truncated",
        metavar="POLICY",
        help="What to do with rollouts cut off by a length or step limit: score, mask (for trainers) or fail.",
    ),
]
Workers = Annotated[
    int, typer.Option("--workers", min=0, max=4096, help="Worker processes; 0 runs everything in this one.")
]
Resume = Annotated[bool, typer.Option("--resume", help="Finish the rollouts that an earlier run still owes.")]
Fork = Annotated[bool, typer.Option("--fork", help="With --resume: if something changed, start a new run next to it.")]
Extend = Annotated[bool, typer.Option("--extend", help="With --resume: add repeats or rows to the run.")]
Force = Annotated[bool, typer.Option("--force", help="With --resume: continue even if something changed.")]
RetryFailed = Annotated[bool, typer.Option("--retry-failed", help="With --resume: retry permanently failed rollouts.")]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace an earlier run with the same output.")]
NoServe = Annotated[
    bool, typer.Option("--no-serve", help="Start no servers; use the agents of a running `gymnast serve`.")
]
MetricsPort = Annotated[
    int | None,
    typer.Option("--metrics-port", min=0, max=65535, help="Serve OpenMetrics on this local port; 0 picks a free one."),
]

_RUN_OPTIONS: Final = (*shared.SOURCE_OPTIONS, *shared.RUN_OPTIONS, "max_cost", "max_tokens", "workers")


def command(
    overrides: shared.Overrides = None,
    *,
    output: Output = None,
    source: Input = None,
    split: Split = None,
    config_files: shared.ConfigFiles = None,
    environments: shared.Environments = None,
    model_type: shared.ModelType = None,
    model: shared.ModelName = None,
    model_url: shared.ModelUrl = None,
    model_key_name: shared.ModelKeyName = None,
    agent: Agent = None,
    num_repeats: Repeats = None,
    concurrency: Concurrency = None,
    limit: Limit = None,
    temperature: Temperature = None,
    top_p: TopP = None,
    max_output_tokens: MaxOutputTokens = None,
    prompt_config: shared.PromptConfig = None,
    prompt: shared.Prompt = None,
    map: shared.Map = None,  # noqa: A002 - as the option is called
    add_seed: AddSeed = False,
    skip_bad_rows: SkipBadRows = False,
    rollout_timeout_s: RolloutTimeout = 7200.0,
    max_attempts: MaxAttempts = 3,
    max_failed: MaxFailed = "0",
    give_up_after_s: GiveUpAfter = 600.0,
    max_cost: MaxCost = None,
    max_tokens: MaxTokens = None,
    truncated: Truncated = "score",
    workers: Workers = 0,
    resume: Resume = False,
    fork: Fork = False,
    extend: Extend = False,
    force: Force = False,
    retry_failed: RetryFailed = False,
    overwrite: Overwrite = False,
    via_serve: NoServe = False,
    head: shared.Head = None,
    no_aggregate: shared.NoAggregate = False,
    no_preflight: shared.NoPreflight = False,
    metrics_port: MetricsPort = None,
    track: shared.Track = None,
    trace: shared.Trace = None,
    trace_sample: shared.TraceSample = 0.01,
    search_dirs: shared.SearchDirs = None,
    unsafe_no_sandbox: shared.UnsafeNoSandbox = False,
    as_json: shared.JsonOutput = False,
) -> int:
    """Collect scored rollouts for a dataset.

    Only the policy endpoint has to be running. Timeouts in seconds: seed 120, model call 1800, tool 300, verify 600
    (settings of the agent), whole rollout 7200. Failed attempts are retried where that can help, up to three attempts
    in all. Ctrl-C finishes the rollouts in flight; a second one stops immediately; --resume finishes the rest. A run
    that hits its budget (--max-cost, --max-tokens) exits with 4; --resume with a larger budget continues it.
    Several agents or models (--agent a,b --model x,y) make one run for each pair, in the folder OUTPUT without its
    suffix, and one table.
    """
    arguments = dict(locals())
    from gymnast.cli.live_run import LiveRun
    from gymnast.cli.matrix import make_cells
    from gymnast.rollouts.exit_status import parse_allowance
    from gymnast.tracking.telemetry import open_telemetry

    allowance = parse_allowance(max_failed)
    cells = make_cells(agent, model)
    if len(cells) > 1:
        if via_serve or head is not None:
            raise typer.BadParameter("several agents or models need servers of their own: leave out --no-serve, --head")
        return collect_matrix(cells, arguments, allowance)
    options, config = load_run(arguments)
    with open_telemetry(track, trace, trace_sample, shared.say) as telemetry:
        live = LiveRun(as_json=as_json, metrics_port=metrics_port, telemetry=telemetry)
        return live.report(live.collect(options, config), allowance)


def collect_matrix(cells: Sequence[Cell], arguments: Mapping[str, Any], allowance: Allowance) -> int:
    """Collect one run per cell and print their table. Returns the exit code."""
    from gymnast.cli.live_run import LiveRun
    from gymnast.cli.main import INTERRUPTED
    from gymnast.cli.matrix import ROLLOUTS, make_result, run_matrix
    from gymnast.errors import UserError
    from gymnast.tracking.telemetry import open_telemetry

    if arguments["output"] is None:
        raise UserError("a run needs an output file", next="pass --output FILE")
    folder = Path(arguments["output"]).with_suffix("")

    def load(cell: Cell) -> tuple[RunOptions, Config] | UserError:
        own = {"agent": cell.agent, "model": cell.model, "output": folder / cell.folder / ROLLOUTS}
        try:
            return load_run({**arguments, **own})
        except UserError as error:
            if error.where == "--agent":  # a misspelt name, before anything is spent
                raise
            return error

    loaded = {cell: load(cell) for cell in cells}

    def run_cell(cell: Cell) -> tuple[int, list[CellResult]]:
        run = loaded[cell]
        if isinstance(run, UserError):
            raise run
        with open_telemetry(arguments["track"], arguments["trace"], arguments["trace_sample"], shared.say) as telemetry:
            live = LiveRun(metrics_port=arguments["metrics_port"], telemetry=telemetry)
            finished = live.collect(*run)
        code = live.report_missing(finished, allowance)
        return INTERRUPTED if live.is_interrupted else code, [make_result(cell, finished, code)]

    return run_matrix(cells, folder, run_cell, as_json=arguments["as_json"])


def load_run(given: Mapping[str, Any]) -> tuple[RunOptions, Config]:
    """The run and the configuration that the parameters of `command` mean, by name."""
    from gymnast.config import read_environ
    from gymnast.config.known_keys import RUN_KEYS
    from gymnast.rollouts.options import check_truncated_policy, run_options
    from gymnast.runtime.find_head import find_head

    through_serve = given["via_serve"] or given["head"] is not None
    config = shared.load(
        given["overrides"],
        **{name: given[name] for name in shared.CONFIG_OPTIONS},
        stub_policy=through_serve,
        command_keys=RUN_KEYS,
        agent=None if through_serve else given["agent"],
    ).require_valid()
    options = run_options(
        config,
        **{name: given[name] for name in _RUN_OPTIONS},
        serve=find_head(given["head"], config, read_environ()) if through_serve else None,
        truncated=check_truncated_policy(given["truncated"]),
        on_change=on_change(resume=given["resume"], fork=given["fork"], extend=given["extend"], force=given["force"]),
        aggregate=not given["no_aggregate"],
        preflight=not given["no_preflight"],
    )
    return options, config


def on_change(*, resume: bool, fork: bool, extend: bool, force: bool) -> Any:
    """What a resume does if something changed, from the three flags."""
    chosen = [name for name, given in (("fork", fork), ("extend", extend), ("force", force)) if given]
    if len(chosen) > 1:
        raise typer.BadParameter("--fork, --extend and --force are mutually exclusive")
    if chosen and not resume:
        raise typer.BadParameter(f"--{chosen[0]} needs --resume")
    return chosen[0] if chosen else "refuse"
