"""What people see of a run: a progress line, redrawn on a terminal and repeated sparingly elsewhere; tables."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Any

from gymnast.rollouts.tally import Tally
from gymnast.types.events import InstanceDied, RolloutFailed, RunFinished, RunStarted

if TYPE_CHECKING:
    from rich.table import Table

    from gymnast.types.events import Event

_TERMINAL_INTERVAL_S = 0.2
_PLAIN_INTERVAL_S = 10.0
_SHOWN_FAILURES = 5


class Progress:
    """Listens to a run and keeps one line up to date on standard error."""

    def __init__(self) -> None:
        self.tally = Tally()
        self._requested = 0
        self._started = time.monotonic()
        self._last = 0.0
        self._is_terminal = sys.stderr.isatty()
        self._shown_failures = 0

    def __call__(self, event: Event) -> None:
        self.tally.take(event)
        if isinstance(event, RunStarted):
            self._requested, self._started = event.requested, time.monotonic()
            self._last = self._started
            self._line(f"collecting {event.requested} rollouts of {event.tasks} tasks into {event.output}")
        elif isinstance(event, InstanceDied):
            self._line(event.note)
        elif isinstance(event, RolloutFailed):
            self._failure(event)
        elif isinstance(event, RunFinished):
            self._draw(final=True)
        self._draw_sometimes()

    def _failure(self, event: RolloutFailed) -> None:
        """The first failures in full; the rest is in the failures file and in the counts."""
        self._shown_failures += 1
        if self._shown_failures <= _SHOWN_FAILURES:
            self._line(f"failed {event.task}:{event.rollout} {event.kind} at {event.stage}: {event.message}")
            if self._shown_failures == _SHOWN_FAILURES:
                self._line("further failures are only counted here; all are in the failures file")

    def _draw_sometimes(self) -> None:
        interval = _TERMINAL_INTERVAL_S if self._is_terminal else _PLAIN_INTERVAL_S
        if time.monotonic() - self._last >= interval:
            self._draw()

    def _draw(self, *, final: bool = False) -> None:
        self._last = time.monotonic()
        elapsed = max(self._last - self._started, 1e-9)
        rate = self.tally.done / elapsed
        left = (self._requested - self.tally.done) / rate if rate else 0.0
        failed = self.tally.failed.total()
        text = f"{self.tally.done}/{self._requested} rollouts  {rate:.1f}/s"
        text += f"  {failed} failed" if failed else ""
        text += f"  {elapsed:.0f} s" if final else f"  about {left:.0f} s left"
        if self._is_terminal:
            sys.stderr.write(f"\r\x1b[2K{text}" + ("\n" if final else ""))
            sys.stderr.flush()
        elif not final:
            print(text, file=sys.stderr, flush=True)

    def _line(self, text: str) -> None:
        clear = "\r\x1b[2K" if self._is_terminal else ""
        print(clear + text, file=sys.stderr, flush=True)


def summary_rows(tally: Tally) -> list[dict[str, Any]]:
    """One row for each agent, and one for all: what the table and `--json` show."""
    return [
        {
            "agent": name,
            "rollouts": agent.scored + agent.failed.total(),
            "scored": agent.scored,
            "failed": agent.failed.total(),
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
    for heading in ("rollouts", "scored", "failed", "mean reward", "tokens out", "seconds"):
        table.add_column(heading, justify="right")
    for row in summary_rows(tally):
        table.add_row(
            row["agent"],
            str(row["rollouts"]),
            str(row["scored"]),
            str(row["failed"]),
            _number(row["mean_reward"], 3),
            _number(row["mean_output_tokens"], 1),
            _number(row["mean_seconds"], 3),
        )
    return table


def print_table(table: Table) -> None:
    """A table on standard output."""
    from rich.console import Console

    Console(soft_wrap=not sys.stdout.isatty(), width=None if sys.stdout.isatty() else 140).print(table)


def _number(value: float | None, digits: int) -> str:
    return "–" if value is None else f"{value:.{digits}f}"
