"""The HTTP client: a pool of connections, bounded by the file descriptors of the host, owned by an `async with`.

A model call through this client costs about 20 µs of CPU where aiohttp costs about 130 (bench/http_client.py), which
is most of what a rollout costs at all. It speaks what servers of this field need: HTTP/1.1 with keep-alive, TLS,
chunked and compressed answers. No redirects, no proxies, no cookies of its own, no retries.
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

from gymnast.wire.http_connection import Connection, HttpReply, StaleConnectionError, TransportError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import TracebackType

CONNECT_TIMEOUT_S: Final = 10.0
# vLLM and other uvicorn servers drop idle connections after 5 s; ours are gone before, so that none is reused dying.
_KEEPALIVE_S: Final = 4.0
_RESOLVED_FOR_S: Final = 60.0
_FD_RESERVE: Final = 256
_WANTED_FDS: Final = 65535
_PATH_SAFE: Final = "/%:@!$&'()*+,;=~-._"


Headers = tuple[tuple[str, str], ...]


class Origin(NamedTuple):
    """Where a connection leads."""

    host: str
    port: int
    tls: bool


class Target(NamedTuple):
    """A parsed URL: parse once, request often."""

    origin: Origin
    path: str
    host_header: str


@lru_cache(maxsize=4096)
def target_of(url: str) -> Target:
    """Parse a URL. Raises ValueError for anything but http:// and https:// with a host."""
    parts = urlsplit(url)
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise ValueError(f"not an http:// or https:// address: {url}")
    tls = parts.scheme == "https"
    default = 443 if tls else 80
    port = parts.port or default
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    path = quote(parts.path or "/", safe=_PATH_SAFE) + (f"?{parts.query}" if parts.query else "")
    return Target(Origin(parts.hostname, port, tls), path, host if port == default else f"{host}:{port}")


@lru_cache(maxsize=1024)
def request_head(method: str, target: Target, headers: Headers) -> bytes:
    """The part of a request that does not change from one to the next."""
    return f"{method} {target.path} HTTP/1.1\r\nhost: {target.host_header}\r\n".encode("latin-1") + header_lines(
        headers
    )


def header_lines(headers: Headers) -> bytes:
    """Headers as they are sent. A line break in one would be a header of its own, so it is refused."""
    lines = [f"{name}: {value}\r\n" for name, value in headers]
    if any(line.count("\r") + line.count("\n") != 2 for line in lines):
        raise ValueError("a header contains a line break")
    return "".join(lines).encode("latin-1")


class Slots:
    """A bounded number of slots; taking one costs nothing while there are some. First come, first served."""

    __slots__ = ("_free", "_waiting", "_within")

    def __init__(self, number: int, *, within: Slots | None = None) -> None:
        self._free = number
        self._within = within
        self._waiting: deque[asyncio.Future[None]] = deque()

    def take_now(self) -> bool:
        """Take a slot if one is free and nobody waits for it."""
        if self._free <= 0 or self._waiting or (self._within is not None and not self._within.take_now()):
            return False
        self._free -= 1
        return True

    async def wait(self) -> None:
        """Take a slot when one becomes free."""
        if self._within is not None and not self._within.take_now():
            await self._within.wait()
        if self._free > 0 and not self._waiting:
            self._free -= 1
            return
        turn = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self._hand_on()  # the slot came, but its taker is gone
            elif turn in self._waiting:
                self._waiting.remove(turn)
            if self._within is not None:
                self._within.give_back()
            raise

    def give_back(self) -> None:
        """Return a slot."""
        self._hand_on()
        if self._within is not None:
            self._within.give_back()

    def _hand_on(self) -> None:
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                return
        self._free += 1


