"""Control groups for jails: a bound on a whole jail's memory and processes, where this host lets us make one.

Versions 1 and 2. Where none can be made, each process has its own limit and the jail's server sums them up.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from gymnast.kit.sandbox.interface import Limits

ROOT: Final = Path("/sys/fs/cgroup")
OVERHEAD_MB: Final = 64
"""For the jail's server itself."""
PREFIX: Final = "gymnast-jail"


@dataclass(frozen=True, slots=True)
class Group:
    """One jail's groups; version 1 has one for each controller."""

    folders: tuple[Path, ...]

    @property
    def procs(self) -> tuple[Path, ...]:
        return tuple(folder / "cgroup.procs" for folder in self.folders)

    def bound(self, limits: Limits) -> None:
        """Set what the jail may use; a kernel that refuses leaves the other limits standing."""
        size = (limits.memory_mb + limits.tmp_mb + OVERHEAD_MB) << 20
        for name, value in (
            ("memory.max", size),
            ("memory.limit_in_bytes", size),
            ("memory.swap.max", 0),
            ("pids.max", limits.processes + 8),
        ):
            for folder in self.folders:
                _written(folder / name, str(value))

    def memory_kills(self) -> int:
        """Processes that the kernel killed for memory, so far."""
        for folder in self.folders:
            for name in ("memory.events", "memory.oom_control"):
                words = _read(folder / name).split()
                if "oom_kill" in words:
                    return int(words[words.index("oom_kill") + 1])
        return 0

    def remove(self) -> bool:
        """False while processes are still dying in it."""
        done = True
        for folder in self.folders:
            try:
                folder.rmdir()
            except FileNotFoundError:
                continue
            except OSError:
                done = False
        return done


def places(where: Literal["auto", "off"] | Path, root: Path = ROOT, own: str | None = None) -> tuple[Path, ...]:
    """Folders below which groups for jails can be made: none, one (version 2), or one for each controller."""
    if where == "off":
        return ()
    if isinstance(where, Path):
        return (where,)
    lines = (own if own is not None else _read(Path("/proc/self/cgroup"))).splitlines()
    version_1 = []
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers in ("memory", "pids"):
            version_1.append(root / controllers / path.lstrip("/"))
        elif controllers == "" and not version_1:
            folder = root / path.lstrip("/")
            if "memory" in _read(folder / "cgroup.subtree_control").split():
                return (folder,)
    return tuple(folder for folder in version_1 if os.access(folder, os.W_OK))


def make(folders: Sequence[Path], name: str) -> Group | None:
    """A group for one jail, or None where this host does not let us."""
    made: list[Path] = []
    for folder in folders:
        path = folder / f"{PREFIX}-{os.getpid()}-{name}"
        try:
            path.mkdir()
        except OSError:
            continue
        made.append(path)
    return Group(tuple(made)) if made else None


def sweep(folders: Sequence[Path]) -> None:
    """Remove what owners that were killed have left behind."""
    for folder in folders:
        for path in folder.glob(f"{PREFIX}-*"):
            owner = path.name.removeprefix(f"{PREFIX}-").split("-")[0]
            if owner.isdigit() and not Path("/proc", owner).exists():
                Group((path,)).remove()


def _written(path: Path, text: str) -> bool:
    try:
        path.write_text(text)
    except OSError:
        return False
    return True


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""
