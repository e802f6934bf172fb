"""`gymnast collect`: rollouts of a dataset, with everything they need living in this process."""

from __future__ import annotations

import sys
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from gymnast.cli import options as shared
from gymnast.store.paths import RunPaths

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from gymnast.cli.interrupt import Interrupts
    from gymnast.cli.terminal import Progress
    from gymnast.config import Config
    from gymnast.rollouts.engine import Engine
    from gymnast.rollouts.observer import RunObserver
    from gymnast.rollouts.options import RunOptions
    from gymnast.rollouts.snapshot import Snapshot
    from gymnast.rollouts.verdict import Allowance
    from gymnast.types.events import Event, RunFinished

Ended = TypeVar("Ended")

Input = Annotated[str | None, typer.Option("--input", "-i", help="JSONL file of tasks.")]
Split = Annotated[
    str | None,
    typer.Option("--split", help="Instead of --input: the configured datasets of this type (train, benchmark, …)."),
]
Output = Annotated[Path, typer.Option("--output", "-o", help="JSONL file for the scored rollouts.")]
Agent = Annotated[
    str | None, typer.Option("--agent", "-a", help="Agent for rows that name none; needless if there is only one.")
]
Repeats = Annotated[int, typer.Option("--num-repeats", "-n", min=1, help="Rollouts of each task.")]
Concurrency = Annotated[
    int | None,
    typer.Option(
        "--concurrency",
        min=1,
        help="Rollouts in flight at most (num_samples_in_parallel). Without it the level is found by itself.",
    ),
]
Limit = Annotated[int | None, typer.Option("--limit", min=1, help="Read at most this many input lines.")]
Temperature = Annotated[float | None, typer.Option("--temperature", help="Laid over each row's create params.")]
TopP = Annotated[float | None, typer.Option("--top-p", help="Laid over each row's create params.")]
MaxOutputTokens = Annotated[int | None, typer.Option("--max-output-tokens", help="Laid over each row's create params.")]
PromptConfig = Annotated[
    str | None, typer.Option("--prompt-config", help="YAML with `user` and `system` templates filled from each row.")
]
AddSeed = Annotated[bool, typer.Option("--add-seed", help="Give each repeat its index as sampling seed.")]
SkipBadRows = Annotated[
    bool, typer.Option("--skip-bad-rows", help="Run the good rows; record the bad ones as failures.")
]
RolloutTimeout = Annotated[float, typer.Option("--rollout-timeout", help="Seconds a rollout may take.")]
MaxAttempts = Annotated[int, typer.Option("--max-attempts", min=1, help="Attempts at a rollout, the first included.")]
MaxFailed = Annotated[
    str, typer.Option("--max-failed", help="Failed rollouts (5) or share (1%) that still count as success.")
]
GiveUpAfter = Annotated[
    float, typer.Option("--give-up-after", help="Seconds something may be out of reach before it is given up.")
]
MaxCost = Annotated[
    float | None,
    typer.Option(
        "--max-cost",
        help="Start nothing more once all attempts cost this much (needs `prices`); what is in flight comes on top.",
    ),
]
MaxTokens = Annotated[
    int | None,
    typer.Option(
        "--max-tokens",
        min=1,
        help="Start nothing more once all attempts used this many tokens, in and out; what is in flight comes on top.",
    ),
]
Workers = Annotated[int, typer.Option("--workers", min=0, help="Worker processes; 0 runs everything in this one.")]
Resume = Annotated[bool, typer.Option("--resume", help="Finish what an earlier run of this command left owed.")]
Fork = Annotated[bool, typer.Option("--fork", help="With --resume: if something changed, run that beside the old run.")]
Extend = Annotated[bool, typer.Option("--extend", help="With --resume: add repeats or rows to the run.")]
Force = Annotated[bool, typer.Option("--force", help="With --resume: go on although something changed.")]
RetryFailed = Annotated[bool, typer.Option("--retry-failed", help="With --resume: try again what failed for good.")]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace an earlier run under the same name.")]
NoServe = Annotated[
    bool, typer.Option("--no-serve", help="Start nothing: use the agents of a running `gymnast serve`.")
]
NoAggregate = Annotated[bool, typer.Option("--disable-aggregation", help="Do not write x_aggregate_metrics.json.")]
MetricsPort = Annotated[
    int | None, typer.Option("--metrics-port", min=0, help="Serve OpenMetrics on this local port (0 takes a free one).")
]


