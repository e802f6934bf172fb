"""Ports of a host that several companions share: tried by binding, kept by a file, checked after the program started.

The file keeps companions of one user apart; binding keeps everybody else's ports out; and because neither is certain
until the program itself listens, `is_ours` looks who does.
"""

from __future__ import annotations

import contextlib
import os
import socket
import tempfile
from pathlib import Path

from gymnast.runtime.guard import descendants
from gymnast.runtime.listening import listening_pids, reserve

_TRIES = 64


class PortLease:
    """A port of this host that no other companion takes while we live."""

    def __init__(self, port: int, path: Path, held: socket.socket) -> None:
        self.port = port
        self._path = path
        self._held: socket.socket | None = held

    def let_bind(self) -> None:
        """Stop holding the port, for programs that do not set SO_REUSEADDR; the file still keeps it."""
        if self._held is not None:
            self._held.close()
            self._held = None

    def release(self) -> None:
        self.let_bind()
        with contextlib.suppress(OSError):
            self._path.unlink()


def lease_port(bind: str, folder: Path | None = None) -> PortLease:
    """A port that can be bound here now and that no companion of ours has leased."""
    folder = folder or Path(tempfile.gettempdir()) / f"gymnast-ports-{os.getuid()}"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    for _ in range(_TRIES):
        held = reserve(bind)
        port = held.getsockname()[1]
        path = folder / str(port)
        if _taken(path):
            return PortLease(port, path, held)
        held.close()
    raise OSError(f"no free port on {socket.gethostname()} after {_TRIES} tries; see {folder}")


def is_ours(port: int, ancestor: int) -> bool:
    """Whether who listens on a port is below a process of ours; true also where the system does not say who."""
    listeners = set(listening_pids(port))
    return not listeners or not listeners.isdisjoint(descendants(ancestor))


def _taken(path: Path) -> bool:
    """Make the lease's file, unless a living process has it."""
    for _ in range(2):
        try:
            with path.open("x") as stream:
                stream.write(f"{os.getpid()} {_start_of(os.getpid())}\n")
            return True
        except FileExistsError:
            if _is_alive(path):
                return False
            with contextlib.suppress(OSError):
                path.unlink()
    return False


def _is_alive(path: Path) -> bool:
    try:
        pid, start = path.read_text().split()
    except (OSError, ValueError):  # being written, or just gone: leave it alone
        return True
    return _start_of(int(pid)) == start


def _start_of(pid: int) -> str:
    """When a process began, in ticks since boot: a number used again is another process."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    except OSError:
        return "gone"
