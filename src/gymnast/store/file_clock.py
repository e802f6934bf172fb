"""The clock of a shared file system, the only one that file times may be compared with."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


def file_clock(folder: Path) -> float:
    """The current time for files in a folder. Without write access (another user's run), this host's clock."""
    probe = folder / ".now"
    try:
        probe.touch()
        return probe.stat().st_mtime
    except OSError:
        return time.time()
