"""What a run prints besides the live view: its first failures as they happen, and the summary and usage at the end."""

from __future__ import annotations

import shlex
import sys
from typing import TYPE_CHECKING, Final

from gymnast.cli.options import say
from gymnast.cli.safe_output import make_safe_console
from gymnast.types.events import InstanceDied, RolloutFailed, RunStarted
from gymnast.types.nouns import count_noun

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rich.console import Console
    from rich.table import Table

    from gymnast.types.events import Event, RunFinished
    from gymnast.types.totals import AgentStats
    from gymnast.types.usage import ModelUsage

_MAX_SHOWN_FAILURES: Final = 5
_MAX_WIDTH: Final = 10_000
_NO_AGENT: Final = "no agent"
"""For input rows that could not be run, and records that name none."""


class Progress:
    """Prints the notable events of a run to standard error."""

    def __init__(self) -> None:
        self._shown_failures = 0

    def __call__(self, event: Event) -> None:
        if isinstance(event, RunStarted):
            settled = f", {event.settled} already settled" if event.settled else ""
            if event.requested:
                work = f"{count_noun(event.requested, 'rollout')} of {count_noun(event.tasks, 'task')}"
                self._print(f"collecting {work} into {event.output}{settled}")
            else:  # a worker, which has no chunk yet
                self._print(f"working on {event.output}")
            self._print(f"live view: gymnast view {shlex.quote(event.output)}")
        elif isinstance(event, InstanceDied):
            self._print(event.note)
        elif isinstance(event, RolloutFailed):
            self._print_failure(event)

    def _print_failure(self, event: RolloutFailed) -> None:
        """Print the first failures in full; all are in the failures file and in the counts."""
        self._shown_failures += 1
        if self._shown_failures <= _MAX_SHOWN_FAILURES:
            again = "" if event.final else " (will be retried)"
            message = " ".join(event.message.split())
            self._print(f"failed {event.task}:{event.rollout} {event.kind} at {event.stage}{again}: {message}")
            if self._shown_failures == _MAX_SHOWN_FAILURES:
                self._print("further failures are only counted; all are in the failures file")

    def _print(self, text: str) -> None:
        clear = "\r\x1b[2K" if sys.stderr.isatty() else ""
        say(clear + text)


def print_summary(agents: Mapping[str, AgentStats]) -> None:
    """Print the statistics of each agent to standard output: as a table, or in lines where it does not fit."""
    console = make_console()
    table = summary_table(agents)
    if not fits(table, console):
        for name, cells in summary_cells(agents).items():
            print(f"{name}: " + ", ".join(f"{heading} {text}" for heading, text in cells.items()))
    else:
        console.print(table)


def fits(table: Table, console: Console) -> bool:
    """Whether a table fits without cutting its cells."""
    return console.measure(table, options=console.options.update(width=_MAX_WIDTH)).maximum <= console.width


def summary_table(agents: Mapping[str, AgentStats]) -> Table:
    from rich.table import Table

    rows = summary_cells(agents)
    table = Table(title=None)
    table.add_column("agent")
    for heading in next(iter(rows.values()), _cells_of(None, shows_masked=False)):
        table.add_column(heading, justify="right")
    for name, cells in rows.items():
        table.add_row(name, *cells.values())
    return table


def summary_cells(agents: Mapping[str, AgentStats]) -> dict[str, dict[str, str]]:
    """The cells of each agent's row, by heading."""
    shows_masked = any(stats.masked for stats in agents.values())
    return {name or _NO_AGENT: _cells_of(stats, shows_masked=shows_masked) for name, stats in agents.items()}


def _cells_of(stats: AgentStats | None, *, shows_masked: bool) -> dict[str, str]:
    cells = {
        "scored": str(stats.scored) if stats else "",
        "failed": str(stats.failed) if stats else "",
        "retried": str(stats.retried) if stats else "",
        "truncated": format_truncated(stats) if stats else "",
        "mean reward": _number(stats.mean_reward if stats else None, 3),
        "tokens out": _number(stats.mean_output_tokens if stats else None, 1),
        "seconds": _number(stats.mean_seconds if stats else None, 3),
    }
    return {**cells, "masked": str(stats.masked) if stats else ""} if shows_masked else cells


def format_truncated(stats: AgentStats) -> str:
    """9 (9.0%)"""
    return f"{stats.truncated} ({stats.truncated / stats.scored:.1%})" if stats.truncated else "0"


def format_stats(stats: AgentStats) -> str:
    """90 scored, mean reward 0.222, 9 truncated (10.0%), 2 failed: what is 0 is left out."""
    mean = f", mean reward {stats.mean_reward:.3f}" if stats.mean_reward is not None else ""
    text = f"{stats.scored} scored{mean}"
    text += f", {stats.truncated} truncated ({stats.truncated / stats.scored:.1%})" if stats.truncated else ""
    text += f", {stats.masked} masked" if stats.masked else ""
    text += f", {stats.failed} failed" if stats.failed else ""
    return text + (f", {stats.retried} retried" if stats.retried else "")


def agent_lines(agents: Mapping[str, AgentStats]) -> list[str]:
    return [f"  {name or _NO_AGENT}: {format_stats(stats)}" for name, stats in agents.items()]


def describe_invocation(finished: RunFinished) -> str | None:
    """What this invocation added to the run; None if it did everything."""
    if not finished.settled_before or finished.this_invocation is None:
        return None
    return f"{format_stats(finished.this_invocation)} by this invocation; {finished.settled_before} settled before it"


def print_table(table: Table) -> None:
    """Print a table to standard output."""
    make_console().print(table)


def make_console() -> Console:
    """Standard output as a console; outside a terminal, wide enough not to truncate names."""
    is_terminal = sys.stdout.isatty()
    return make_safe_console(soft_wrap=not is_terminal, width=None if is_terminal else 180)


def _number(value: float | None, digits: int) -> str:
    return "–" if value is None else f"{value:.{digits}f}"


def format_usage(usage: ModelUsage) -> str:
    """`1,200 calls, 3.4M tokens in (1.1M cached), 512k out (300k reasoning), 1,900 ms per call, cost 12.34`."""
    calls = count_noun(usage.calls, "call") + (f" ({usage.failed_calls:,} failed)" if usage.failed_calls else "")
    tokens_in = f"{format_count(usage.input_tokens)} tokens in" + _share(usage.cached_tokens, "cached")
    tokens_out = f"{format_count(usage.output_tokens)} out" + _share(usage.reasoning_tokens, "reasoning")
    parts = [calls, tokens_in, tokens_out, f"{_format_ms(usage.latency_ms / max(usage.calls, 1))} per call"]
    if usage.ttft_ms is not None:
        parts.append(f"first token after {usage.ttft_ms:.0f} ms")
    if usage.unmetered_calls:
        parts.append(f"{count_noun(usage.unmetered_calls, 'call')} reported no usage")
    parts.append("cost unknown (no prices)" if usage.cost is None else f"cost {usage.cost:.6g}")
    return ", ".join(parts)


def _format_ms(number: float) -> str:
    """0.07 ms, 26.4 ms, 1,900 ms."""
    digits = 0 if number >= 100 else 1 if number >= 10 else 2
    return f"{number:,.{digits}f} ms"


def format_count(number: int) -> str:
    """Format a count: 999, 12.3k, 4.56M."""
    for size, unit in ((1_000_000_000, "G"), (1_000_000, "M"), (1_000, "k")):
        if number >= size:
            return f"{number / size:.3g}{unit}"
    return str(number)


def _share(count: int | None, label: str) -> str:
    return f" ({format_count(count)} {label})" if count else ""
