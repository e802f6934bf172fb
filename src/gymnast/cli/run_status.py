"""`gymnast status RUN` and `gymnast ctl RUN`: watch and control a collection from another shell."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gymnast.cli import options as shared

if TYPE_CHECKING:
    from gymnast.rollouts.inspect_run import RunInspection
    from gymnast.rollouts.snapshot import Snapshot


def show(run: Path, *, as_json: bool, watch: bool = False) -> int:
    """Print the state of a run. 0 if it is running or nothing is owed."""
    import asyncio

    from gymnast.cli.chunk_status import show_chunk_status
    from gymnast.rollouts.inspect_run import inspect_run
    from gymnast.store.chunk_layout import ChunkLayout
    from gymnast.store.paths import RunPaths

    paths = RunPaths(run)
    if ChunkLayout.of(paths).is_planned:
        return show_chunk_status(paths, as_json=as_json, watch=watch)
    status = asyncio.run(inspect_run(run))
    if as_json:
        import msgspec

        print(msgspec.json.format(msgspec.json.encode(status)).decode())
    else:
        _print(status)
    return 0 if status.live is not None or status.manifest.counts.owed == 0 else 1


def ctl(
    run: shared.Run,
    command: Annotated[str, typer.Argument(help="pause, resume, drain, stop, cancel or set.")],
    argument: Annotated[str | None, typer.Argument(help="For cancel: TASK:ROLLOUT. For set: concurrency=N.")] = None,
) -> int:
    """Pause, resume, drain or stop a running collection.

    pause starts no more rollouts and resume continues; drain finishes the rollouts in flight and ends; stop ends
    immediately; cancel TASK:ROLLOUT gives up on one rollout; set concurrency=N changes the limit.
    """
    import asyncio

    from gymnast.errors import UserError
    from gymnast.rollouts.control import send_request
    from gymnast.store.chunk_layout import ChunkLayout
    from gymnast.store.paths import RunPaths

    paths = RunPaths(run)
    if ChunkLayout.of(paths).is_planned:
        raise UserError(
            "workers collect this run, and ctl does not reach them",
            where=str(paths.output),
            next="gymnast cancel RUN ends workers, gymnast submit --resume starts some",
        )
    print(asyncio.run(send_request(paths.socket, {"command": command, "argument": argument})))
    return 0


def _print(status: RunInspection) -> None:
    from gymnast.cli.progress import agent_lines, format_usage

    counts = status.manifest.counts
    print(f"{status.run}: {status.state}")
    if status.live is not None:
        _print_live(status.live)
        return
    print(f"  {counts.requested} requested, {counts.scored} scored, {counts.owed} owed")
    for line in agent_lines(status.agents):
        print(line)
    for kind, number in counts.failed.items():
        print(f"  {number} × {kind}")
    if status.manifest.spent.calls:
        print(f"  {format_usage(status.manifest.spent)}")
    if status.manifest.note:
        print(f"  {status.manifest.note}")
    if counts.owed:
        shared.say("next: run the same command with --resume")


def _print_live(now: Snapshot) -> None:
    from rich.table import Table

    from gymnast.cli.live_view import duration, status_panel
    from gymnast.cli.progress import make_console

    console = make_console()
    console.print(status_panel(now, console))
    if not now.oldest:
        return
    headings = ("rollout", "agent", "attempt", "stage", "waits for", "age", "in stage")
    table = Table(*headings, title="oldest in flight", title_justify="left", box=None, padding=(0, 2))
    for attempt in now.oldest:
        table.add_row(
            attempt.key,
            attempt.agent,
            str(attempt.attempt),
            attempt.stage,
            attempt.instance,
            duration(attempt.seconds),
            duration(attempt.in_stage_s),
        )
    console.print(table)
    console.print(f"event loop lag {now.loop_lag_s * 1000:.0f} ms (longest {now.longest_lag_s * 1000:.0f} ms)")
