"""Ctrl-C and SIGTERM during a collection: the first drains, the second stops immediately. Scored rollouts are kept."""

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

_FINAL_WRITES_S: Final = 10.0
"""How long a finished run may ignore signals while it writes its last records."""


class Interrupts:
    """Counts the signals that interrupted a run and acts on them."""

    def __init__(
        self, signals: Sequence[signal.Signals] = (signal.SIGINT, signal.SIGTERM), grace_s: float | None = None
    ) -> None:
        """`grace_s`: how long rollouts in flight may take after the first signal; None for no limit."""
        self.count = 0
        self._signals = signals
        self._grace_s = grace_s

    @contextmanager
    def control(self, engine: Engine) -> Iterator[None]:
        """Drain or stop the engine on signals while the block is open; ignore them for a while after it."""
        loop = asyncio.get_running_loop()
        ended_at: float | None = None

        def handle(number: signal.Signals) -> None:
            if ended_at is not None:
                if time.monotonic() - ended_at > _FINAL_WRITES_S:
                    loop.remove_signal_handler(number)
                    os.kill(os.getpid(), number)
                return
            name = number.name
            self.count += 1
            if self.count == 1:
                say(f"\n{name}: finishing {len(engine.in_flight)} rollouts in flight; repeat to stop immediately")
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

    def ignore_further(self) -> None:
        """Ignore the same signals from now on: all is written, and another one must not change the exit code."""
        if self.count:
            for number in self._signals:
                signal.signal(number, signal.SIG_IGN)
