"""A bound on CPU time for code in worker processes. Standard library only: workers start in milliseconds.

Time is counted as CPU time of the process, so that a busy machine makes nobody's answer wrong.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

_GRACE_S: Final = 1.0
SIGNAL: Final = signal.SIGPROF
"""What ends a process in which the interpreter did not come to notice, e.g. in numbers with a billion digits."""


class OutOfTimeError(BaseException):
    """The CPU time is used up. Passes through handlers of Exception."""


@contextmanager
def cpu_time(limit_s: float) -> Iterator[None]:
    """Ends the block with OutOfTimeError after so much CPU time, and the process soon after if that does not help."""

    def end(*_: object) -> None:
        raise OutOfTimeError

    before = signal.signal(signal.SIGVTALRM, end)
    signal.signal(SIGNAL, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_PROF, limit_s + _GRACE_S)
    signal.setitimer(signal.ITIMER_VIRTUAL, limit_s)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGVTALRM, before)
