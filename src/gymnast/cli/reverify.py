"""`gymnast reverify`: score stored rollouts again, without inference."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from gymnast.cli import options as shared

Run = Annotated[str | None, typer.Argument(metavar="RUN", help=shared.RUN_HELP, show_default=False)]
Rollouts = Annotated[str | None, typer.Option("--rollouts", hidden=True)]
Inputs = Annotated[
    Path | None, typer.Option("--inputs", help="Materialized inputs. [default: the file next to the rollouts]")
]
Output = Annotated[Path | None, typer.Option("--output", "-o", help="JSONL file for the new scores.")]
JudgeFailedOnly = Annotated[
    bool,
    typer.Option("--judge-failed-only", help="Score only rollouts whose judge failed; copy the others unchanged."),
]
Append = Annotated[
    bool, typer.Option("--append", help="With --judge-failed-only: add the new scores to the run itself.")
]
Concurrency = Annotated[int | None, typer.Option("--concurrency", min=1, help="Maximum verifications in flight.")]
Limit = Annotated[int | None, typer.Option("--limit", min=1, help="Score at most this many rollouts.")]
VerifyTimeout = Annotated[float, typer.Option("--verify-timeout", min=0.001, help="Seconds a verification may take.")]
MaxFailed = Annotated[
    str, typer.Option("--max-failed", help="Failed verifications, as a count (5) or share (1%), that still exit 0.")
]
Force = Annotated[
    bool, typer.Option("--force", help="Include environments that are not stateless; files are named unsafe_….")
]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace an earlier run with the same output.")]
Resume = Annotated[bool, typer.Option("--resume", help="Finish the rollouts that an earlier run still owes.")]


def command(
    run: Run = None,
    overrides: shared.Overrides = None,
    *,
    rollouts: Rollouts = None,
    inputs: Inputs = None,
    output: Output = None,
    config_files: shared.ConfigFiles = None,
    environments: shared.Environments = None,
    judge_failed_only: JudgeFailedOnly = False,
    append: Append = False,
    concurrency: Concurrency = None,
    limit: Limit = None,
    verify_timeout_s: VerifyTimeout = 600.0,
    max_failed: MaxFailed = "0",
    force: Force = False,
    overwrite: Overwrite = False,
    resume: Resume = False,
    no_aggregate: shared.NoAggregate = False,
    search_dirs: shared.SearchDirs = None,
    as_json: shared.JsonOutput = False,
) -> int:
    """Score stored rollouts again, without inference.

    Starts the configured environments, verifies the stored responses and stops the environments. The original run is
    never changed, unless --append adds the scores that its judge failed to give.
    """
    from gymnast.cli.live_run import LiveRun
    from gymnast.config import read_environ
    from gymnast.rollouts.engine import EngineOptions
    from gymnast.rollouts.exit_status import parse_allowance
    from gymnast.rollouts.options import RunOptions
    from gymnast.rollouts.reverify import reverify
    from gymnast.rollouts.reverify_plan import ReverifySource
    from gymnast.store.paths import RunPaths

    if append and not judge_failed_only:
        raise typer.BadParameter("--append needs --judge-failed-only")
    if append and (output is not None or limit is not None):
        raise typer.BadParameter("--append writes to the run itself and cannot be combined with --output or --limit")
    if not append and output is None:
        raise typer.BadParameter("missing --output")
    if resume and overwrite:
        raise typer.BadParameter("--resume and --overwrite are mutually exclusive")
    output_file, overrides = _split_arguments(run, overrides or [], rollouts)
    config = shared.load(
        overrides,
        config_files=config_files,
        environments=environments,
        search_dirs=search_dirs,
        stub_policy=True,
    ).require_valid()
    source = ReverifySource(
        rollouts=output_file,
        inputs=inputs or RunPaths(output_file).materialized_inputs,
        judge_failed_only=judge_failed_only,
        limit=limit,
        force=force,
    )
    options = RunOptions(
        output=output or output_file,
        engine=EngineOptions(concurrency, verify_timeout_s),
        existing="resume" if resume else "overwrite" if overwrite else "refuse",
        aggregate=not no_aggregate,
    )
    allowance, environ = parse_allowance(max_failed), read_environ()
    live = LiveRun(as_json=as_json)
    return live.report(live.run(lambda observer: reverify(source, options, config, environ, observer)), allowance)


def _split_arguments(run: str | None, overrides: list[str], rollouts: str | None) -> tuple[Path, list[str]]:
    """The run's output file, and the overrides. After the old option --rollouts, every argument is an override."""
    if rollouts is not None:
        shared.say("warning: --rollouts RUN is now just RUN")
        return shared.run_output(rollouts), [run, *overrides] if run is not None else overrides
    if run is None:
        raise typer.BadParameter("name the run to score again: gymnast reverify RUN")
    return shared.run_output(run), overrides
