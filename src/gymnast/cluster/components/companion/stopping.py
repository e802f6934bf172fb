"""Being told to stop: by a signal, or because whoever started us is gone. SIGUSR1 asks the main program to finish."""

from __future__ import annotations

import os
import signal
import threading
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import FrameType


class Stopping:
    """Whether we were told to stop, or the job's main program to finish what it has and end."""

    def __init__(self) -> None:
        self._asked = threading.Event()
        self._drain_asked = False
        self._parent = os.getppid()

    def listen(self) -> None:
        """From now on, signals are heard."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._stop)
        signal.signal(signal.SIGUSR1, self._drain)

    @property
    def asked(self) -> bool:
        return self._asked.is_set() or os.getppid() != self._parent

    def wait(self, seconds: float) -> None:
        """Wait so long, or until told to stop."""
        deadline = time.monotonic() + seconds
        while not self.asked and time.monotonic() < deadline:
            time.sleep(min(0.1, seconds))

    def take_drain(self) -> bool:
        """Whether the main program is to be told to finish; true once for each time."""
        asked, self._drain_asked = self._drain_asked, False
        return asked

    def _stop(self, number: int, frame: FrameType | None) -> None:
        self._asked.set()

    def _drain(self, number: int, frame: FrameType | None) -> None:
        self._drain_asked = True
