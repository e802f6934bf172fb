"""Ctrl-C and SIGTERM for a running collection: the first drains, the second stops at once. Nothing scored is lost."""

from __future__ import annotations

import asyncio
import signal
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gymnast.rollouts.engine import Engine


class Interrupts:
    """Remembers whether somebody interrupted."""

    def __init__(self) -> None:
        self.count = 0

    @contextmanager
    def steering(self, engine: Engine) -> Iterator[None]:
        """Turn signals into draining and stopping while the block is open."""
        loop = asyncio.get_running_loop()

        def handle(name: str) -> None:
            self.count += 1
            if self.count == 1:
                print(
                    f"\n{name}: finishing {len(engine.in_flight)} rollouts in flight; once more to stop at once",
                    file=sys.stderr,
                    flush=True,
                )
                engine.drain(f"interrupted by {name}")
            else:
                engine.stop_now(f"interrupted by {name}")

        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, handle, number.name)
        try:
            yield
        finally:
            for number in (signal.SIGINT, signal.SIGTERM):
                loop.remove_signal_handler(number)
