"""The memory still available on this host, considering the limit of our control group."""

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
    """Memory available without swapping; None if unknown."""
    sizes = (_host_memory(proc / "meminfo"), *(_cgroup_memory(cgroup, *pair) for pair in _LIMITS))
    return min((size for size in sizes if size), default=None)


def _host_memory(path: Path) -> int | None:
    match = re.search(r"^MemAvailable:\s+(\d+) kB", _text(path), re.MULTILINE)
    return int(match[1]) * 1024 if match else None


def _cgroup_memory(folder: Path, limit_name: str, used_name: str) -> int | None:
    limit, used = _text(folder / limit_name).strip(), _text(folder / used_name).strip()
    if not limit.isdecimal() or not used.isdecimal():
        return None
    return max(1, int(limit) - int(used))


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""
