"""Detects code that blocks an event loop, from a thread, and reports where that code is.

A blocked loop cannot answer requests, so the report goes to a log, which doctor reads.
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

    from gymnast.config import Instance

OnBlocked = Callable[[float, list[str]], None]
"""Called with the seconds for which the loop has been blocked, and its stack, innermost frame first."""

BLOCKED_AFTER_S: Final = 5.0
_HEARTBEAT_S: Final = 0.5
_MAX_FRAMES: Final = 8


def log_blocked(instances: Sequence[Instance], seconds: float, stack: list[str]) -> None:
    """Log it for the instance whose code it is, or for all of them if that is unknown."""
    folders = {instance.name: f"{instance.directory}{os.sep}" for instance in instances if instance.directory}
    owner = next((name for frame in stack for name, folder in folders.items() if frame.startswith(folder)), None)
    for name in [owner] if owner is not None else folders:
        logging.getLogger(f"gymnast.instance.{name}").warning(
            "the event loop has been blocked for %.0f s at %s", seconds, " ← ".join(stack)
        )


class LoopMonitor:
    """Monitors the running loop inside the `with` block. Reports each blockage once."""

    def __init__(self, on_blocked: OnBlocked) -> None:
        self._on_blocked = on_blocked
        self._last_beat = time.monotonic()
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None
        self._timer: asyncio.TimerHandle | None = None

    def __enter__(self) -> Self:
        self._beat()
        loop_thread = threading.get_ident()
        self._thread = threading.Thread(target=self._monitor, args=(loop_thread,), name="loop-monitor", daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        if self._timer is not None:
            self._timer.cancel()
        if self._thread is not None:
            self._thread.join()

    def _beat(self) -> None:
        self._last_beat = time.monotonic()
        self._timer = asyncio.get_running_loop().call_later(_HEARTBEAT_S, self._beat)

    def _monitor(self, loop_thread: int) -> None:
        reported_beat = 0.0
        last_check = time.monotonic()
        while not self._ended.wait(_HEARTBEAT_S):
            now, previous_check = time.monotonic(), last_check
            last_check = now
            beat = self._last_beat
            is_late_itself = now - previous_check > 4 * _HEARTBEAT_S  # the whole process was suspended or starved
            if now - beat < BLOCKED_AFTER_S or beat == reported_beat or is_late_itself:
                continue
            reported_beat = beat
            frame = sys._current_frames().get(loop_thread)  # noqa: SLF001 - the documented way to another thread's stack
            stack = traceback.extract_stack(frame)[-_MAX_FRAMES:] if frame is not None else []
            self._on_blocked(now - beat, [f"{call.filename}:{call.lineno} in {call.name}" for call in reversed(stack)])
