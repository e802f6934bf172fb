"""What a run prints besides the live view: its first failures as they happen, and the summary at the end."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from gymnast.cli.options import say
from gymnast.rollouts.tally import Tally
from gymnast.types.events import InstanceDied, RolloutFailed, RunStarted

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from gymnast.types.events import Event

_MAX_SHOWN_FAILURES = 5


class Progress:
    """Counts the events of a run and prints the notable ones to standard error."""

    def __init__(self) -> None:
        self.tally = Tally()
        self._shown_failures = 0

    def __call__(self, event: Event) -> None:
        self.tally.add(event)
        if isinstance(event, RunStarted):
            settled = f", {event.settled} already settled" if event.settled else ""
            self._print(f"collecting {event.requested} rollouts of {event.tasks} tasks into {event.output}{settled}")
        elif isinstance(event, InstanceDied):
            self._print(event.note)
        elif isinstance(event, RolloutFailed):
            self._print_failure(event)

    def _print_failure(self, event: RolloutFailed) -> None:
        """Print the first failures in full; all are in the failures file and in the counts."""
        self._shown_failures += 1
        if self._shown_failures <= _MAX_SHOWN_FAILURES:
            again = "" if event.final else " (will be retried)"
            self._print(f"failed {event.task}:{event.rollout} {event.kind} at {event.stage}{again}: {event.message}")
            if self._shown_failures == _MAX_SHOWN_FAILURES:
                self._print("further failures are only counted; all are in the failures file")

    def _print(self, text: str) -> None:
        clear = "\r\x1b[2K" if sys.stderr.isatty() else ""
        say(clear + text)


def summary_rows(tally: Tally) -> list[dict[str, Any]]:
    """One row per agent, as the table shows it."""
    return [
        {
            "agent": name,
            "scored": agent.scored,
            "failed": agent.failed.total(),
            "retried": agent.retried.total(),
            "mean_reward": agent.mean_reward,
            "mean_output_tokens": agent.output_tokens / agent.scored if agent.scored else None,
            "mean_seconds": agent.seconds / agent.scored if agent.scored else None,
        }
        for name, agent in sorted(tally.agents.items())
    ]


def summary_table(tally: Tally) -> Table:
    """The summary of a run as a table."""
    from rich.table import Table

    table = Table(title=None)
    table.add_column("agent")
    for heading in ("scored", "failed", "retried", "mean reward", "tokens out", "seconds"):
        table.add_column(heading, justify="right")
    for row in summary_rows(tally):
        table.add_row(
            row["agent"],
            str(row["scored"]),
            str(row["failed"]),
            str(row["retried"]),
            _number(row["mean_reward"], 3),
            _number(row["mean_output_tokens"], 1),
            _number(row["mean_seconds"], 3),
        )
    return table


def print_table(table: Table) -> None:
    """Print a table to standard output."""
    make_console().print(table)


def make_console() -> Console:
    """Standard output as a console; outside a terminal, wide enough not to truncate names."""
    from rich.console import Console

    is_terminal = sys.stdout.isatty()
    return Console(soft_wrap=not is_terminal, width=None if is_terminal else 180)


def _number(value: float | None, digits: int) -> str:
    return "–" if value is None else f"{value:.{digits}f}"
