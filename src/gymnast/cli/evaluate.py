"""`gymnast eval`: runs benchmarks by name, or a file of tasks, and prints their figures."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, NamedTuple

import typer

from gymnast.cli import options as shared
from gymnast.cli.collect import (
    AddSeed,
    Agent,
    Concurrency,
    Extend,
    Force,
    Fork,
    GiveUpAfter,
    Limit,
    MaxAttempts,
    MaxCost,
    MaxFailed,
    MaxOutputTokens,
    MaxTokens,
    MetricsPort,
    Overwrite,
    Resume,
    RetryFailed,
    RolloutTimeout,
    SkipBadRows,
    Temperature,
    TopP,
    Truncated,
    Workers,
    on_change,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rich.table import Table

    from gymnast.benchmarks.definition import Benchmark
    from gymnast.benchmarks.evaluation import DataOrigin, Evaluation, Plan
    from gymnast.benchmarks.scores import BenchmarkScores, Metric, ScoreTable
    from gymnast.cli.matrix import Cell
    from gymnast.config import Config
    from gymnast.config.roots import Roots
    from gymnast.profile.intervals import Estimate
    from gymnast.rollouts.options import RunOptions
    from gymnast.types.events import RunFinished

Names = Annotated[
    list[str] | None,
    typer.Argument(
        help="Benchmarks by name, benchmark files (.yaml), or files of tasks (.jsonl, .json, .csv, .parquet).",
        show_default=False,
        metavar="NAME_OR_TASKS",
    ),
]
Override = Annotated[list[str] | None, typer.Option("--override", help="Hydra-style override. Repeatable.")]
OutputDir = Annotated[Path, typer.Option("--output-dir", "-o", help="Folder for the files: NAME/rollouts.jsonl in it.")]
Repeats = Annotated[
    int | None, typer.Option("--num-repeats", "-n", min=1, help="Rollouts per task. [default: the protocol's]")
]
LocalCopy = Annotated[
    Path | None, typer.Option("--from", help="Local copy of the dataset, a mirror of several, or the data file.")
]
Revision = Annotated[
    str | None,
    typer.Option("--revision", help="Commit, tag or branch of the dataset on the Hub. [default: the benchmark's]"),
]
Ks = Annotated[
    list[int] | None,
    typer.Option("-k", "--k", min=1, help="k of maj@k and pass@k. Repeatable. [default: powers of 2 up to -n]"),
]
AnswerKey = Annotated[
    str | None,
    typer.Option("--answer-key", help="Field with the extracted answer. [default: the benchmark's]"),
]
SubsetKey = Annotated[
    str | None, typer.Option("--subset-key", help="Field of a task that names its subset. [default: the benchmark's]")
]
PassHat = Annotated[
    bool, typer.Option("--pass-hat", help="Add pass^k, the probability that all of k rollouts succeed.")
]
Baseline = Annotated[Path | None, typer.Option("--baseline", help="Output file of an earlier run to compare with.")]
List = Annotated[bool, typer.Option("--list", help="List the benchmarks.")]
Show = Annotated[bool, typer.Option("--show", help="Show what the benchmarks are, without running them.")]


_CONFIG_OPTIONS: Final = ("overrides", *shared.CONFIG_OPTIONS, "agent")
_DATA_OPTIONS: Final = ("local_copy", "revision", "limit", "resume", "overwrite")
_RUN_OPTIONS: Final = (*shared.RUN_OPTIONS, "max_cost", "max_tokens", "workers")


class _Sampling(NamedTuple):
    """Sampling options of the command line; None uses the protocol's."""

    temperature: float | None
    top_p: float | None
    max_output_tokens: int | None


