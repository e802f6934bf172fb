"""Callbacks that receive what happens in a run."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gymnast.rollouts.engine import Engine, Listen
    from gymnast.rollouts.run_store import Take
    from gymnast.rollouts.snapshot import Snapshot
    from gymnast.rollouts.traced_runner import Tracer

Say = Callable[[str], None]
TakeSnapshot = Callable[[], "Snapshot"]
Watch = Callable[["Engine", TakeSnapshot], AbstractContextManager[object]]


def _ignore(_: object) -> None:
    pass


@dataclass(frozen=True, slots=True)
class RunObserver:
    """Receives a run's events, messages and outcomes."""

    listen: Listen = _ignore
    """Every event."""
    say: Say = _ignore
    """Warnings and notes for people."""
    watch: Watch = lambda *_: nullcontext()
    """Called with the engine when it starts; the context it returns is open while the engine runs."""
    take: Take | None = None
    """Every final record: scored, or permanently failed."""
    tracer: Tracer | None = None
    """Records some rollouts as traces."""

    def warn(self, warnings: Iterable[str]) -> None:
        for warning in warnings:
            self.say(f"warning: {warning}")

    def note(self, notes: Iterable[str]) -> None:
        for note in notes:
            self.say(f"note: {note}")
