"""Requests to stop: by a signal, or because the parent process is gone. SIGUSR1 tells the main program to finish."""

from __future__ import annotations

import os
import signal
import threading
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import FrameType


class StopSignals:
    """Whether to stop now, or to let the job's main program finish and end."""

    def __init__(self) -> None:
        self._stop_requested = threading.Event()
        self._drain_requested = False
        self._parent = os.getppid()

    def listen(self) -> None:
        """Handle signals from now on."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._stop)
        signal.signal(signal.SIGUSR1, self._drain)

    @property
    def is_requested(self) -> bool:
        return self._stop_requested.is_set() or os.getppid() != self._parent

    def wait(self, seconds: float) -> None:
        """Wait, or return early when a stop is requested."""
        deadline = time.monotonic() + seconds
        while not self.is_requested and time.monotonic() < deadline:
            time.sleep(min(0.1, seconds))

    def take_drain_request(self) -> bool:
        """Whether the main program is to be told to finish; true once per request."""
        is_requested, self._drain_requested = self._drain_requested, False
        return is_requested

    def _stop(self, number: int, frame: FrameType | None) -> None:
        self._stop_requested.set()

    def _drain(self, number: int, frame: FrameType | None) -> None:
        self._drain_requested = True
