"""Which `Host` headers a server answers without a token.

A public name can be pointed at this address by anyone (DNS rebinding). Addresses, single-label names and names below
private domains cannot: they are answered, and so is this host's own name. Others need `GYMNAST_ALLOWED_HOSTS`.
"""

from __future__ import annotations

import re
import socket
from typing import Final

from gymnast.config.environ import ALLOWED_HOSTS, read_allowed_hosts

HINT: Final = f"list it in {ALLOWED_HOSTS}, or use a token"
_PRIVATE: Final = ("localhost", "local", "internal", "lan", "corp", "intranet", "private", "svc", "test", "home.arpa")
_ADDRESS: Final = re.compile(r"\[[0-9a-f:.%]+\]|[0-9.]+")
_PORT: Final = re.compile(r":[0-9]*\Z")
_MAX_REMEMBERED: Final = 256


class AllowedHosts:
    """Decides by the name alone, and remembers its decisions."""

    def __init__(self, names: tuple[str, ...] | None = None) -> None:
        """`names`: further allowed names, `*` for any; by default those in the environment variable."""
        given = names if names is not None else read_allowed_hosts()
        self._names = frozenset(name.lower().rstrip(".") for name in given)
        self._decisions: dict[bytes, bool] = {}

    def allows(self, header: bytes) -> bool:
        decision = self._decisions.get(header)
        if decision is None:
            decision = self._decide(header.decode("latin-1").strip().lower())
            if len(self._decisions) < _MAX_REMEMBERED:
                self._decisions[header] = decision
        return decision

    def _decide(self, host: str) -> bool:
        name = _PORT.sub("", host).rstrip(".")
        if not name or "*" in self._names or name in self._names:  # HTTP/1.0 clients send no host; browsers do
            return True
        if _ADDRESS.fullmatch(name) or "." not in name or name.endswith(tuple(f".{domain}" for domain in _PRIVATE)):
            return True
        return any(_is_in_domain(name, own.lower()) for own in (socket.gethostname(), socket.getfqdn()))


def _is_in_domain(name: str, own: str) -> bool:
    domain = own.partition(".")[2]
    return name == own or ("." in domain and name.endswith(f".{domain}"))