def command(
    names: Names = None,
    *,
    config_files: shared.ConfigFiles = None,
    environments: shared.Environments = None,
    overrides: Override = None,
    model_type: shared.ModelType = None,
    model: shared.ModelName = None,
    model_url: shared.ModelUrl = None,
    model_key_name: shared.ModelKeyName = None,
    output_dir: OutputDir = Path("eval"),
    num_repeats: Repeats = None,
    limit: Limit = None,
    temperature: Temperature = None,
    top_p: TopP = None,
    max_output_tokens: MaxOutputTokens = None,
    prompt_config: shared.PromptConfig = None,
    prompt: shared.Prompt = None,
    map: shared.Map = None,  # noqa: A002 - as the option is called
    add_seed: AddSeed = False,
    skip_bad_rows: SkipBadRows = False,
    agent: Agent = None,
    ks: Ks = None,
    answer_key: AnswerKey = None,
    subset_key: SubsetKey = None,
    pass_hat: PassHat = False,
    baseline: Baseline = None,
    local_copy: LocalCopy = None,
    revision: Revision = None,
    concurrency: Concurrency = None,
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
    no_aggregate: shared.NoAggregate = False,
    no_preflight: shared.NoPreflight = False,
    metrics_port: MetricsPort = None,
    track: shared.Track = None,
    trace: shared.Trace = None,
    trace_sample: shared.TraceSample = 0.01,
    list_: List = False,
    show: Show = False,
    search_dirs: shared.SearchDirs = None,
    unsafe_no_sandbox: shared.UnsafeNoSandbox = False,
    as_json: shared.JsonOutput = False,
) -> int:
    """Run benchmarks and print pass@1, maj@k and pass@k.

    Intervals are 95% confidence intervals over tasks. Samples, temperature and other settings are those of the
    benchmark's published protocol unless you set them. Data comes from the Hugging Face Hub (HF_ENDPOINT, HF_TOKEN) or
    from --from. Rollouts without a score are reported and never count as 0. Ctrl-C finishes the rollouts in flight;
    --resume finishes the rest.
    """
    given = dict(locals())
    from gymnast.benchmarks.evaluation import resolve, unique_names
    from gymnast.cli.matrix import CellResult, make_cells, make_result, run_matrix
    from gymnast.config import read_environ
    from gymnast.config.roots import Roots
    from gymnast.rollouts.exit_status import parse_allowance
    from gymnast.rollouts.options import check_truncated_policy

    roots = Roots((*(search_dirs or ()), *read_environ().extra_roots), Path.cwd())
    if list_:
        return _list(roots, as_json=as_json)
    if not names:
        raise typer.BadParameter("name a benchmark or a file of tasks; --list shows the benchmarks")
    plans = unique_names([resolve(name, roots) for name in names])
    _check_revision(revision, plans)
    if show:
        return _show([plan.benchmark for plan in plans if plan.benchmark is not None], as_json=as_json)
    check_truncated_policy(truncated)
    parse_allowance(max_failed)
    _check_baseline(baseline, plans)
    if prompt is not None or prompt_config is not None:
        plans = [_without_prompt(plan) for plan in plans]
    cells = make_cells(agent, model)

    def run_cell(cell: Cell) -> tuple[int, list[CellResult]]:
        own = {"agent": cell.agent, "model": cell.model, "output_dir": output_dir / cell.folder}
        code, results = _run_plans(plans, {**given, **own}, is_quiet=True)
        return code, [
            make_result(cell, finished, code, benchmark=evaluation.benchmark, metrics=_values(evaluation))
            for evaluation, finished in results
        ]

    if len(cells) > 1:
        _check_agents(plans, given, cells)
        return run_matrix(cells, output_dir, run_cell, as_json=as_json)
    worst, results = _run_plans(plans, given, is_quiet=as_json)
    if as_json:
        import msgspec

        print(msgspec.json.format(msgspec.json.encode([evaluation for evaluation, _ in results])).decode())
    return worst


