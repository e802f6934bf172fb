"""Ports of a host that several sidecars share: tested by binding, kept by a file, checked after the program started.

The file keeps sidecars of one user apart, binding keeps out ports of other programs. Neither is certain until the
program itself listens, so `is_owned_by` checks who does.
"""

from __future__ import annotations

import contextlib
import os
import socket
import tempfile
from pathlib import Path

from gymnast.runtime.guard import descendants
from gymnast.runtime.listening_ports import listening_pids, reserve_port

_TRIES = 64


class PortLease:
    """A port of this host that no other sidecar takes while this process lives."""

    def __init__(self, port: int, path: Path, bound: socket.socket) -> None:
        self.port = port
        self._path = path
        self._bound: socket.socket | None = bound

    def unbind(self) -> None:
        """Stop binding the port, for programs that do not set SO_REUSEADDR. The file still keeps it."""
        if self._bound is not None:
            self._bound.close()
            self._bound = None

    def release(self) -> None:
        self.unbind()
        with contextlib.suppress(OSError):
            self._path.unlink()


def lease_port(bind: str, folder: Path | None = None) -> PortLease:
    """Lease a port that can be bound now and that no other sidecar has leased."""
    folder = folder or Path(tempfile.gettempdir()) / f"gymnast-ports-{os.getuid()}"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    for _ in range(_TRIES):
        bound = reserve_port(bind)
        port = bound.getsockname()[1]
        path = folder / str(port)
        if _create_lease_file(path):
            return PortLease(port, path, bound)
        bound.close()
    raise OSError(f"no free port on {socket.gethostname()} after {_TRIES} tries; see {folder}")


def is_owned_by(port: int, ancestor: int) -> bool:
    """Whether the listener on a port descends from a process. True if the system does not tell who listens."""
    listeners = set(listening_pids(port))
    return not listeners or not listeners.isdisjoint(descendants(ancestor))


def _create_lease_file(path: Path) -> bool:
    """Create the file of a lease, unless a live process has it."""
    for _ in range(2):
        try:
            with path.open("x") as stream:
                stream.write(f"{os.getpid()} {_process_start(os.getpid())}\n")
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
    except (OSError, ValueError):  # being written, or just removed: leave it alone
        return True
    return _process_start(int(pid)) == start


def _process_start(pid: int) -> str:
    """When a process started, in ticks since boot: a reused pid is another process."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    except OSError:
        return "gone"
