"""Which calls go through a proxy: those to endpoints outside, as HTTPS_PROXY, HTTP_PROXY and NO_PROXY say.

Loopback addresses never do, and neither do calls between our own servers, which are not marked as external. Pure,
except for `open_tunnel`.
"""

from __future__ import annotations

import asyncio
import base64
from ipaddress import ip_address, ip_network
from typing import TYPE_CHECKING, Final, NamedTuple, cast
from urllib.parse import unquote, urlsplit

from gymnast.wire.http_connection import TransportError

if TYPE_CHECKING:
    import ssl

    from gymnast.config.environ import Network
    from gymnast.wire.http_connection import Connection

_MAX_HEAD_BYTES: Final = 64 * 1024
_SCHEMES: Final = frozenset({"http", "https"})


class Proxy(NamedTuple):
    """A proxy. Its credentials are only in `authorization`."""

    host: str
    port: int
    tls: bool
    authorization: str | None = None

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


def choose_proxy(network: Network, host: str, port: int, *, tls: bool) -> Proxy | None:
    """The proxy for an endpoint, or None. Raises TransportError if the variable's value cannot be used."""
    value = network.https_proxy if tls else network.http_proxy
    if not value or is_loopback(host) or _is_exempt(network.no_proxy, host, port):
        return None
    return _parse_proxy(value, "HTTPS_PROXY" if tls else "HTTP_PROXY")


def is_loopback(host: str) -> bool:
    """Whether an address leads to this machine."""
    name = host.rstrip(".").lower()
    if name == "localhost" or name.endswith(".localhost"):
        return True
    try:
        address = ip_address(name)
    except ValueError:
        return False
    return address.is_loopback or address.is_unspecified


def _is_exempt(no_proxy: str, host: str, port: int) -> bool:
    name = host.rstrip(".").lower()
    return any(_matches(entry, name, port) for entry in no_proxy.lower().replace(",", " ").split())


def _matches(entry: str, host: str, port: int) -> bool:
    """Whether an entry of NO_PROXY means a host: *, a name, a domain, an address or a network, perhaps with a port."""
    if entry == "*":
        return True
    pattern, _, number = entry.rpartition(":")
    if pattern and number.isdigit() and ("]" in pattern or ":" not in pattern):
        if int(number) != port:
            return False
        entry = pattern
    entry = entry.strip("[]")
    try:
        address = ip_address(host)
    except ValueError:
        domain = entry.removeprefix("*").lstrip(".")
        return bool(domain) and (host == domain or host.endswith(f".{domain}"))
    try:
        network = ip_network(entry, strict=False)
    except ValueError:
        return False
    return address.version == network.version and address in network


def _parse_proxy(value: str, variable: str) -> Proxy:
    try:
        parts = urlsplit(value if "://" in value else f"http://{value}")
        host, port = parts.hostname, parts.port
    except ValueError as error:
        raise TransportError(f"{variable} is not an address of a proxy: {error}") from error
    if parts.scheme not in _SCHEMES or not host:
        kind = f"'{parts.scheme}://' proxies are not supported" if host else "it has no host"
        raise TransportError(f"{variable} cannot be used: {kind}; expected http://HOST:PORT")
    authorization = None
    if parts.username is not None:
        user = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        authorization = f"Basic {base64.b64encode(user.encode()).decode()}"
    return Proxy(host, port or (443 if parts.scheme == "https" else 80), parts.scheme == "https", authorization)


async def open_tunnel(
    transport: asyncio.Transport,
    connection: Connection,
    proxy: Proxy,
    host: str,
    port: int,
    tls: ssl.SSLContext,
) -> None:
    """Ask the proxy for a connection to the endpoint, and put TLS and `connection` on top of it."""
    loop = asyncio.get_running_loop()
    reply = _TunnelReply(loop, proxy)
    transport.set_protocol(reply)
    address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    credentials = f"proxy-authorization: {proxy.authorization}\r\n" if proxy.authorization else ""
    transport.write(f"CONNECT {address} HTTP/1.1\r\nhost: {address}\r\n{credentials}\r\n".encode())
    try:
        _require_ok(await reply.status, proxy, address)
        secured = await loop.start_tls(transport, connection, tls, server_hostname=host)
    except BaseException:
        transport.abort()
        raise
    if secured is None:
        raise TransportError(f"the proxy {proxy} closed the connection to {address}")
    connection.connection_made(cast("asyncio.BaseTransport", secured))


def _require_ok(status: int, proxy: Proxy, address: str) -> None:
    if not 200 <= status < 300:
        hint = "; check the user and password in HTTPS_PROXY" if status == 407 else ""
        raise TransportError(f"the proxy {proxy} answered {status} to a connection to {address}{hint}")


class _TunnelReply(asyncio.Protocol):
    """Reads the head of a proxy's reply to CONNECT."""

    def __init__(self, loop: asyncio.AbstractEventLoop, proxy: Proxy) -> None:
        self.status: asyncio.Future[int] = loop.create_future()
        self._proxy = proxy
        self._head = b""

    def data_received(self, data: bytes) -> None:
        if self.status.done():
            return
        self._head += data
        if b"\r\n\r\n" in self._head:
            words = self._head.split(b"\r\n", 1)[0].split()
            if len(words) >= 2 and words[0].startswith(b"HTTP/") and words[1].isdigit():
                self.status.set_result(int(words[1]))
                return
            self.status.set_exception(TransportError(f"the reply of the proxy {self._proxy} is not HTTP"))
        elif len(self._head) > _MAX_HEAD_BYTES:
            self.status.set_exception(TransportError(f"the reply of the proxy {self._proxy} is too long"))

    def connection_lost(self, error: Exception | None) -> None:
        if not self.status.done():
            self.status.set_exception(TransportError(f"the proxy {self._proxy} closed the connection"))