def _check_agents(plans: Sequence[Plan], given: dict[str, Any], cells: Sequence[Cell]) -> None:
    """A misspelt agent of a matrix is an error before anything is spent."""
    from gymnast.errors import UserError

    for cell in cells:
        own = {name: given[name] for name in _CONFIG_OPTIONS} | {"agent": cell.agent, "model": cell.model}
        for plan in plans:
            try:
                _load(plan, **own)
            except UserError as error:
                if error.where == "--agent":
                    raise


def _run_plans(
    plans: Sequence[Plan], given: dict[str, Any], *, is_quiet: bool
) -> tuple[int, list[tuple[Evaluation, RunFinished]]]:
    """Run each plan with the parameters of `command`. Returns the worst exit code and the results."""
    from gymnast.benchmarks.evaluation import evaluate
    from gymnast.cli.live_run import LiveRun
    from gymnast.rollouts.exit_status import parse_allowance
    from gymnast.rollouts.options import check_truncated_policy
    from gymnast.tracking.telemetry import open_telemetry

    sampling = _Sampling(given["temperature"], given["top_p"], given["max_output_tokens"])
    worst, results = 0, list[tuple["Evaluation", "RunFinished"]]()
    changes = on_change(resume=given["resume"], fork=given["fork"], extend=given["extend"], force=given["force"])
    for plan in plans:
        config = _load(plan, **{name: given[name] for name in _CONFIG_OPTIONS})
        tasks, data = _prepare(plan, given["output_dir"], config, **{name: given[name] for name in _DATA_OPTIONS})
        options = _run_options(
            plan,
            config,
            tasks,
            given["output_dir"],
            sampling,
            data,
            truncated=check_truncated_policy(given["truncated"]),
            on_change=changes,
            aggregate=not given["no_aggregate"],
            preflight=not given["no_preflight"],
            **{name: given[name] for name in _RUN_OPTIONS},
        )
        with open_telemetry(given["track"], given["trace"], given["trace_sample"], shared.say) as telemetry:
            live = LiveRun(metrics_port=given["metrics_port"], telemetry=telemetry)
            finished = live.collect(options, config)
            code = live.report_missing(finished, parse_allowance(given["max_failed"]))
        evaluation = evaluate(
            plan,
            Path(finished.output),
            data,
            given["baseline"],
            **{name: given[name] for name in ("ks", "answer_key", "subset_key", "pass_hat")},
        )
        results.append((evaluation, finished))
        _warn_of_other_data(evaluation)
        if not is_quiet:
            _print(evaluation)
        is_unmatched = evaluation.baseline is not None and evaluation.comparison is None
        worst = max(worst, code, int(not evaluation.scores.scored or is_unmatched))
        if code not in (0, 1):
            break  # interrupted, or out of budget
    return worst, results


def _values(evaluation: Evaluation) -> dict[str, float]:
    """The figures over all tasks, by name."""
    whole = next((table for table in evaluation.scores.tables if table.subset is None), None)
    return {metric.name: metric.estimate.value for metric in whole.metrics if metric.estimate.n} if whole else {}


# --- listing ---------------------------------------------------------------------------------------------------------


def _list(roots: Roots, *, as_json: bool) -> int:
    from gymnast.benchmarks.catalog import list_benchmarks

    listed = list_benchmarks(roots)
    if as_json:
        shared.print_json(
            [
                {
                    "name": entry.name,
                    "path": str(entry.path),
                    "description": entry.benchmark.definition.description if entry.benchmark else None,
                    "problem": entry.problem,
                }
                for entry in listed
            ]
        )
        return 0
    for entry in listed:
        description = entry.benchmark.definition.description if entry.benchmark else "cannot be used"
        print(f"{entry.name:<20} {description}")
        if entry.problem:
            shared.say(f"{entry.name}: {entry.problem}")
    return 0


