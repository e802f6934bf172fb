"""What people see of a run besides the live view: its first failures as they happen, and the summary at the end."""

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

_SHOWN_FAILURES = 5


class Progress:
    """Listens to a run, counts, and says what is worth a line of its own on standard error."""

    def __init__(self) -> None:
        self.tally = Tally()
        self._shown_failures = 0

    def __call__(self, event: Event) -> None:
        self.tally.take(event)
        if isinstance(event, RunStarted):
            settled = f", {event.settled} of them settled before" if event.settled else ""
            self._line(f"collecting {event.requested} rollouts of {event.tasks} tasks into {event.output}{settled}")
        elif isinstance(event, InstanceDied):
            self._line(event.note)
        elif isinstance(event, RolloutFailed):
            self._failure(event)

    def _failure(self, event: RolloutFailed) -> None:
        """The first failures in full; the rest is in the failures file and in the counts."""
        self._shown_failures += 1
        if self._shown_failures <= _SHOWN_FAILURES:
            again = "" if event.final else " (will be tried again)"
            self._line(f"failed {event.task}:{event.rollout} {event.kind} at {event.stage}{again}: {event.message}")
            if self._shown_failures == _SHOWN_FAILURES:
                self._line("further failures are only counted here; all are in the failures file")

    def _line(self, text: str) -> None:
        clear = "\r\x1b[2K" if sys.stderr.isatty() else ""
        say(clear + text)


def summary_rows(tally: Tally) -> list[dict[str, Any]]:
    """One row for each agent: what the table shows."""
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
    """A table on standard output."""
    wide_console().print(table)


def wide_console() -> Console:
    """Standard output; where it is no terminal, wide enough that names are not cut."""
    from rich.console import Console

    is_terminal = sys.stdout.isatty()
    return Console(soft_wrap=not is_terminal, width=None if is_terminal else 180)


def _number(value: float | None, digits: int) -> str:
    return "–" if value is None else f"{value:.{digits}f}"
