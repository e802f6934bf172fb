"""Control groups (v1 and v2) that limit the memory and processes of a whole jail and count its CPU time, where this
host lets us create them.

Elsewhere each process has its own limit and the jail's server adds them up.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from gymnast.sandbox.interface import Limits

ROOT: Final = Path("/sys/fs/cgroup")
SERVER_MEMORY_MB: Final = 64
"""Added for the jail's own server."""
PREFIX: Final = "gymnast-jail"


@dataclass(frozen=True, slots=True)
class Cgroup:
    """One jail's group; a directory per controller in v1."""

    folders: tuple[Path, ...]

    @property
    def procs(self) -> tuple[Path, ...]:
        return tuple(folder / "cgroup.procs" for folder in self.folders)

    def set_limits(self, limits: Limits) -> None:
        """Limit the jail. A limit that the kernel refuses is skipped; the others still apply."""
        size = (limits.memory_mb + limits.tmp_mb + SERVER_MEMORY_MB) << 20
        for name, value in (
            ("memory.max", size),
            ("memory.limit_in_bytes", size),
            ("memory.swap.max", 0),
            ("pids.max", limits.processes + 8),
        ):
            for folder in self.folders:
                _try_write(folder / name, str(value))

    def oom_kills(self) -> int:
        """How many processes the kernel has killed for memory so far."""
        for folder in self.folders:
            for name in ("memory.events", "memory.oom_control"):
                words = _read(folder / name).split()
                if "oom_kill" in words:
                    return int(words[words.index("oom_kill") + 1])
        return 0

    def cpu_s(self) -> float | None:
        """CPU time of all processes so far, also of those that have ended; None where the kernel does not count it."""
        for folder in self.folders:
            words = _read(folder / "cpu.stat").split()
            if "usage_usec" in words:
                return int(words[words.index("usage_usec") + 1]) / 1e6
            if usage := _read(folder / "cpuacct.usage"):
                return int(usage) / 1e9
        return None

    def remove(self) -> bool:
        """Delete the group. Returns False while processes are still exiting in it."""
        is_removed = True
        for folder in self.folders:
            try:
                folder.rmdir()
            except FileNotFoundError:
                continue
            except OSError:
                is_removed = False
        return is_removed


def find_cgroup_parents(
    where: Literal["auto", "off"] | Path, root: Path = ROOT, own: str | None = None
) -> tuple[Path, ...]:
    """The directories in which groups for jails can be created: none, one (v2), or one per controller (v1)."""
    if where == "off":
        return ()
    if isinstance(where, Path):
        return (where,)
    lines = (own if own is not None else _read(Path("/proc/self/cgroup"))).splitlines()
    version_1 = []
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if not {"memory", "pids", "cpuacct"}.isdisjoint(controllers.split(",")):
            version_1.append(root / controllers / path.lstrip("/"))
        elif controllers == "" and not version_1:
            folder = root / path.lstrip("/")
            if "memory" in _read(folder / "cgroup.subtree_control").split():
                return (folder,)
    return tuple(folder for folder in version_1 if os.access(folder, os.W_OK))


def create_cgroup(parents: Sequence[Path], name: str) -> Cgroup | None:
    """Create a group for one jail. Returns None where this host does not allow it."""
    created: list[Path] = []
    for parent in parents:
        path = parent / f"{PREFIX}-{os.getpid()}-{name}"
        try:
            path.mkdir()
        except OSError:
            continue
        created.append(path)
    return Cgroup(tuple(created)) if created else None


def remove_stale_cgroups(folders: Sequence[Path]) -> None:
    """Remove groups left behind by processes that were killed."""
    for folder in folders:
        for path in folder.glob(f"{PREFIX}-*"):
            owner = path.name.removeprefix(f"{PREFIX}-").split("-")[0]
            if owner.isdigit() and not Path("/proc", owner).exists():
                Cgroup((path,)).remove()


def _try_write(path: Path, text: str) -> None:
    with contextlib.suppress(OSError):
        path.write_text(text)


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""
