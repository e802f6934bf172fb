"""`gymnast status RUN` and `gymnast ctl RUN`: look at a collection and steer it from another shell."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gymnast.cli import options as shared

if TYPE_CHECKING:
    from gymnast.rollouts.inspect_run import RunLook
    from gymnast.rollouts.snapshot import Snapshot


def show(run: Path, *, as_json: bool, watch: bool = False) -> int:
    """Print how a run stands. 0 if it is running or nothing is owed."""
    import asyncio

    from gymnast.cli.chunk_status import show_chunked
    from gymnast.rollouts.inspect_run import look_at, run_paths
    from gymnast.store.chunk_layout import ChunkLayout

    paths = run_paths(run)
    if ChunkLayout.of(paths).is_planned:
        return show_chunked(paths, as_json=as_json, watch=watch)
    look = asyncio.run(look_at(run))
    if as_json:
        import msgspec

        print(msgspec.json.format(msgspec.json.encode(look)).decode())
    else:
        _print(look)
    return 0 if look.live is not None or look.manifest.counts.owed == 0 else 1


def ctl(
    run: Annotated[Path, typer.Argument(help="The run: its output file.")],
    command: Annotated[str, typer.Argument(help="pause, resume, drain, stop, cancel or set.")],
    argument: Annotated[str | None, typer.Argument(help="For cancel: TASK:ROLLOUT. For set: concurrency=N.")] = None,
) -> int:
    """Steer a running collection.

    pause and resume hold back and go on; drain finishes what is in flight and ends; stop ends at once;
    cancel TASK:ROLLOUT gives one rollout up; set concurrency=N changes the limit.
    """
    import asyncio

    from gymnast.rollouts.control import ask
    from gymnast.rollouts.inspect_run import run_paths

    print(asyncio.run(ask(run_paths(run).socket, {"command": command, "argument": argument})))
    return 0


def _print(look: RunLook) -> None:
    from gymnast.cli.spending import spending

    counts = look.manifest.counts
    now = look.live
    if now is not None:
        print(f"{look.run}: {look.state}")
        _print_live(now)
        return
    print(f"{look.run}: {look.state}")
    print(f"  {counts.requested} requested, {counts.scored} scored, {counts.owed} owed, {counts.retries} retries")
    for kind, number in counts.failed.items():
        print(f"  {number} × {kind}")
    if look.manifest.spent.calls:
        print(f"  {spending(look.manifest.spent)}")
    if look.manifest.note:
        print(f"  {look.manifest.note}")
    if counts.owed:
        shared.say("next: run the same command with --resume")


def _print_live(now: Snapshot) -> None:
    from rich.table import Table

    from gymnast.cli.live import duration, panel
    from gymnast.cli.terminal import wide_console

    console = wide_console()
    console.print(panel(now))
    if not now.oldest:
        return
    table = Table(title="oldest in flight", title_justify="left", box=None, padding=(0, 2))
    for heading in ("rollout", "agent", "attempt", "stage", "waits for", "age", "in stage"):
        table.add_column(heading)
    for job in now.oldest:
        table.add_row(
            job.key,
            job.agent,
            str(job.attempt),
            job.stage,
            job.instance,
            duration(job.seconds),
            duration(job.in_stage_s),
        )
    console.print(table)
    console.print(f"event loop lag {now.loop_lag_s * 1000:.0f} ms (longest {now.longest_lag_s * 1000:.0f} ms)")
