"""TCP ports of this machine: reserving one for another program, and who listens on one. Standard library only."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


def reserve_port(host: str, port: int = 0) -> socket.socket:
    """Reserve a port for a program that will listen on it: bound, not listening.

    A program that sets SO_REUSEADDR, as servers do, can bind it while we hold it; the kernel assigns it to no other.
    """
    sock = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        sock.bind((host, port))
    except OSError:
        sock.close()
        raise
    return sock


def port_holder(port: int) -> str | None:
    """`name (pid N)` of the process that listens on a TCP port here, as far as /proc shows."""
    for process in _listeners(port):
        try:
            return f"{(process / 'comm').read_text().strip()} (pid {process.name})"
        except OSError:
            continue
    return None


def listening_pids(port: int) -> list[int]:
    """The processes that listen on a TCP port here, as far as /proc shows."""
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
    inodes: set[str] = set()
    try:
        for link in (process / "fd").iterdir():
            target = str(link.readlink())
            if target.startswith("socket:["):
                inodes.add(target[8:-1])
    except OSError:  # it ended, or belongs to another user
        pass
    return inodes
