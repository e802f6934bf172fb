"""`gymnast worker RUN`: take chunks of a planned run and finish them, together with any number of others."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gymnast.cli import options as shared

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from gymnast.cluster.order import WorkOrder
    from gymnast.cluster.work import Worked
    from gymnast.rollouts.observer import RunObserver


def command(
    run: Annotated[Path, typer.Argument(help="The run: its output file.")],
    overrides: shared.Overrides = None,
    *,
    model_url: shared.ModelUrl = None,
    concurrency: Annotated[
        int | None, typer.Option("--concurrency", min=1, help="Rollouts in flight at most, in this worker.")
    ] = None,
    processes: Annotated[
        int | None, typer.Option("--processes", min=0, help="Processes of this worker; 0 runs everything in one.")
    ] = None,
    grace_s: Annotated[
        float | None,
        typer.Option("--grace", help="Seconds that rollouts in flight may go on after SIGTERM or SIGUSR1."),
    ] = None,
    linger_s: Annotated[
        float | None, typer.Option("--linger", help="Seconds to wait for rows of others when there are no chunks left.")
    ] = None,
    worker: Annotated[str | None, typer.Option("--name", help="A name that no other worker has or had.")] = None,
    job: Annotated[str | None, typer.Option("--job", help="What the scheduler calls this worker's job.")] = None,
    as_json: shared.JsonOutput = False,
) -> int:
    """Work on chunks of a run that was planned with `gymnast submit`, until there are none left.

    SIGTERM, SIGUSR1 or Ctrl-C drain: nothing more is begun, rollouts in flight may finish within the grace, and what is
    left is handed back. Exit codes: 0 nothing left for this worker, 75 drained with work left, 1 given up.
    """
    import signal

    from gymnast.cli.collect import run_with_live_view
    from gymnast.cli.interrupt import Interrupts
    from gymnast.cluster.order import read_order
    from gymnast.cluster.work import WorkEnd, work
    from gymnast.cluster.workplace import compose_for, open_workplace
    from gymnast.config import read_environ
    from gymnast.config.environ import job_id
    from gymnast.rollouts.inspect_run import run_paths
    from gymnast.store.chunk_layout import ChunkLayout
    from gymnast.store.chunk_look import chunk_views, read_chunk_plan

    paths = run_paths(run)
    told = {"concurrency": concurrency, "processes": processes, "grace_s": grace_s, "linger_s": linger_s}
    order = _as_told(read_order(ChunkLayout.of(paths)), overrides or [], model_url, told)
    layout = ChunkLayout.of(paths)
    if all(view.look.is_done for view in chunk_views(layout, read_chunk_plan(layout))):
        shared.say("nothing is left to do: every chunk is done")  # before anything is started
        return WorkEnd.NOTHING_LEFT.exit_code
    environ = read_environ()
    config = compose_for(order, environ)
    place = open_workplace(paths, order, worker=worker, job=job or job_id())

    def start(observer: RunObserver) -> Coroutine[Any, Any, Worked]:
        return work(place, config, environ, observer)

    drained_by = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)
    worked, _ = run_with_live_view(start, Interrupts(drained_by, place.options.grace_s), as_json=as_json)
    if worked.end is not WorkEnd.NOTHING_LEFT and worked.finished.note:
        shared.say(f"{worked.end}: {worked.finished.note}")
    shared.say(f"worker {place.holder.worker}: {worked.finished.scored} scored, {worked.end}")
    return worked.end.exit_code


def _as_told(
    order: WorkOrder, overrides: list[str], model_url: str | None, told: dict[str, int | float | None]
) -> WorkOrder:
    """The run's order, with what this worker is told otherwise."""
    import msgspec

    names = msgspec.structs.replace(
        order.config, overrides=(*order.config.overrides, *overrides), model_url=model_url or order.config.model_url
    )
    given = {name: value for name, value in told.items() if value is not None}
    return msgspec.structs.replace(order, config=names, work=msgspec.structs.replace(order.work, **given))