def command(
    overrides: shared.Overrides = None,
    *,
    output: Output,
    source: Input = None,
    split: Split = None,
    config_files: shared.ConfigFiles = None,
    environments: shared.Environments = None,
    model_type: shared.ModelType = None,
    model: shared.ModelName = None,
    model_url: shared.ModelUrl = None,
    agent: Agent = None,
    num_repeats: Repeats = 1,
    concurrency: Concurrency = None,
    limit: Limit = None,
    temperature: Temperature = None,
    top_p: TopP = None,
    max_output_tokens: MaxOutputTokens = None,
    prompt_config: PromptConfig = None,
    add_seed: AddSeed = False,
    skip_bad_rows: SkipBadRows = False,
    rollout_timeout_s: RolloutTimeout = 7200.0,
    max_attempts: MaxAttempts = 3,
    max_failed: MaxFailed = "0",
    give_up_after_s: GiveUpAfter = 600.0,
    max_cost: MaxCost = None,
    max_tokens: MaxTokens = None,
    workers: Workers = 0,
    resume: Resume = False,
    fork: Fork = False,
    extend: Extend = False,
    force: Force = False,
    retry_failed: RetryFailed = False,
    overwrite: Overwrite = False,
    via_serve: NoServe = False,
    head: shared.Head = None,
    no_aggregate: NoAggregate = False,
    metrics_port: MetricsPort = None,
    search_dirs: shared.SearchDirs = None,
    unsafe_no_sandbox: shared.UnsafeNoSandbox = False,
    as_json: shared.JsonOutput = False,
) -> int:
    """Collect rollouts: tasks in, scored rollouts and failures out.

    Nothing has to be running except the policy endpoint. Deadlines (seconds): seed 120, model call 1800, tool 300,
    verify 600 (settings of the agent), whole rollout 7200. A failed attempt is tried again where that can help, at most
    three times in all. Ctrl-C finishes what is in flight; a second one stops at once; --resume finishes the rest. A
    run that its budget ends (--max-cost, --max-tokens) exits with 4; --resume with a larger budget goes on.
    """
    from gymnast.rollouts.options import run_options
    from gymnast.rollouts.verdict import parse_allowance

    through_serve = via_serve or head is not None
    config = shared.load(
        overrides,
        config_files=config_files,
        environments=environments,
        model_type=model_type,
        model=model,
        model_url=model_url,
        search_dirs=search_dirs,
        stub_policy=through_serve,
        unsafe_no_sandbox=unsafe_no_sandbox,
    ).checked()
    options = run_options(
        config,
        output=output,
        source=source,
        split=split,
        agent=agent,
        num_repeats=num_repeats,
        concurrency=concurrency,
        limit=limit,
        temperature=temperature,
        top_p=top_p,
        max_output_tokens=max_output_tokens,
        prompt_config=prompt_config,
        add_seed=add_seed,
        skip_bad_rows=skip_bad_rows,
        rollout_timeout_s=rollout_timeout_s,
        max_attempts=max_attempts,
        give_up_after_s=give_up_after_s,
        max_cost=max_cost,
        max_tokens=max_tokens,
        workers=workers,
        resume=resume,
        on_change=_on_change(resume=resume, fork=fork, extend=extend, force=force),
        retry_failed=retry_failed,
        overwrite=overwrite,
        aggregate=not no_aggregate,
    )
    allowance = parse_allowance(max_failed)
    return collect(
        options, config, allowance, through_serve=through_serve, head=head, as_json=as_json, metrics_port=metrics_port
    )


def collect(
    options: RunOptions,
    config: Config,
    allowance: Allowance,
    *,
    through_serve: bool = False,
    head: str | None = None,
    as_json: bool = False,
    metrics_port: int | None = None,
) -> int:
    """Collect, show progress, print the result. Returns the exit code."""
    from gymnast.config import read_environ
    from gymnast.rollouts.run import collect_run, collect_through_serve
    from gymnast.runtime.heads import find_head

    environ = read_environ()

    def work(observer: RunObserver) -> Coroutine[Any, Any, RunFinished]:
        if through_serve:
            return collect_through_serve(options, *find_head(head, config, environ), observer)
        return collect_run(options, config, environ, observer)

    return run_and_report(work, allowance, as_json=as_json, metrics_port=metrics_port)


