"""`gymnast cancel RUN`: end the workers of a run. Settled rollouts stay; the others are owed."""

from __future__ import annotations

import shlex
from typing import Annotated

import typer

from gymnast.cli import options as shared


def command(
    run: shared.Run,
    jobs: Annotated[
        list[str] | None, typer.Option("--job", help="Only this job (123) or worker (123_4). Repeatable.")
    ] = None,
    *,
    as_json: shared.JsonOutput = False,
) -> int:
    """Cancel the workers of a run.

    Jobs that wait for them, such as the merge, are cancelled too. `gymnast submit --resume` continues the run later.
    """
    from gymnast.executors.worker_jobs import cancel_run
    from gymnast.store.chunk_layout import ChunkLayout
    from gymnast.store.paths import RunPaths

    paths = RunPaths(run)
    ended = cancel_run(ChunkLayout.of(paths), jobs or ())
    cancelled = [view.job for _, views in ended for view in views]
    if as_json:
        shared.print_json({"run": str(paths.output), "cancelled": cancelled})
    elif cancelled:
        print(f"cancelled {len(cancelled)} workers: {', '.join(cancelled[:8])}{', …' if len(cancelled) > 8 else ''}")
        print(f"next      gymnast status {shlex.quote(str(paths.output))}    (continue with gymnast submit --resume)")
    else:
        print("no worker is waiting or running")
    return 0