class HttpClient:
    """A pool of connections. Deadlines are the caller's (`wire.deadline`); connecting has its own."""

    def __init__(self, *, max_connections: int | None = None, max_per_host: int | None = None) -> None:
        self._slots = Slots(min(max_connections or _WANTED_FDS, connection_budget()))
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

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._open = False
        if self._reaper is not None:
            self._reaper.cancel()
        for connections in self._idle.values():
            for connection in connections:
                connection.close()
        self._idle.clear()
        await asyncio.sleep(0)  # let transports finish closing inside the loop

    async def request(
        self,
        method: str,
        target: Target,
        headers: Headers = (),
        data: bytes | None = None,
        *,
        varying: Headers = (),
        repeatable: bool = False,
        timed: bool = False,
    ) -> HttpReply:
        """Send and read the whole answer. Raises TransportError when there is none.

        `headers` are the same in many requests and encoded once; `varying` ones are encoded each time.
        A `repeatable` request is sent again on a fresh connection when a kept-alive one turns out to be closed; others
        are never sent twice. The reply to a `timed` one says when each part of its body came.
        """
        body = data or b""
        fixed = request_head(method, target, headers)
        head = b"%b%bcontent-length: %d\r\n\r\n" % (fixed, header_lines(varying) if varying else b"", len(body))
        try:
            return await self._exchange(target.origin, head, body, timed=timed)
        except StaleConnectionError:
            if not repeatable:
                raise
            self._drop_idle(target.origin)
            return await self._exchange(target.origin, head, body, timed=timed)

    async def _exchange(self, origin: Origin, head: bytes, body: bytes, *, timed: bool) -> HttpReply:
        assert self._open, "the client is used inside its `async with`"
        slots = self._slots_for(origin)
        if not slots.take_now():
            await slots.wait()
        try:
            connection = self._take_idle(origin) or await self._connect(origin)
            reply = await connection.exchange(head, body, timed=timed)
        finally:
            slots.give_back()
        if connection.usable and self._open:
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
            self._host_slots[origin] = Slots(self._per_host, within=self._slots)
        return self._host_slots[origin]

    def _take_idle(self, origin: Origin) -> Connection | None:
        connections = self._idle.get(origin)
        limit = time.monotonic() - _KEEPALIVE_S
        while connections:
            connection = connections.pop()
            if connection.usable and connection.idle_since > limit:
                return connection
            connection.close()
        return None

    def _drop_idle(self, origin: Origin) -> None:
        for connection in self._idle.pop(origin, ()):
            connection.close()

    def _reap(self) -> None:
        """Close what has been idle too long; look again while anything is left."""
        limit = time.monotonic() - _KEEPALIVE_S
        self._reaper = None
        for origin, connections in list(self._idle.items()):
            kept = [connection for connection in connections if connection.usable and connection.idle_since > limit]
            for connection in set(connections) - set(kept):
                connection.close()
            if kept:
                self._idle[origin] = kept
            else:
                del self._idle[origin]
        if self._idle:
            self._reaper = asyncio.get_running_loop().call_later(_KEEPALIVE_S / 2, self._reap)

    async def _connect(self, origin: Origin) -> Connection:
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT_S):
                addresses = await self._addresses(origin)
                return await self._connect_to_any(loop, origin, addresses)
        except TimeoutError as error:
            raise TransportError(
                f"cannot connect to {origin.host}:{origin.port} within {CONNECT_TIMEOUT_S:g} s"
            ) from error
        except OSError as error:
            reason = error.strerror or str(error) or type(error).__name__
            raise TransportError(f"cannot connect to {origin.host}:{origin.port}: {reason}") from error

    async def _connect_to_any(
        self, loop: asyncio.AbstractEventLoop, origin: Origin, addresses: list[str]
    ) -> Connection:
        last: OSError | None = None
        for address in addresses:
            try:
                _, connection = await loop.create_connection(
                    lambda: Connection(loop),
                    address,
                    origin.port,
                    ssl=self._tls_context() if origin.tls else None,
                    server_hostname=origin.host if origin.tls else None,
                )
                return connection
            except OSError as error:
                last = error
        self._resolved.pop((origin.host, origin.port), None)
        raise last or OSError("the host name has no address")

    async def _addresses(self, origin: Origin) -> list[str]:
        """The addresses of a host, remembered for a minute: a thousand connections need not ask a thousand times."""
        if _is_address(origin.host):
            return [origin.host]
        known = self._resolved.get((origin.host, origin.port))
        if known is not None and known[0] > time.monotonic():
            return known[1]
        found = await asyncio.get_running_loop().getaddrinfo(origin.host, origin.port, type=1)
        addresses = list(dict.fromkeys(str(info[4][0]) for info in found))
        self._resolved[origin.host, origin.port] = (time.monotonic() + _RESOLVED_FOR_S, addresses)
        return addresses

    def _tls_context(self) -> ssl.SSLContext:
        if self._tls is None:
            self._tls = ssl.create_default_context()
        return self._tls


def header_items(headers: Mapping[str, str]) -> Headers:
    """Headers in the form `request` takes them."""
    return tuple(headers.items())


def raise_fd_limit() -> None:
    """Raise the soft limit of open files as far as the host allows."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _WANTED_FDS if hard == resource.RLIM_INFINITY else min(_WANTED_FDS, hard)
    if soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def connection_budget() -> int:
    """How many connections this process may hold open."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return max(16, soft - _FD_RESERVE)


@lru_cache(maxsize=1024)
def _is_address(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return False
    return True
