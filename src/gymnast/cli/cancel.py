"""`gymnast cancel RUN`: end the workers of a run. What they had settled stays; the rest is owed."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated

import typer

from gymnast.cli import options as shared


def command(
    run: Annotated[Path, typer.Argument(help="The run: its output file.")],
    jobs: Annotated[
        list[str] | None, typer.Option("--job", help="Only this job (123) or worker (123_4). Repeatable.")
    ] = None,
    *,
    as_json: shared.JsonOutput = False,
) -> int:
    """Cancel the workers of a run and what waits for their end. `gymnast submit --resume` goes on later."""
    from gymnast.cluster.submitting import cancel_run
    from gymnast.rollouts.inspect_run import run_paths
    from gymnast.store.chunk_layout import ChunkLayout

    paths = run_paths(run)
    ended = cancel_run(ChunkLayout.of(paths), jobs or ())
    told = [view.job for _, views in ended for view in views]
    if as_json:
        shared.print_json({"run": str(paths.output), "cancelled": told})
    elif told:
        print(f"{len(told)} workers were told to end: {', '.join(told[:8])}{', …' if len(told) > 8 else ''}")
        print(f"next      gymnast status {shlex.quote(str(paths.output))}    (go on with gymnast submit --resume)")
    else:
        print("no worker waits or runs")
    return 0
