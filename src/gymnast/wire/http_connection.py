"""One HTTP/1.1 connection: writes a request, parses the reply with httptools. One exchange at a time."""

from __future__ import annotations

import asyncio
import time
import zlib
from typing import TYPE_CHECKING, Final, cast

import httptools

from gymnast.errors import GymnastError

if TYPE_CHECKING:
    from collections.abc import Iterator

MAX_REPLY_BYTES: Final = 256 * 1024 * 1024
"""Default limit of a reply, also after decompression. A long rollout with log-probabilities has some ten megabytes."""
_TLS_ALERT: Final = b"\x15\x03"
_LENGTH_HEADERS: Final = frozenset({b"content-length", b"transfer-encoding"})
_MAX_JOINED_BYTES: Final = 64 * 1024  # up to this size, joining head and body is cheaper than a second write


class TransportError(GymnastError):
    """No reply: refused, reset, truncated or not HTTP."""


class StaleConnectionError(TransportError):
    """The server closed a kept-alive connection before it replied."""


class ReplyTooLargeError(TransportError):
    """The reply exceeds the limit. The endpoint answers, but not with something that can be used."""


class HttpReply:
    """Status, headers and body of a reply."""

    __slots__ = ("_raw_headers", "arrivals", "body", "status")

    def __init__(self, status: int, raw_headers: list[tuple[bytes, bytes]], body: bytes) -> None:
        self.status = status
        self.body = body
        self.arrivals: list[tuple[float, int]] = []
        """With `record_arrivals`: when each part of the body arrived (seconds since sending), and its size in bytes."""
        self._raw_headers = raw_headers

    def headers(self) -> Iterator[tuple[str, str]]:
        """Lower-case names and values."""
        for name, value in self._raw_headers:
            yield name.decode("latin-1"), value.decode("latin-1")

    def header(self, name: str) -> str | None:
        """The value of a header, by its lower-case name, or None."""
        return next((value for key, value in self.headers() if key == name), None)


class Connection(asyncio.Protocol):
    """A pooled connection. `idle_since` belongs to the pool."""

    __slots__ = (
        *("_arrivals", "_body", "_complete_at_eof", "_headers", "_loop", "_max_bytes", "_parser", "_received", "_sent"),
        *("_transport", "_used", "_waiter"),
        *("idle_since", "keep_alive"),
    )

    def __init__(self, loop: asyncio.AbstractEventLoop, max_bytes: int = MAX_REPLY_BYTES) -> None:
        self._loop = loop
        self._max_bytes = max_bytes
        self._received = 0
        """Bytes of the body so far."""
        self._parser = httptools.HttpResponseParser(self)
        self._transport: asyncio.Transport | None = None
        self._waiter: asyncio.Future[HttpReply] | None = None
        self._headers: list[tuple[bytes, bytes]] = []
        self._body: list[bytes] = []
        self._arrivals: list[tuple[float, int]] | None = None
        self._sent = 0.0
        self._complete_at_eof = False
        self._used = False
        self.idle_since = 0.0
        self.keep_alive = True

    @property
    def is_usable(self) -> bool:
        return self.keep_alive and self._transport is not None and not self._transport.is_closing()

    def close(self) -> None:
        self.keep_alive = False
        if self._transport is not None:
            self._transport.abort()

    async def exchange(self, head: bytes, body: bytes, *, record_arrivals: bool = False) -> HttpReply:
        """Send a request and wait for its reply. An exchange that is interrupted closes the connection."""
        transport = self._transport
        if transport is None or transport.is_closing():
            raise StaleConnectionError("the server closed the connection")
        self._headers, self._body, self._complete_at_eof = [], [], False
        self._received = 0
        self._arrivals = None
        if record_arrivals:
            self._arrivals, self._sent = [], time.perf_counter()
        waiter = self._waiter = self._loop.create_future()
        if len(body) < _MAX_JOINED_BYTES:
            transport.write(head + body)
        else:
            transport.writelines((head, body))
        try:
            reply: HttpReply = await waiter
        except BaseException:
            self.close()
            raise
        finally:
            self._waiter = None
        self._used = True
        return reply

    # --- asyncio -----------------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's transports do not subclass asyncio's

    def data_received(self, data: bytes) -> None:
        if self._waiter is None:
            self.close()  # unsolicited data must not be taken for the next reply
            return
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            if data.startswith(_TLS_ALERT):
                self._fail(TransportError("the server expects TLS: it answered plain HTTP with a TLS alert"))
                return
            self._fail(TransportError(f"the reply is not HTTP: {str(error) or type(error).__name__}"))

    def connection_lost(self, error: Exception | None) -> None:
        self.keep_alive = False
        self._transport = None
        if self._complete_at_eof:
            self.on_message_complete()
        elif self._headers or self._body:
            self._fail(TransportError("the connection broke in the middle of the reply"))
        elif self._used:
            self._fail(StaleConnectionError("the server closed the connection before it replied"))
        else:
            reason = f": {error}" if error else ""
            self._fail(TransportError(f"the server closed the connection without a reply{reason}"))

    # --- httptools ---------------------------------------------------------------------------------------------------

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        self._complete_at_eof = not any(name in _LENGTH_HEADERS for name, _ in self._headers)

    def on_body(self, body: bytes) -> None:
        self._received += len(body)
        if self._received > self._max_bytes:
            self._body = []
            self._fail(_too_large(self._max_bytes))
            self.close()
            return
        self._body.append(body)
        if self._arrivals is not None:
            self._arrivals.append((time.perf_counter() - self._sent, len(body)))

    def on_message_complete(self) -> None:
        self._complete_at_eof = False
        status = self._parser.get_status_code()
        if 100 <= status < 200:  # interim; the final reply follows
            self._headers, self._body, self._received = [], [], 0
            return
        self.keep_alive = self.keep_alive and self._parser.should_keep_alive()
        waiter = self._waiter
        if waiter is None or waiter.done():
            return
        body = self._body[0] if len(self._body) == 1 else b"".join(self._body)
        try:
            reply = HttpReply(status, self._headers, decompress(body, self._headers, self._max_bytes))
            if self._arrivals is not None:
                reply.arrivals = self._arrivals
            waiter.set_result(reply)
        except ReplyTooLargeError as error:
            self._fail(error)
        except zlib.error as error:
            self._fail(TransportError(f"the reply cannot be decompressed: {error}"))

    def _fail(self, error: TransportError) -> None:
        self.keep_alive = False
        waiter = self._waiter
        if waiter is not None and not waiter.done():
            waiter.set_exception(error)


def _too_large(limit: int) -> ReplyTooLargeError:
    return ReplyTooLargeError(f"the reply exceeds {limit >> 20} MiB (max_reply_mib)")


def decompress(body: bytes, headers: list[tuple[bytes, bytes]], max_bytes: int = MAX_REPLY_BYTES) -> bytes:
    """Undo gzip or deflate, which some servers apply without being asked to."""
    for name, value in headers:
        if name == b"content-encoding" and value.lower() in {b"gzip", b"deflate"}:
            inflater = zlib.decompressobj(wbits=zlib.MAX_WBITS | 32)
            data = inflater.decompress(body, max_bytes)
            if inflater.unconsumed_tail:
                raise _too_large(max_bytes)
            if not inflater.eof:
                raise zlib.error("incomplete or truncated stream")
            return data
    return body
