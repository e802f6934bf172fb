"""How many rollouts may be in flight: the host's limits, and those that agents and environments declare."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from gymnast.rollouts.engine import DEFAULT_CAP
from gymnast.wire.http_client import max_open_connections

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gymnast.config import Instance

_CGROUP: Final = Path("/sys/fs/cgroup")
_LIMITS: Final = (
    ("memory.max", "memory.current"),
    ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes"),
)
_BYTES_PER_ROLLOUT: Final = 2 * 1024 * 1024
_FEW: Final = 64
"""A cap below this is worth a word even if no concurrency was requested."""


def agent_limits(instances: Iterable[Instance]) -> dict[str, int]:
    """The maximum number of rollouts in flight of each agent that has one, set on the agent or its environment."""
    by_name = {instance.name: instance for instance in instances}
    allowed: dict[str, int] = {}
    for instance in by_name.values():
        if instance.kind == "responses_api_agents":
            needed = [instance, *(by_name[ref.name] for ref in instance.refs.values() if ref.name in by_name)]
            values = [server.settings.get(key) for server in needed for key in ("max_rollouts", "max_sessions")]
            limits = [value for value in values if isinstance(value, int)]
            if limits:
                allowed[instance.name] = min(limits)
    return allowed


class HostCap(NamedTuple):
    """The maximum number of rollouts in flight on this host, and what would raise it."""

    rollouts: int
    remedy: str

    def warn(self, concurrency: int | None) -> list[str]:
        """A warning if rollouts in flight are limited to fewer than requested, or to so few that a run is slow."""
        if self.rollouts >= (_FEW if concurrency is None else concurrency):
            return []
        wanted = "" if concurrency is None else f" instead of {concurrency}"
        return [f"at most {self.rollouts} rollouts run at once{wanted}: {self.remedy}"]


def host_cap() -> HostCap:
    """What the host's open files and memory allow."""
    memory = available_memory_bytes()
    files = max_open_connections()
    caps = [
        HostCap(DEFAULT_CAP, "one engine runs no more; gymnast submit runs several"),
        HostCap(files // 2, "raise the limit of open files (ulimit -n)"),
    ]
    if memory is not None:
        caps.append(HostCap(max(1, memory // _BYTES_PER_ROLLOUT), "there is little free memory on this host"))
    return min(caps, key=lambda cap: cap.rollouts)


def available_memory_bytes() -> int | None:
    """Memory available without swapping; None if unknown."""
    sizes = (_host_memory(), *(_cgroup_memory(*pair) for pair in _LIMITS))
    return min((size for size in sizes if size), default=None)


def _host_memory() -> int | None:
    match = re.search(r"^MemAvailable:\s+(\d+) kB", _text(Path("/proc/meminfo")), re.MULTILINE)
    return int(match[1]) * 1024 if match else None


def _cgroup_memory(limit_name: str, used_name: str) -> int | None:
    limit, used = _text(_CGROUP / limit_name).strip(), _text(_CGROUP / used_name).strip()
    if not limit.isdecimal() or not used.isdecimal():
        return None
    return max(1, int(limit) - int(used))


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""
