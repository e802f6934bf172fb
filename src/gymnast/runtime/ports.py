"""Listening sockets. Binding a taken port is an error that names the process that holds it."""

from __future__ import annotations

import errno
import socket

from gymnast.errors import PortTakenError, UserError
from gymnast.runtime.listening_ports import port_holder


def bind_socket(host: str, port: int, *, what: str, hint: str) -> socket.socket:
    """A bound, listening socket; port 0 chooses a free port. `hint` says what to do if the port is taken."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_STREAM)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        sock.bind((host, port))
        sock.listen(4096)
    except OSError as error:
        sock.close()
        if error.errno == errno.EADDRINUSE:
            holder = port_holder(port)
            by = f" by {holder}" if holder else " by another process"
            raise PortTakenError(
                f"port {port} is already used{by}", where=f"{what} on {host}:{port}", next=hint
            ) from error
        raise UserError(
            f"cannot listen on {host}:{port}: {error.strerror or error}", where=what, next="check the host name"
        ) from error
    sock.setblocking(False)  # noqa: FBT003 - the standard library's signature
    return sock


def advertised_host(host: str) -> str:
    """The address at which others reach a server bound to `host`; for a wildcard, this machine's own."""
    if host not in {"0.0.0.0", "::"}:  # noqa: S104 - compared, not bound
        return host
    return local_address()


def local_address() -> str:
    """The address of this machine's host name, or loopback if it does not resolve."""
    try:
        return socket.gethostbyname(socket.gethostname())
    except OSError:
        return "127.0.0.1"
