"""Listening sockets that we bind ourselves; a port that we cannot have is an error that says who holds it."""

from __future__ import annotations

import errno
import socket

from gymnast.errors import PortTakenError, UserError
from gymnast.runtime.listening import holder_of


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
