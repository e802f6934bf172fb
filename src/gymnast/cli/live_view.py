"""The view of a running collection: redrawn on a terminal, a periodic line elsewhere."""

from __future__ import annotations

import asyncio
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from gymnast.cli.options import say
from gymnast.cli.progress import agent_lines, fits, format_stats, format_truncated, format_usage
from gymnast.cli.safe_output import make_safe_console

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from rich.console import Console
    from rich.table import Table

    from gymnast.rollouts.snapshot import Snapshot

_REDRAW_INTERVAL_S = 0.5
_LINE_INTERVAL_S = 10.0
_MAX_REWARDS = 3
"""Agents whose mean reward a line shows."""


@contextmanager
def live_view(take_snapshot: Callable[[], Snapshot]) -> Iterator[None]:
    """Show the collection while the block is open."""
    task = asyncio.create_task((_redraw if sys.stderr.isatty() else _print_lines)(take_snapshot))
    try:
        yield
    finally:
        task.cancel()


async def _print_lines(take_snapshot: Callable[[], Snapshot]) -> None:
    while True:
        await asyncio.sleep(_LINE_INTERVAL_S)
        say(status_line(take_snapshot()))


async def _redraw(take_snapshot: Callable[[], Snapshot]) -> None:
    from rich.live import Live

    console = make_safe_console(stderr=True)
    with Live(console=console, refresh_per_second=4, transient=True) as live:
        while True:
            live.update(status_panel(take_snapshot(), console))
            await asyncio.sleep(_REDRAW_INTERVAL_S)


def status_line(now: Snapshot, *, with_results: bool = True) -> str:
    """Describe the state of a run in one line. Without results where a table shows them."""
    text = f"{now.scored + sum(now.failed.values())}/{now.requested} rollouts  {now.per_second:.1f}/s"
    text += f"  {sum(now.failed.values())} failed" if now.failed else ""
    text += _results(now) if with_results else ""
    text += f"  {now.in_flight} in flight (limit {now.limit})"
    text += f"  about {duration(now.eta_s)} left" if now.eta_s is not None else ""
    if now.oldest:
        oldest = now.oldest[0]
        text += f"  oldest {oldest.key} {duration(oldest.seconds)} at {oldest.stage}"
    for agent, seconds in now.out_of_reach_s.items():
        text += f"  {agent} unreachable for {duration(seconds)}, waiting"
    return text + ("" if now.state == "running" else f"  [{now.state}]")


def _results(now: Snapshot) -> str:
    """The mean reward, of several agents that of each of the first few, and how many rollouts were truncated."""
    means = {name: stats.mean_reward for name, stats in now.agents.items() if stats.mean_reward is not None}
    text = f"  reward {next(iter(means.values())):.3f}" if len(means) == 1 else ""
    if len(means) > 1:
        listed = ", ".join(f"{name} {mean:.3f}" for name, mean in list(means.items())[:_MAX_REWARDS])
        text = f"  rewards {listed}{', …' if len(means) > _MAX_REWARDS else ''}"
    truncated = sum(stats.truncated for stats in now.agents.values())
    return text + (f"  {truncated} truncated ({truncated / max(now.scored, 1):.1%})" if truncated else "")


def status_panel(now: Snapshot, console: Console) -> Any:
    """Render the state of a run for a terminal."""
    from rich.console import Group
    from rich.text import Text

    table = _agent_table(now)
    agents = table if fits(table, console) else Text("\n".join(agent_lines(now.agents)))
    lines: list[Any] = [Text(status_line(now, with_results=False), style="bold"), agents]
    if now.settled_before and now.this_invocation is not None:
        before = f"{now.settled_before} settled before"
        lines.append(Text(f"this invocation: {format_stats(now.this_invocation)}; {before}"))
    if now.stages:
        stages = ", ".join(f"{count} {stage}" for stage, count in sorted(now.stages.items(), key=lambda pair: -pair[1]))
        lines.append(Text(f"in flight: {stages}; {now.waiting_retries} waiting for a retry"))
    if now.failed or now.retried:
        failed = ", ".join(f"{count} × {kind}" for kind, count in now.failed.items())
        retried = ", ".join(f"{count} × {kind}" for kind, count in now.retried.items())
        lines.append(Text(f"failed: {failed or 'none'}" + (f"; retried: {retried}" if retried else ""), style="yellow"))
    if now.spent.calls:
        lines.append(Text(f"models: {format_usage(now.spent)}"))
    for agent, reason in now.given_up.items():
        lines.append(Text(f"gave up on {agent}: {reason}", style="red"))
    return Group(*lines)


def _agent_table(now: Snapshot) -> Table:
    from rich.table import Table

    agents = Table("agent", box=None, padding=(0, 2), show_header=True)
    for heading in ("scored", "mean reward", "truncated", "failed", "retried"):
        agents.add_column(heading, justify="right")
    for name, numbers in now.agents.items():
        mean = "–" if numbers.mean_reward is None else f"{numbers.mean_reward:.3f}"
        truncated = format_truncated(numbers) if numbers.truncated else ""
        counts = (str(numbers.failed or ""), str(numbers.retried or ""))
        agents.add_row(name or "no agent", str(numbers.scored), mean, truncated, *counts)
    return agents


def duration(seconds: float) -> str:
    """Format seconds: 12 s, 3 min 5 s, 2 h 10 min."""
    whole = int(seconds)
    if whole < 120:
        return f"{seconds:.0f} s"
    if whole < 7200:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"