def run_and_report(
    work: Callable[[RunObserver], Coroutine[Any, Any, RunFinished]],
    allowance: Allowance,
    *,
    as_json: bool,
    metrics_port: int | None = None,
) -> int:
    """Run an engine with the live view and signal handling, print how it ended. Returns the exit code."""
    from gymnast.cli.interrupt import Interrupts
    from gymnast.cli.main import INTERRUPTED
    from gymnast.rollouts.verdict import exit_code

    interrupts = Interrupts()
    finished, progress = run_with_live_view(work, interrupts, as_json=as_json, metrics_port=metrics_port)
    if not as_json:
        show(finished, progress)
    return INTERRUPTED if interrupts.count and finished.owed else exit_code(finished, allowance)


def run_with_live_view(
    work: Callable[[RunObserver], Coroutine[Any, Any, Ended]],
    interrupts: Interrupts,
    *,
    as_json: bool,
    metrics_port: int | None = None,
) -> tuple[Ended, Progress]:
    """Run an engine with the live view and signal handling."""
    import asyncio

    from gymnast.cli.terminal import Progress
    from gymnast.rollouts.observer import RunObserver
    from gymnast.runtime.listener import loop_factory

    progress = Progress()
    listen = _json_listener(progress) if as_json else progress

    def watch(engine: Engine, look: Callable[[], Snapshot]) -> ExitStack:
        return _watching(engine, look, interrupts, metrics_port)

    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        ended = runner.run(work(RunObserver(listen, shared.say, watch)))
    interrupts.rest()
    return ended, progress


def show(finished: RunFinished, progress: Progress) -> None:
    """The summary table, where the files are, and what to do about failures."""
    from gymnast.cli.spending import spending
    from gymnast.cli.terminal import print_table, summary_table
    from gymnast.rollouts.verdict import explanation

    print_table(summary_table(progress.tally))
    paths = RunPaths(Path(finished.output))
    print(f"rollouts  {paths.output}  ({finished.scored} of {finished.requested}, {finished.state})")
    print(f"inputs    {paths.materialized_inputs}")
    if finished.attempts > finished.scored:
        print(f"failures  {paths.failures}")
    if finished.spent.calls:
        print(f"models    {spending(finished.spent)}")
    for line in explanation(finished):
        print(line, file=sys.stderr)
    if finished.longest_lag_s > 0.5:
        shared.say(
            f"note: the event loop was blocked for up to {finished.longest_lag_s:.1f} s; an environment computes in it "
            "(use --workers, or runs_in: child)"
        )


def _watching(engine: Engine, look: Callable[[], Snapshot], interrupts: Any, metrics_port: int | None) -> ExitStack:
    from gymnast.cli.live import live_view

    stack = ExitStack()
    stack.enter_context(interrupts.steering(engine))
    stack.enter_context(live_view(look))
    if metrics_port is not None:
        from gymnast.cli.metrics import metrics_endpoint

        stack.enter_context(metrics_endpoint(metrics_port, look))
    return stack


def _on_change(*, resume: bool, fork: bool, extend: bool, force: bool) -> Any:
    chosen = [name for name, given in (("fork", fork), ("extend", extend), ("force", force)) if given]
    if len(chosen) > 1:
        raise typer.BadParameter("--fork, --extend and --force exclude each other")
    if chosen and not resume:
        raise typer.BadParameter(f"--{chosen[0]} goes with --resume")
    return chosen[0] if chosen else "refuse"


def _json_listener(progress: Progress) -> Callable[[Event], None]:
    """Events as JSON lines on standard output; nothing else goes there."""
    import msgspec

    encoder = msgspec.json.Encoder()

    def listen(event: Event) -> None:
        progress(event)
        sys.stdout.write(encoder.encode(event).decode() + "\n")
        sys.stdout.flush()

    return listen
