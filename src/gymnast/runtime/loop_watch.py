"""Notices code that blocks an event loop, from a thread beside it, and says where that code is.

Nothing on a blocked loop can answer questions, so what it says goes to a log, which doctor reads.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
import threading
import time
import traceback
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, Self

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import TracebackType

    from gymnast.config import Instance

Tell = Callable[[float, list[str]], None]
"""Told how long the loop has been blocked, and its stack, innermost first."""

PATIENCE_S: Final = 5.0
_BEAT_S: Final = 0.5
_DEEPEST: Final = 8


def log_blocked(instances: Sequence[Instance], seconds: float, stack: list[str]) -> None:
    """Write it into the log of the instance whose code it is, or into all of them where that cannot be told."""
    folders = {instance.name: f"{instance.directory}{os.sep}" for instance in instances if instance.directory}
    whose = next((name for frame in stack for name, folder in folders.items() if frame.startswith(folder)), None)
    for name in [whose] if whose is not None else folders:
        logging.getLogger(f"gymnast.instance.{name}").warning(
            "the event loop has been blocked for %.0f s at %s", seconds, " ← ".join(stack)
        )


class LoopWatch:
    """Watches the running loop while the block is open. Each time it is blocked is told once."""

    def __init__(self, tell: Tell, *, patience_s: float = PATIENCE_S) -> None:
        self._tell = tell
        self._patience_s = patience_s
        self._beat_at = time.monotonic()
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None
        self._timer: asyncio.TimerHandle | None = None

    def __enter__(self) -> Self:
        self._beat()
        watched = threading.get_ident()
        self._thread = threading.Thread(target=self._watch, args=(watched,), name="loop-watch", daemon=True)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        if self._timer is not None:
            self._timer.cancel()
        if self._thread is not None:
            self._thread.join()

    def _beat(self) -> None:
        self._beat_at = time.monotonic()
        self._timer = asyncio.get_running_loop().call_later(_BEAT_S, self._beat)

    def _watch(self, watched: int) -> None:
        told_of = 0.0
        looked_at = time.monotonic()
        while not self._ended.wait(_BEAT_S):
            now, before = time.monotonic(), looked_at
            looked_at = now
            beat_at = self._beat_at
            is_late_myself = now - before > 4 * _BEAT_S  # the whole process stood still: suspended, or starved
            if now - beat_at < self._patience_s or beat_at == told_of or is_late_myself:
                continue
            told_of = beat_at
            frame = sys._current_frames().get(watched)  # noqa: SLF001 - the documented way to another thread's stack
            stack = traceback.extract_stack(frame)[-_DEEPEST:] if frame is not None else []
            self._tell(now - beat_at, [f"{one.filename}:{one.lineno} in {one.name}" for one in reversed(stack)])
