"""The HTTP client: a connection pool bounded by the host's file descriptors, owned by an `async with`.

A model call costs about 20 µs of CPU where aiohttp costs about 130 (bench/http_client.py), which is most of the cost
of a rollout. Supports HTTP/1.1 with keep-alive, TLS, and chunked and compressed replies. Calls to
endpoints outside go through a proxy where the environment says so (`wire.proxy`). No redirects, cookie jar or retries.

Invariants: a connection is idle, in exactly one exchange, or closed. An exchange holds a slot of its origin and of the
pool from before it connects until its reply is read. Idle connections hold no slot and are closed after 4 s, before a
server would drop them. A request is sent twice only if it is `idempotent` and a kept-alive connection was stale.
"""

from __future__ import annotations

import asyncio
import resource
import ssl
import time
from collections import deque
from functools import lru_cache
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self
from urllib.parse import quote, urlsplit

from gymnast.config.environ import read_network
from gymnast.wire.http_connection import MAX_REPLY_BYTES, Connection, HttpReply, StaleConnectionError, TransportError
from gymnast.wire.proxy import choose_proxy, open_tunnel

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gymnast.config.environ import Network
    from gymnast.wire.proxy import Proxy

CONNECT_TIMEOUT_S: Final = 10.0
# vLLM and other uvicorn servers drop idle connections after 5 s; we close ours first and never reuse a dying one.
_KEEPALIVE_S: Final = 4.0
_DNS_TTL_S: Final = 60.0
_FD_RESERVE: Final = 256
_TARGET_FDS: Final = 65535
_PATH_SAFE: Final = "/%:@!$&'()*+,;=~-._"


Headers = tuple[tuple[str, str], ...]


class Origin(NamedTuple):
    """The server a connection leads to."""

    host: str
    port: int
    tls: bool
    external: bool = False
    """An endpoint that is not one of our servers: it may be reached through a proxy."""


class Target(NamedTuple):
    """A parsed URL: parse once, request often."""

    origin: Origin
    path: str
    host_header: str


@lru_cache(maxsize=4096)
def parse_target(url: str, *, external: bool = False) -> Target:
    """Parse a URL. Raises ValueError for anything but http:// and https:// with a host.

    `external` endpoints may be called through a proxy.
    """
    parts = urlsplit(url)
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise ValueError(f"not an http:// or https:// address: {url}")
    tls = parts.scheme == "https"
    default = 443 if tls else 80
    port = parts.port or default
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    path = quote(parts.path or "/", safe=_PATH_SAFE) + (f"?{parts.query}" if parts.query else "")
    return Target(Origin(parts.hostname, port, tls, external), path, host if port == default else f"{host}:{port}")


@lru_cache(maxsize=1024)
def encode_request_head(method: str, target: Target, headers: Headers) -> bytes:
    """The part of a request head that repeats across requests."""
    line = f"{method} {target.path} HTTP/1.1\r\nhost: {target.host_header}\r\n"
    return line.encode("latin-1") + encode_headers(headers)


@lru_cache(maxsize=1024)
def encode_proxied_head(method: str, target: Target, headers: Headers, proxy: Proxy) -> bytes:
    """The same for a proxy that passes a request on: with the whole address, and the proxy's credentials."""
    line = f"{method} http://{target.host_header}{target.path} HTTP/1.1\r\nhost: {target.host_header}\r\n"
    credentials = (("proxy-authorization", proxy.authorization),) if proxy.authorization else ()
    return line.encode("latin-1") + encode_headers((*credentials, *headers))


def encode_headers(headers: Headers) -> bytes:
    """Encode headers for the wire. Raises ValueError for line breaks, which would inject another header."""
    lines = [f"{name}: {value}\r\n" for name, value in headers]
    if any(line.count("\r") + line.count("\n") != 2 for line in lines):
        raise ValueError("a header contains a line break")
    return "".join(lines).encode("latin-1")


class Slots:
    """A fair semaphore whose uncontended path does not await. A slot also takes one of `parent`."""

    __slots__ = ("_free", "_parent", "_waiting")

    def __init__(self, number: int, *, parent: Slots | None = None) -> None:
        self._free = number
        self._parent = parent
        self._waiting: deque[asyncio.Future[None]] = deque()

    def try_acquire(self) -> bool:
        """Take a slot if one is free and no other task is waiting."""
        if self._free <= 0 or self._waiting or (self._parent is not None and not self._parent.try_acquire()):
            return False
        self._free -= 1
        return True

    async def acquire(self) -> None:
        """Wait for a slot and take it."""
        if self._parent is not None and not self._parent.try_acquire():
            await self._parent.acquire()
        if self._free > 0 and not self._waiting:
            self._free -= 1
            return
        waiter = asyncio.get_running_loop().create_future()
        self._waiting.append(waiter)
        try:
            await waiter
        except asyncio.CancelledError:
            if waiter.done() and not waiter.cancelled():
                self._release_slot()  # granted, but the waiter was cancelled
            elif waiter in self._waiting:
                self._waiting.remove(waiter)
            if self._parent is not None:
                self._parent.release()
            raise

    def release(self) -> None:
        self._release_slot()
        if self._parent is not None:
            self._parent.release()

    def _release_slot(self) -> None:
        while self._waiting:
            waiter = self._waiting.popleft()
            if not waiter.done():
                waiter.set_result(None)
                return
        self._free += 1


