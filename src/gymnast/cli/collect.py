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
    from gymnast.rollouts.budget import Budget
    from gymnast.rollouts.conduct import Audience
    from gymnast.rollouts.engine import Engine
    from gymnast.rollouts.run import CollectRequest
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
    from gymnast.rollouts.budget import Budget
    from gymnast.rollouts.verdict import parse_allowance

    remote = via_serve or head is not None
    config = shared.load(
        overrides,
        config_files=config_files,
        environments=environments,
        model_type=model_type,
        model=model,
        model_url=model_url,
        search_dirs=search_dirs,
        stub_policy=remote,
        unsafe_no_sandbox=unsafe_no_sandbox,
    ).checked()
    request = requested(
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
        budget=Budget(max_cost, max_tokens),
        workers=workers,
        resume=resume,
        on_change=_on_change(resume=resume, fork=fork, extend=extend, force=force),
        retry_failed=retry_failed,
        overwrite=overwrite,
        aggregate=not no_aggregate,
    )
    allowance = parse_allowance(max_failed)
    return run(request, config, allowance, remote=remote, head=head, as_json=as_json, metrics_port=metrics_port)


def requested(
    config: Config,
    *,
    output: Path,
    source: str | None,
    split: str | None,
    agent: str | None,
    num_repeats: int,
    concurrency: int | None,
    limit: int | None,
    temperature: float | None,
    top_p: float | None,
    max_output_tokens: int | None,
    prompt_config: str | None,
    add_seed: bool,
    skip_bad_rows: bool,
    rollout_timeout_s: float,
    max_attempts: int,
    give_up_after_s: float,
    resume: bool,
    overwrite: bool,
    on_change: Any = "refuse",
    retry_failed: bool = False,
    workers: int = 0,
    aggregate: bool = True,
    budget: Budget | None = None,
) -> CollectRequest:
    """What the options ask for."""
    from gymnast.rollouts.budget import Budget
    from gymnast.rollouts.engine import EngineOptions
    from gymnast.rollouts.plan import PlanOptions
    from gymnast.rollouts.prompt import read_template
    from gymnast.rollouts.retry import RetryPolicy
    from gymnast.rollouts.run import CollectRequest, only_agent

    template = config.roots.require(prompt_config, "the prompt template") if prompt_config else None
    return CollectRequest(
        source=_source(config, source, split, output, resume=resume),
        output=output,
        plan=PlanOptions(
            agent=agent or only_agent(config.agents),
            repeats=num_repeats,
            limit=limit,
            add_seed=add_seed,
            params=_params(config, temperature=temperature, top_p=top_p, max_output_tokens=max_output_tokens),
            template=read_template(template) if template else None,
            skip_bad_rows=skip_bad_rows,
        ),
        engine=EngineOptions(
            concurrency,
            rollout_timeout_s,
            RetryPolicy(max_attempts=max_attempts),
            give_up_after_s,
            budget=budget or Budget(),
        ),
        existing="resume" if resume else "overwrite" if overwrite else "refuse",
        on_change=on_change,
        retry_failed=retry_failed,
        workers=workers,
        aggregate=aggregate,
        request_debug=bool(config.values.get("global_aiohttp_client_request_debug")),
    )


def run(
    request: CollectRequest,
    config: Config,
    allowance: Allowance,
    *,
    remote: bool,
    head: str | None,
    as_json: bool,
    metrics_port: int | None = None,
) -> int:
    """Collect, show progress, print the result. Returns the exit code."""
    from gymnast.cli.status import find_head
    from gymnast.config import read_environ
    from gymnast.rollouts.run import collect_here, collect_remote

    async def collect(audience: Audience) -> RunFinished:
        if not remote:
            return await collect_here(request, config, read_environ(), audience)
        return await collect_remote(request, *find_head(head, config), audience)

    return conducted(collect, allowance, as_json=as_json, metrics_port=metrics_port)


def conducted(
    work: Callable[[Audience], Coroutine[Any, Any, RunFinished]],
    allowance: Allowance,
    *,
    as_json: bool,
    metrics_port: int | None = None,
) -> int:
    """Run something that the engine conducts, with the live view and signals. Returns the exit code."""
    from gymnast.cli.interrupt import Interrupts
    from gymnast.cli.main import INTERRUPTED
    from gymnast.rollouts.verdict import exit_code

    interrupts = Interrupts()
    finished, progress = attended(work, interrupts, as_json=as_json, metrics_port=metrics_port)
    if not as_json:
        show(finished, progress)
    return INTERRUPTED if interrupts.count and finished.owed else exit_code(finished, allowance)


def attended(
    work: Callable[[Audience], Coroutine[Any, Any, Ended]],
    interrupts: Interrupts,
    *,
    as_json: bool,
    metrics_port: int | None = None,
) -> tuple[Ended, Progress]:
    """Run something that an engine does, with the live view and signals."""
    import asyncio

    from gymnast.cli.terminal import Progress
    from gymnast.rollouts.conduct import Audience
    from gymnast.runtime.listener import loop_factory

    progress = Progress()
    listen = _json_listener(progress) if as_json else progress

    def watch(engine: Engine, look: Callable[[], Snapshot]) -> ExitStack:
        return _watching(engine, look, interrupts, metrics_port)

    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        ended = runner.run(work(Audience(listen, shared.say, watch)))
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


def _source(config: Config, source: str | None, split: str | None, output: Path, *, resume: bool) -> Path:
    if (source is None) == (split is None):
        raise typer.BadParameter("give either --input FILE or --split TYPE")
    if split is not None:
        from gymnast.rollouts.splits import write_split

        return write_split(config, split, RunPaths(output).split(split))
    assert source is not None
    return config.roots.find(source) or Path(source) if resume else config.roots.require(source, "the input file")


def _on_change(*, resume: bool, fork: bool, extend: bool, force: bool) -> Any:
    chosen = [name for name, given in (("fork", fork), ("extend", extend), ("force", force)) if given]
    if len(chosen) > 1:
        raise typer.BadParameter("--fork, --extend and --force exclude each other")
    if chosen and not resume:
        raise typer.BadParameter(f"--{chosen[0]} goes with --resume")
    return chosen[0] if chosen else "refuse"


def _params(config: Config, **given: Any) -> dict[str, Any]:
    configured = config.values.get("responses_create_params") or {}
    return {**configured, **{key: value for key, value in given.items() if value is not None}}


def _json_listener(progress: Progress) -> Callable[[Event], None]:
    """Events as JSON lines on standard output; nothing else goes there."""
    import msgspec

    encoder = msgspec.json.Encoder()

    def listen(event: Event) -> None:
        progress(event)
        sys.stdout.write(encoder.encode(event).decode() + "\n")
        sys.stdout.flush()

    return listen
