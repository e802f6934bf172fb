"""What the host allows: memory that can still be taken, counting the limit of the control group we are in."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

_CGROUP: Final = Path("/sys/fs/cgroup")
_LIMITS: Final = (
    ("memory.max", "memory.current"),
    ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes"),
)


def available_memory_bytes(proc: Path = Path("/proc"), cgroup: Path = _CGROUP) -> int | None:
    """Memory that can be taken without swapping; None where the system does not say."""
    found = [size for size in (_of_host(proc / "meminfo"), *(_of_group(cgroup, *pair) for pair in _LIMITS)) if size]
    return min(found, default=None)


def _of_host(path: Path) -> int | None:
    match = re.search(r"^MemAvailable:\s+(\d+) kB", _text(path), re.MULTILINE)
    return int(match[1]) * 1024 if match else None


def _of_group(folder: Path, limit_name: str, used_name: str) -> int | None:
    limit, used = _text(folder / limit_name).strip(), _text(folder / used_name).strip()
    if not limit.isdecimal() or not used.isdecimal():
        return None
    return max(1, int(limit) - int(used))


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""
