"""A progress bar in notebooks, redrawn in place. Needs a kernel of IPython; never imports IPython."""

from __future__ import annotations

import asyncio
import sys
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Final, Self

from markupsafe import Markup

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from gymnast.rollouts.engine import Engine
    from gymnast.rollouts.observer import Say, TakeSnapshot, Watch
    from gymnast.rollouts.snapshot import Snapshot

_REDRAW_INTERVAL_S: Final = 0.5
_MAX_NOTES: Final = 5
_BAR: Final = Markup('<progress value="{done}" max="{requested}"></progress> {text}{notes}')


class NotebookView:
    """What a cell shows of a run: a bar, one line of figures, and the last notes."""

    def __init__(self, display: Callable[..., Any]) -> None:
        self._display = display
        self._handle: Any = None
        self._notes: list[str] = []
        self._snapshot: Snapshot | None = None

    @classmethod
    def open(cls) -> Self | None:
        """A view in the cell that runs now, or None outside a notebook."""
        display = notebook_display()
        return cls(display) if display is not None else None

    def watch_too(self, watch: Watch) -> Watch:
        """A watch that also redraws the view while the engine runs."""

        @contextmanager
        def watch_and_show(engine: Engine, take_snapshot: TakeSnapshot) -> Iterator[None]:
            task = asyncio.create_task(self._redraw(take_snapshot))
            try:
                with watch(engine, take_snapshot):
                    yield
            finally:
                task.cancel()
                self.show(take_snapshot())

        return watch_and_show

    def say_too(self, say: Say | None) -> Say:
        """A receiver of notes that also shows the last ones."""

        def receive(text: str) -> None:
            self._notes = [*self._notes, text][-_MAX_NOTES:]
            if self._snapshot is not None:
                self.show(self._snapshot)
            if say is not None:
                say(text)

        return receive

    def show(self, snapshot: Snapshot) -> None:
        """Draw the view; replaces what it showed before."""
        self._snapshot = snapshot
        picture = _Picture(snapshot, self._notes)
        with suppress(Exception):  # a broken front end must not end a run
            if self._handle is None:
                self._handle = self._display(picture, display_id=True)
            elif self._handle is not None:
                self._handle.update(picture)

    async def _redraw(self, take_snapshot: TakeSnapshot) -> None:
        while True:
            self.show(take_snapshot())
            await asyncio.sleep(_REDRAW_INTERVAL_S)


class _Picture:
    """A state of the view, as HTML and as text."""

    def __init__(self, snapshot: Snapshot, notes: list[str]) -> None:
        self._snapshot = snapshot
        self._notes = list(notes)

    def __repr__(self) -> str:
        return "\n".join([describe(self._snapshot), *self._notes])

    def _repr_html_(self) -> str:
        now = self._snapshot
        notes = Markup("").join(Markup("<br>{}").format(note) for note in self._notes)
        done = now.scored + sum(now.failed.values())
        return str(_BAR.format(done=done, requested=max(1, now.requested), text=describe(now), notes=notes))


def describe(now: Snapshot) -> str:
    """`30/32 rollouts, 1 failed, mean reward 0.412, 12.0/s, about 3 s left`."""
    failed = sum(now.failed.values())
    parts = [f"{now.scored + failed:,}/{now.requested:,} rollouts"]
    parts += [f"{failed:,} failed"] if failed else []
    means = [(agent.mean_reward, agent.scored) for agent in now.agents.values() if agent.mean_reward is not None]
    scored = sum(count for _, count in means)
    parts += [f"mean reward {sum(mean * count for mean, count in means) / scored:.3f}"] if scored else []
    parts += [f"{now.per_second:.1f}/s"] if now.per_second else []
    parts += [f"about {now.eta_s:.0f} s left"] if now.eta_s and now.owed else []
    parts += [f"{agent} unreachable for {seconds:.0f} s" for agent, seconds in now.out_of_reach_s.items()]
    return ", ".join(parts)


def notebook_display() -> Callable[..., Any] | None:
    """IPython's `display` if this process is a notebook's kernel."""
    module = sys.modules.get("IPython")
    shell = module.get_ipython() if module is not None else None
    if shell is None or getattr(shell, "kernel", None) is None:  # a terminal would print every state
        return None
    display: Callable[..., Any] = sys.modules["IPython.display"].display
    return display
