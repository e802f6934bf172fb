"""Simulated schedules from the command line."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable
from pathlib import Path


def carry_out_seeds(simulate: Callable[[int, Path], list[str]]) -> None:
    """Carry out the schedules of the seeds that the arguments name: FIRST [LAST]."""
    first, last = int(sys.argv[1]), int(sys.argv[-1])
    for seed in range(first, last + 1):
        with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
            simulate(seed, Path(folder))
    sys.stdout.write(f"{last - first + 1} schedules, all kept the promise\n")
