"""`gymnast worker RUN`: take chunks of a planned run and finish them, alongside any number of other workers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from gymnast.cli import options as shared

if TYPE_CHECKING:
    from gymnast.chunks.worker_spec import WorkerSpec


def command(
    run: shared.Run,
    overrides: shared.Overrides = None,
    *,
    model_url: shared.ModelUrl = None,
    concurrency: Annotated[
        int | None, typer.Option("--concurrency", min=1, help="Maximum rollouts in flight in this worker.")
    ] = None,
    processes: Annotated[
        int | None,
        typer.Option("--processes", min=0, max=4096, help="Processes of this worker; 0 runs everything in one."),
    ] = None,
    grace_s: Annotated[
        float | None,
        typer.Option("--grace", min=0, help="Seconds that rollouts in flight may still take after SIGTERM or SIGUSR1."),
    ] = None,
    linger_s: Annotated[
        float | None,
        typer.Option("--linger", min=0, help="Seconds to wait for rows of other workers when no chunks are left."),
    ] = None,
    worker: Annotated[str | None, typer.Option("--name", help="Unique name of this worker.")] = None,
    job: Annotated[str | None, typer.Option("--job", help="The scheduler's id of this worker's job.")] = None,
    as_json: shared.JsonOutput = False,
) -> int:
    """Work on the chunks of a submitted run.

    Ends when no chunks are left.
    SIGTERM, SIGUSR1 and Ctrl-C drain: no more rollouts start, those in flight may finish within the grace period, and
    the rest is handed back. Exit codes: 0 nothing left for this worker, 75 drained with work left, 1 gave up.
    """
    import signal

    from gymnast.chunks.worker import WorkerExit, run_worker
    from gymnast.chunks.worker_context import compose_config, open_worker_context
    from gymnast.chunks.worker_spec import read_worker_spec
    from gymnast.cli.live_run import LiveRun
    from gymnast.cli.signals import Interrupts
    from gymnast.config import read_environ
    from gymnast.config.environ import job_id
    from gymnast.store.chunk_layout import ChunkLayout
    from gymnast.store.chunk_state import read_chunk_plan, walk_chunks
    from gymnast.store.outage import read_patiently
    from gymnast.store.paths import RunPaths
    from gymnast.tracking.telemetry import open_telemetry

    paths = RunPaths(run)
    layout = ChunkLayout.of(paths)
    options = {"concurrency": concurrency, "processes": processes, "grace_s": grace_s, "linger_s": linger_s}
    spec = _apply_options(read_patiently(lambda: read_worker_spec(layout)), overrides or [], model_url, options)
    if read_patiently(lambda: all(view.folder_state.is_done for view in walk_chunks(layout, read_chunk_plan(layout)))):
        shared.say("nothing to do: every chunk is done")  # before anything is started
        return WorkerExit.NOTHING_LEFT.exit_code
    environ = read_environ()
    config = read_patiently(lambda: compose_config(spec, environ))
    context = read_patiently(lambda: open_worker_context(paths, spec, worker=worker, job=job or job_id()))

    drain_signals = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)
    telemetry_options = context.options.telemetry
    with open_telemetry(
        telemetry_options.track,
        telemetry_options.trace,
        telemetry_options.trace_sample,
        shared.say,
        worker=context.holder.worker,
    ) as telemetry:
        interrupts = Interrupts(drain_signals, context.options.grace_s)
        live = LiveRun(as_json=as_json, telemetry=telemetry, interrupts=interrupts)
        result = live.run(lambda observer: run_worker(context, config, environ, observer))
    if result.end is not WorkerExit.NOTHING_LEFT and result.finished.note:
        shared.say(f"{result.end}: {result.finished.note}")
    shared.say(f"worker {context.holder.worker}: {result.finished.scored} scored, {result.end.replace('_', ' ')}")
    return result.end.exit_code


def _apply_options(
    spec: WorkerSpec, overrides: list[str], model_url: str | None, options: dict[str, int | float | None]
) -> WorkerSpec:
    """The worker spec of the run, with the options of this worker."""
    import msgspec

    names = msgspec.structs.replace(
        spec.config, overrides=(*spec.config.overrides, *overrides), model_url=model_url or spec.config.model_url
    )
    changes = {name: value for name, value in options.items() if value is not None}
    return msgspec.structs.replace(spec, config=names, options=msgspec.structs.replace(spec.options, **changes))