def _show(benchmarks: Sequence[Benchmark], *, as_json: bool) -> int:
    contents = [
        {"name": benchmark.name, "path": str(benchmark.path)}
        | benchmark.definition.model_dump(mode="json", exclude_none=True, by_alias=True)
        for benchmark in benchmarks
    ]
    if as_json:
        shared.print_json(contents)
        return 0
    import yaml

    for content in contents:
        print(yaml.safe_dump(content, sort_keys=False, allow_unicode=True, width=110).rstrip())
    return 0


# --- running ---------------------------------------------------------------------------------------------------------


def _check_baseline(baseline: Path | None, plans: Sequence[Plan]) -> None:
    """A mistyped baseline is an error before anything is spent."""
    if baseline is None:
        return
    from gymnast.errors import NotFoundError
    from gymnast.store.paths import RunPaths

    if len(plans) > 1:
        raise typer.BadParameter("a baseline is one run, so it needs one benchmark", param_hint="--baseline")
    if not baseline.exists():
        raise NotFoundError("the baseline does not exist", where=str(baseline), next="name the rollouts.jsonl of a run")
    if not RunPaths(baseline).materialized_inputs.is_file():
        raise NotFoundError("the baseline is not a run", where=str(baseline), next="name its rollouts.jsonl")


def _check_revision(revision: str | None, plans: Sequence[Plan]) -> None:
    if revision is not None and not revision.strip():
        raise typer.BadParameter("name a commit, tag or branch", param_hint="--revision")
    if revision is not None and len(plans) > 1:
        raise typer.BadParameter("a revision belongs to one dataset: name one benchmark", param_hint="--revision")


def _without_prompt(plan: Plan) -> Plan:
    """The plan with the prompt left to the command line."""
    from dataclasses import replace

    if plan.benchmark is None or plan.benchmark.definition.prompt is None:
        return plan
    shared.say(f"note: {plan.name}: your prompt replaces the benchmark's")
    definition = plan.benchmark.definition.model_copy(update={"prompt": None})
    return replace(plan, benchmark=plan.benchmark.model_copy(update={"definition": definition}))


def _load(plan: Plan, *, overrides: list[str] | None, **names: Any) -> Config:
    """The configuration of a benchmark: its own files and overrides, then those of the command line."""
    definition = plan.benchmark.definition if plan.benchmark is not None else None
    if definition is not None:
        environments = names["environments"] or ([definition.environment] if definition.environment else [])
        names |= {"environments": environments, "config_files": [*definition.config, *(names["config_files"] or [])]}
    own = definition.overrides if definition is not None else []
    return shared.load([*own, *(overrides or [])], **names).require_valid()


def _prepare(
    plan: Plan, output_dir: Path, config: Config, *, limit: int | None, **options: Any
) -> tuple[Path, DataOrigin | None]:
    from gymnast.benchmarks.data_history import DataHistory
    from gymnast.benchmarks.evaluation import prepare_tasks
    from gymnast.config import read_environ
    from gymnast.data.hub import Hub

    if limit is not None:
        shared.say(f"note: {plan.name}: only the first {f'{limit} tasks' if limit > 1 else 'task'}")
    hub = Hub(token=config.values.get("hf_token") or None)
    history = DataHistory(read_environ().state_dir)
    tasks, data = prepare_tasks(
        plan, output_dir / plan.name, hub, limit=limit, history=history, say=shared.say, **options
    )
    if data is not None:
        shared.say(f"note: {plan.name}: data of {data.describe()}")
    return tasks, data


def _run_options(
    plan: Plan,
    config: Config,
    tasks: Path,
    output_dir: Path,
    sampling: _Sampling,
    data: DataOrigin | None,
    *,
    num_repeats: int | None,
    **more: Any,
) -> RunOptions:
    from dataclasses import replace

    import msgspec

    from gymnast.rollouts.options import run_options

    protocol = plan.protocol
    chosen = {
        name: value if value is not None else getattr(protocol, name) for name, value in sampling._asdict().items()
    }
    repeats = num_repeats or protocol.num_repeats
    for note in plan.departures({"num_repeats": repeats, **chosen}):
        shared.say(note)
    output = output_dir / plan.name / "rollouts.jsonl"
    options = run_options(config, source=tasks, output=output, num_repeats=repeats, **chosen, **more)
    return replace(options, source_origin=msgspec.to_builtins(data) if data is not None else None)


