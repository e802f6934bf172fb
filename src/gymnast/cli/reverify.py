"""`gymnast reverify`: score stored rollouts again, without inference."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from gymnast.cli import options as shared

Rollouts = Annotated[Path, typer.Option("--rollouts", help="JSONL file of scored rollouts: the run to start from.")]
Inputs = Annotated[
    Path | None, typer.Option("--inputs", help="Its materialized inputs; the file beside the rollouts if not given.")
]
Output = Annotated[Path | None, typer.Option("--output", "-o", help="JSONL file for the new scores.")]
JudgeFailedOnly = Annotated[
    bool,
    typer.Option(
        "--judge-failed-only", help="Only rollouts whose judge had failed; the others are copied as they are."
    ),
]
Append = Annotated[
    bool, typer.Option("--append", help="With --judge-failed-only: add the new scores to the run itself.")
]
Concurrency = Annotated[int | None, typer.Option("--concurrency", min=1, help="Verifications in flight at most.")]
Limit = Annotated[int | None, typer.Option("--limit", min=1, help="Score at most this many rollouts again.")]
VerifyTimeout = Annotated[float, typer.Option("--verify-timeout", help="Seconds a verification may take.")]
MaxFailed = Annotated[
    str, typer.Option("--max-failed", help="Failed verifications (5) or share (1%) that still count as success.")
]
Force = Annotated[
    bool, typer.Option("--force", help="Also where an environment is not stateless; files are named unsafe_….")
]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace an earlier output of this command.")]
Resume = Annotated[bool, typer.Option("--resume", help="Finish what an earlier call left owed.")]
NoAggregate = Annotated[bool, typer.Option("--disable-aggregation", help="Do not write x_aggregate_metrics.json.")]


def command(
    overrides: shared.Overrides = None,
    *,
    rollouts: Rollouts,
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
    no_aggregate: NoAggregate = False,
    search_dirs: shared.SearchDirs = None,
    as_json: shared.JsonOutput = False,
) -> int:
    """Score stored rollouts again with the environments of a configuration. No policy is called.

    The run that is started from is never changed, unless --append adds what its judge could not score. What is started
    for this is stopped at the end.
    """
    from gymnast.cli.collect import run_and_report
    from gymnast.config import read_environ
    from gymnast.rollouts.engine import EngineOptions
    from gymnast.rollouts.options import RunOptions
    from gymnast.rollouts.reverify import reverify
    from gymnast.rollouts.reverify_plan import ReverifySource
    from gymnast.rollouts.verdict import parse_allowance
    from gymnast.store.paths import RunPaths

    if append and not judge_failed_only:
        raise typer.BadParameter("--append goes with --judge-failed-only")
    if append and (output is not None or limit is not None):
        raise typer.BadParameter("--append adds to the run itself: it takes no --output and no --limit")
    if not append and output is None:
        raise typer.BadParameter("give an --output")
    if resume and overwrite:
        raise typer.BadParameter("--resume and --overwrite exclude each other")
    config = shared.load(
        overrides,
        config_files=config_files,
        environments=environments,
        search_dirs=search_dirs,
        stub_policy=True,
    ).checked()
    source = ReverifySource(
        rollouts=rollouts,
        inputs=inputs or RunPaths(rollouts).materialized_inputs,
        judge_failed_only=judge_failed_only,
        limit=limit,
        force=force,
    )
    options = RunOptions(
        output=output or rollouts,
        engine=EngineOptions(concurrency, verify_timeout_s),
        existing="resume" if resume else "overwrite" if overwrite else "refuse",
        aggregate=not no_aggregate,
    )
    return run_and_report(
        lambda observer: reverify(source, options, config, read_environ(), observer),
        parse_allowance(max_failed),
        as_json=as_json,
    )