class HttpClient:
    """A connection pool. Callers set deadlines (`wire.deadline`); only connecting has its own."""

    def __init__(
        self,
        *,
        max_connections: int | None = None,
        max_per_host: int | None = None,
        network: Network | None = None,
        max_reply_bytes: int = MAX_REPLY_BYTES,
    ) -> None:
        """`network` has the proxies and certificates; by default those of the process environment."""
        self._max_reply_bytes = max_reply_bytes
        self._network = network if network is not None else read_network()
        self._proxies: dict[Origin, Proxy | None] = {}
        self._slots = Slots(min(max_connections or _TARGET_FDS, max_open_connections()))
        self._per_host = max_per_host
        self._host_slots: dict[Origin, Slots] = {}
        self._idle: dict[Origin, list[Connection]] = {}
        self._resolved: dict[tuple[str, int], tuple[float, list[Any]]] = {}
        self._tls: ssl.SSLContext | None = None
        self._reaper: asyncio.TimerHandle | None = None
        self._open = False

    async def __aenter__(self) -> Self:
        self._open = True
        return self

    async def __aexit__(self, *_: object) -> None:
        self._open = False
        if self._reaper is not None:
            self._reaper.cancel()
        for connections in self._idle.values():
            for connection in connections:
                connection.close()
        self._idle.clear()
        await asyncio.sleep(0)  # let transports finish closing while the loop runs

    async def request(
        self,
        method: str,
        target: Target,
        headers: Headers = (),
        data: bytes | None = None,
        *,
        extra_headers: Headers = (),
        idempotent: bool = False,
        record_arrivals: bool = False,
    ) -> HttpReply:
        """Send a request and read the whole reply. Raises TransportError if there is none.

        `headers` repeat across requests and are encoded once; `extra_headers` are encoded each time. An `idempotent`
        request is sent again on a fresh connection when a kept-alive one turns out to be closed; others are never sent
        twice. With `record_arrivals`, the reply says when each part of its body arrived.
        """
        body = data or b""
        proxy = self._proxy_for(target.origin) if target.origin.external else None
        if proxy is None or target.origin.tls:
            start = encode_request_head(method, target, headers)
        else:
            start = encode_proxied_head(method, target, headers, proxy)
        extra = encode_headers(extra_headers) if extra_headers else b""
        head = b"%b%bcontent-length: %d\r\n\r\n" % (start, extra, len(body))
        try:
            return await self._exchange(target.origin, head, body, record_arrivals=record_arrivals)
        except StaleConnectionError:
            if not idempotent:
                raise
            self._drop_idle(target.origin)
            return await self._exchange(target.origin, head, body, record_arrivals=record_arrivals)

    async def _exchange(self, origin: Origin, head: bytes, body: bytes, *, record_arrivals: bool) -> HttpReply:
        assert self._open, "the client is used inside its `async with`"
        slots = self._slots_for(origin)
        if not slots.try_acquire():
            await slots.acquire()
        try:
            connection = self._take_idle(origin) or await self._connect(origin)
            reply = await connection.exchange(head, body, record_arrivals=record_arrivals)
        finally:
            slots.release()
        if connection.is_usable and self._open:
            connection.idle_since = time.monotonic()
            self._idle.setdefault(origin, []).append(connection)
            if self._reaper is None:
                self._reaper = asyncio.get_running_loop().call_later(_KEEPALIVE_S, self._reap)
        else:
            connection.close()
        return reply

    def _slots_for(self, origin: Origin) -> Slots:
        if self._per_host is None:
            return self._slots
        if origin not in self._host_slots:
            self._host_slots[origin] = Slots(self._per_host, parent=self._slots)
        return self._host_slots[origin]

    def _take_idle(self, origin: Origin) -> Connection | None:
        connections = self._idle.get(origin)
        limit = time.monotonic() - _KEEPALIVE_S
        while connections:
            connection = connections.pop()
            if connection.is_usable and connection.idle_since > limit:
                return connection
            connection.close()
        return None

    def _drop_idle(self, origin: Origin) -> None:
        for connection in self._idle.pop(origin, ()):
            connection.close()

    def _reap(self) -> None:
        """Close connections that have been idle too long; reschedule while any are left."""
        limit = time.monotonic() - _KEEPALIVE_S
        self._reaper = None
        for origin, connections in list(self._idle.items()):
            fresh = [connection for connection in connections if connection.is_usable and connection.idle_since > limit]
            for connection in set(connections) - set(fresh):
                connection.close()
            if fresh:
                self._idle[origin] = fresh
            else:
                del self._idle[origin]
        if self._idle:
            self._reaper = asyncio.get_running_loop().call_later(_KEEPALIVE_S / 2, self._reap)

    def _proxy_for(self, origin: Origin) -> Proxy | None:
        if origin not in self._proxies:
            self._proxies[origin] = choose_proxy(self._network, origin.host, origin.port, tls=origin.tls)
        return self._proxies[origin]

    async def _connect(self, origin: Origin) -> Connection:
        loop = asyncio.get_running_loop()
        proxy = self._proxy_for(origin) if origin.external else None
        through = f" through the proxy {proxy}" if proxy is not None else ""
        place = f"{origin.host}:{origin.port}{through}"
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT_S):
                if proxy is None:
                    _, connection = await self._connect_to_any(loop, origin)
                    return connection
                return await self._connect_through(loop, origin, proxy)
        except TimeoutError as error:
            raise TransportError(f"cannot connect to {place} within {CONNECT_TIMEOUT_S:g} s") from error
        except ssl.SSLCertVerificationError as error:
            text = f"certificate verify failed for {place}: {error.verify_message}; {self._cert_hint()}"
            raise TransportError(text) from error
        except OSError as error:
            reason = error.strerror or str(error) or type(error).__name__
            raise TransportError(f"cannot connect to {place}: {reason}") from error

    async def _connect_through(self, loop: asyncio.AbstractEventLoop, origin: Origin, proxy: Proxy) -> Connection:
        transport, connection = await self._connect_to_any(loop, Origin(proxy.host, proxy.port, proxy.tls))
        if origin.tls:
            await open_tunnel(transport, connection, proxy, origin.host, origin.port, self._tls_context())
        return connection

    async def _connect_to_any(
        self, loop: asyncio.AbstractEventLoop, origin: Origin
    ) -> tuple[asyncio.Transport, Connection]:
        last: OSError | None = None
        for address in await self._addresses(origin):
            try:
                return await loop.create_connection(
                    lambda: Connection(loop, self._max_reply_bytes),
                    address,
                    origin.port,
                    ssl=self._tls_context() if origin.tls else None,
                    server_hostname=origin.host if origin.tls else None,
                )
            except OSError as error:
                last = error
        self._resolved.pop((origin.host, origin.port), None)
        raise last or OSError("the host name has no address")

    def _cert_hint(self) -> str:
        for name, path in (("SSL_CERT_FILE", self._network.cert_file), ("SSL_CERT_DIR", self._network.cert_dir)):
            if path is not None and not path.exists():
                return f"{name} is {path}, which does not exist"
        return "set SSL_CERT_FILE to a file with the certificate of its authority"

    async def _addresses(self, origin: Origin) -> list[str]:
        """The addresses of a host, cached for a minute so that a thousand connections resolve it once."""
        if _is_address(origin.host):
            return [origin.host]
        cached = self._resolved.get((origin.host, origin.port))
        if cached is not None and cached[0] > time.monotonic():
            return cached[1]
        infos = await asyncio.get_running_loop().getaddrinfo(origin.host, origin.port, type=1)
        addresses = list(dict.fromkeys(str(info[4][0]) for info in infos))
        self._resolved[origin.host, origin.port] = (time.monotonic() + _DNS_TTL_S, addresses)
        return addresses

    def _tls_context(self) -> ssl.SSLContext:
        if self._tls is None:
            self._tls = ssl.create_default_context()
        return self._tls


def header_items(headers: Mapping[str, str]) -> Headers:
    """Headers in the form that `request` takes."""
    return tuple(headers.items())


def raise_fd_limit() -> None:
    """Raise the soft limit on open files as far as the host allows."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    target = _TARGET_FDS if hard == resource.RLIM_INFINITY else min(_TARGET_FDS, hard)
    if soft < target:
        resource.setrlimit(resource.RLIMIT_NOFILE, (target, hard))


def max_open_connections() -> int:
    """The number of connections this process may hold open."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return max(16, soft - _FD_RESERVE)


@lru_cache(maxsize=1024)
def _is_address(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return False
    return True
