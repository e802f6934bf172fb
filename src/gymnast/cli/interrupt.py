"""Ctrl-C and SIGTERM for a running collection: the first drains, the second stops at once. Nothing scored is lost."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from gymnast.cli.options import say

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from gymnast.rollouts.engine import Engine

_ENDING_S: Final = 10.0
"""How long a run that has ended is left in peace to write its last records."""


class Interrupts:
    """Remembers whether somebody interrupted."""

    def __init__(
        self, signals: Sequence[signal.Signals] = (signal.SIGINT, signal.SIGTERM), grace_s: float | None = None
    ) -> None:
        """`grace_s`: how long what is in flight may take after the first; None for as long as it takes."""
        self.count = 0
        self._signals = signals
        self._grace_s = grace_s

    @contextmanager
    def steering(self, engine: Engine) -> Iterator[None]:
        """Turn signals into draining and stopping while the block is open, and for a while after it into nothing."""
        loop = asyncio.get_running_loop()
        ended_at: float | None = None

        def handle(number: signal.Signals) -> None:
            if ended_at is not None:
                if time.monotonic() - ended_at > _ENDING_S:
                    loop.remove_signal_handler(number)
                    os.kill(os.getpid(), number)
                return
            name = number.name
            self.count += 1
            if self.count == 1:
                say(f"\n{name}: finishing {len(engine.in_flight)} rollouts in flight; once more to stop at once")
                engine.drain(f"interrupted by {name}")
                if self._grace_s is not None:
                    loop.call_later(self._grace_s, engine.stop_now, f"interrupted by {name}")
            else:
                engine.stop_now(f"interrupted by {name}")

        for number in self._signals:
            loop.add_signal_handler(number, handle, number)
        try:
            yield
        finally:
            ended_at = time.monotonic()  # the handlers stay until the loop closes: records are still being written

    def rest(self) -> None:
        """The loop is closed and all is written: more of the signals that were obeyed must not change the exit code."""
        if self.count:
            for number in self._signals:
                signal.signal(number, signal.SIG_IGN)
