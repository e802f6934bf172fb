"""A bound on CPU time inside worker processes. Standard library only: workers start in milliseconds.

The softer of two bounds: it ends what Python code does and leaves the worker alive, which may have taken seconds to
start. Where the interpreter does not come to notice (numbers with a billion digits), the pool's `cpu_s` ends it.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

GRACE_S: Final = 1.0
"""How much more than the softer bound the pool's should be."""


class OutOfTimeError(BaseException):
    """The CPU time is used up. Passes through handlers of Exception."""


@contextmanager
def cpu_time(limit_s: float) -> Iterator[None]:
    """Ends the block with OutOfTimeError after so much CPU time of this process."""

    def end(*_: object) -> None:
        raise OutOfTimeError

    before = signal.signal(signal.SIGVTALRM, end)
    signal.setitimer(signal.ITIMER_VIRTUAL, limit_s)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)