# --- printing --------------------------------------------------------------------------------------------------------


def _print(evaluation: Evaluation) -> None:
    from gymnast.cli.compare import lines
    from gymnast.cli.progress import print_table

    baseline = evaluation.baseline_scores
    earlier = {table.subset: table for table in baseline.tables} if baseline is not None else {}
    for table in evaluation.scores.tables:
        print_table(_table(evaluation.benchmark, table, earlier.get(table.subset), has_baseline=baseline is not None))
    for line in _remarks(evaluation.scores):
        print(line)
    if evaluation.comparison is not None:
        if evaluation.comparison.only_a or evaluation.comparison.only_b:
            print("note      each column is of all tasks of its run; the comparison below is of the tasks in both")
        for line in lines(evaluation.comparison, str(evaluation.baseline), evaluation.output):
            print(line)
    elif evaluation.baseline is not None:
        shared.say(f"{evaluation.baseline} has no task in common with this run, so they are not compared")
    if evaluation.data is not None:
        print(f"data      {evaluation.data.describe()}")
    print(f"rollouts  {evaluation.output}")
    print(f"figures   {evaluation.figures}")


def _warn_of_other_data(evaluation: Evaluation) -> None:
    if evaluation.data_difference is not None:
        shared.say(f"warning: {evaluation.data_difference}")


def _remarks(scores: BenchmarkScores) -> Iterator[str]:
    """What is not in the tables: rollouts without a score, and notes."""
    without = sum(scores.failed.values()) + scores.missing
    if without:
        kinds = [f"{count} × {kind}" for kind, count in scores.failed.items()]
        kinds += [f"{scores.missing} not run"] if scores.missing else []
        yield f"{without} of {scores.requested} rollouts have no score ({', '.join(kinds)}) and are left out above;"
        yield f"counted as 0 they would make the mean reward {scores.with_failures_as_zero.value:.4f}"
    if scores.excluded:
        yield f"{scores.excluded} records are left out: masked by their agent, or without a reward"
    for note in scores.notes:
        yield f"note      {note}"


def _table(benchmark: str, table: ScoreTable, earlier: ScoreTable | None, *, has_baseline: bool) -> Table:
    from rich.markup import escape
    from rich.table import Table
    from rich.text import Text

    values = {_kind(metric): metric.estimate for metric in earlier.metrics} if earlier is not None else {}
    title = benchmark if table.subset is None else f"{benchmark}: {table.subset}"
    grid = Table(title=Text(title), title_justify="left")
    grid.add_column("metric")
    for heading in ("value", "95% interval", "tasks", *(["baseline"] if has_baseline else [])):
        grid.add_column(heading, justify="right")
    for metric in table.metrics:
        cells = [escape(metric.name), _value(metric.estimate), _interval(metric.estimate), str(metric.estimate.n)]
        if has_baseline:
            cells.append(_value(values[_kind(metric)]) if _kind(metric) in values else "–")
        grid.add_row(*cells)
    if table.no_answer is not None:
        grid.add_row("no answer", f"{table.no_answer:.4f}", "", "")
    return grid


def _kind(metric: Metric) -> tuple[str, int]:
    """What makes two metrics comparable: pass@1 is, whatever number of rollouts it is averaged over."""
    return metric.name.partition("@")[0], metric.k


def _value(estimate: Estimate) -> str:
    return f"{estimate.value:.4f}" if estimate.n else "–"


def _interval(estimate: Estimate) -> str:
    if estimate.n == 0:
        return "–"
    return "one task" if estimate.method == "none" else f"{estimate.low:.4f} – {estimate.high:.4f}"
