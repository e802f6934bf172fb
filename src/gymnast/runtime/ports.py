"""Listening sockets that we bind ourselves, and who holds a port that we cannot have."""

from __future__ import annotations

import errno
import socket
from pathlib import Path
from typing import TYPE_CHECKING

from gymnast.errors import PortTakenError, UserError

if TYPE_CHECKING:
    from collections.abc import Iterator


def bind(host: str, port: int, *, what: str, way_on: str) -> socket.socket:
    """A bound, listening socket. Port 0 takes a free one. A taken port is an error that says who holds it."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_STREAM)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        sock.bind((host, port))
        sock.listen(4096)
    except OSError as error:
        sock.close()
        if error.errno == errno.EADDRINUSE:
            holder = holder_of(port)
            by = f" by {holder}" if holder else " by another process"
            raise PortTakenError(
                f"port {port} is already used{by}", where=f"{what} on {host}:{port}", next=way_on
            ) from error
        raise UserError(
            f"cannot listen on {host}:{port}: {error.strerror or error}", where=what, next="check the host name"
        ) from error
    sock.setblocking(False)  # noqa: FBT003 - the standard library's signature
    return sock


def reserve(host: str, port: int = 0) -> socket.socket:
    """A port kept for a program that will listen on it itself: bound, not listening.

    A program that sets SO_REUSEADDR, as servers do, can bind it while we hold it; the kernel gives it to nobody else.
    """
    sock = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        sock.bind((host, port))
    except OSError:
        sock.close()
        raise
    return sock


def advertised(host: str) -> str:
    """The address others can use for a server bound to `host`: a wildcard is reached under this machine's own."""
    if host not in {"0.0.0.0", "::"}:  # noqa: S104 - compared, not bound
        return host
    return own_address()


def own_address() -> str:
    """This machine's address by its own name, or loopback where the name does not resolve."""
    try:
        return socket.gethostbyname(socket.gethostname())
    except OSError:
        return "127.0.0.1"


def holder_of(port: int) -> str | None:
    """`name (pid N)` of the process that listens on a TCP port here, as far as /proc tells us."""
    for process in _listeners(port):
        try:
            return f"{(process / 'comm').read_text().strip()} (pid {process.name})"
        except OSError:
            continue
    return None


def listening_pids(port: int) -> list[int]:
    """The processes that listen on a TCP port here, as far as /proc tells us."""
    return [int(process.name) for process in _listeners(port)]


def _listeners(port: int) -> Iterator[Path]:
    inodes = {inode for table in ("/proc/net/tcp", "/proc/net/tcp6") for inode in _listening_inodes(Path(table), port)}
    if inodes:
        yield from (process for process in Path("/proc").glob("[0-9]*") if inodes & _socket_inodes(process))


def _listening_inodes(table: Path, port: int) -> set[str]:
    try:
        rows = table.read_text().splitlines()[1:]
    except OSError:
        return set()
    fields = [row.split() for row in rows]
    return {row[9] for row in fields if row[3] == "0A" and int(row[1].rsplit(":", 1)[1], 16) == port}


def _socket_inodes(process: Path) -> set[str]:
    found: set[str] = set()
    try:
        for link in (process / "fd").iterdir():
            target = str(link.readlink())
            if target.startswith("socket:["):
                found.add(target[8:-1])
    except OSError:  # gone, or not ours to look at
        pass
    return found
