"""The process that keeps the workers of a local submission: it outlives the shell that submitted them.

Started by `LocalExecutor`, which hands it its orders on standard input and reads the keeper's name from its output.
"""

from __future__ import annotations

import os
import signal
import sys
from typing import TYPE_CHECKING, Final

import msgspec

from gymnast.cluster.kept import Keeping, keep
from gymnast.runtime.registry import process_start

if TYPE_CHECKING:
    from types import FrameType

ENDING: Final = (signal.SIGTERM, signal.SIGINT)


class Asked:
    """Whether this process was asked to end, by a signal."""

    def __init__(self) -> None:
        self.times = 0

    def listen(self) -> None:
        """From now on signals ask."""
        for number in ENDING:
            signal.signal(number, self._hear)

    def __call__(self) -> bool:
        return self.times > 0

    def _hear(self, number: int, frame: FrameType | None) -> None:
        self.times += 1


def keeper_name(pid: int) -> str:
    """A name for a keeper's process that no other process of this boot has."""
    return f"{pid}-{process_start(pid)}"


def job_name(keeper: str, worker: int) -> str:
    """The job of a keeper's worker."""
    return f"{keeper}_{worker}"


def main() -> None:
    """Go to the background, say who we are, and keep the workers."""
    keeping = msgspec.json.decode(sys.stdin.buffer.read(), type=Keeping)
    child = os.fork()
    if child:
        sys.stdout.write(keeper_name(child))
        sys.stdout.flush()
        os._exit(0)  # the fork's copies of buffers and handlers are the child's business
    nothing = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(nothing, stream)
    asked = Asked()
    asked.listen()
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    name = keeper_name(os.getpid())
    keep(keeping, lambda worker: job_name(name, worker), asked)


if __name__ == "__main__":
    main()
