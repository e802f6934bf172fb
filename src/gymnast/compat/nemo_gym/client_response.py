"""A reply of a server in this process, with the interface of aiohttp's `ClientResponse`, and aiohttp-like errors."""

from __future__ import annotations

import asyncio
from http import HTTPStatus
from http.cookies import Morsel, SimpleCookie
from typing import TYPE_CHECKING, Any, Self

import orjson
from aiohttp import ClientConnectionError, ClientResponseError, RequestInfo, ServerTimeoutError, StreamReader
from aiohttp.base_protocol import BaseProtocol
from multidict import CIMultiDict, CIMultiDictProxy
from yarl import URL

from gymnast.wire.message import encode_body

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping

    from gymnast.errors import CallError
    from gymnast.types.failure import FailureDetail
    from gymnast.wire.message import Reply


class NoReply(ClientConnectionError):  # noqa: N818 - named like aiohttp's
    """An instance did not reply; `detail` says why."""

    def __init__(self, detail: FailureDetail) -> None:
        super().__init__(detail.message)
        self.detail = detail


class ReplyTimeout(ServerTimeoutError):  # noqa: N818 - as above
    """An instance did not reply before the deadline."""

    def __init__(self, detail: FailureDetail) -> None:
        super().__init__(detail.message)
        self.detail = detail


def reason_phrase(status: int) -> str:
    """The phrase that HTTP has for a status."""
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return ""


def to_aiohttp_error(error: CallError) -> NoReply | ReplyTimeout:
    """Convert to the aiohttp error that callers expect."""
    timed_out = error.detail.kind.endswith("_timeout")
    return ReplyTimeout(error.detail) if timed_out else NoReply(error.detail)


class NoWait:
    """An awaitable that returns immediately."""

    def __await__(self) -> Generator[None, None, None]:
        yield from ()


class HostedResponse:
    """What `ServerClient.post` returns for a server that is reached through the cell."""

    def __init__(self, reply: Reply, method: str, url: str, cookies: Mapping[str, str]) -> None:
        self.reply = reply
        self._cookies = cookies
        self.status = reply.status
        self.method = method
        self.url = URL(url)
        self._content: bytes | None = reply.raw
        self._stream: StreamReader | None = None

    @property
    def ok(self) -> bool:
        return self.status < 400

    @property
    def reason(self) -> str:
        return reason_phrase(self.status)

    @property
    def headers(self) -> CIMultiDictProxy[str]:
        return CIMultiDictProxy(CIMultiDict({"content-type": "application/json", **self.reply.headers}))

    @property
    def content_type(self) -> str:
        return self.headers["content-type"].split(";")[0]

    @property
    def cookies(self) -> SimpleCookie:
        return cookie_jar(self._cookies)

    @property
    def request_info(self) -> RequestInfo:
        no_headers: CIMultiDictProxy[str] = CIMultiDictProxy(CIMultiDict())
        return RequestInfo(self.url, self.method, no_headers, self.url)

    @property
    def history(self) -> tuple[()]:
        return ()

    @property
    def content(self) -> StreamReader:
        """The body as a stream that is already complete."""
        if self._stream is None:
            loop, body = asyncio.get_running_loop(), self._bytes()
            self._stream = StreamReader(BaseProtocol(loop), max(len(body), 1), loop=loop)
            self._stream.feed_data(body)
            self._stream.feed_eof()
        return self._stream

    def _bytes(self) -> bytes:
        if self._content is None:
            self._content = encode_body(self.reply.body) if self.reply.body is not None else b"null"
        return self._content

    async def read(self) -> bytes:
        return self._bytes()

    async def text(self, encoding: str | None = None, errors: str = "strict") -> str:
        return self._bytes().decode(encoding or "utf-8", errors)

    async def json(self, **_: Any) -> Any:
        """Decode a fresh copy: changes by the caller do not reach the server."""
        return orjson.loads(self._bytes())

    def raise_for_status(self) -> None:
        if not self.ok:
            raise self.error(self._bytes())

    def error(self, content: bytes) -> ClientResponseError:
        """This reply as an error. `response_content` is its body, `detail` the failure if known."""
        error: Any = ClientResponseError(
            self.request_info, (), status=self.status, message=self.reason, headers=self.headers
        )
        error.response_content, error.detail = content, self.reply.failure
        return error  # type: ignore[no-any-return] # with attributes that callers of `nemo_gym` know

    def release(self) -> NoWait:
        """Does nothing; callers may await it, as with aiohttp's."""
        return NoWait()

    def close(self) -> None:
        """Does nothing."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        return None


def cookie_jar(cookies: Mapping[str, str]) -> SimpleCookie:
    """Cookies in the form of the standard library, with unquoted values."""
    jar: SimpleCookie = SimpleCookie()
    for name, value in cookies.items():
        morsel: Morsel[str] = Morsel()
        morsel.set(name, value, value)
        dict.__setitem__(jar, name, morsel)
    return jar


def plain_cookies(cookies: Any) -> dict[str, str]:
    """Cookies of any form as names and values."""
    if not cookies:
        return {}
    items = cookies.items() if hasattr(cookies, "items") else cookies
    return {str(name): value.value if isinstance(value, Morsel) else str(value) for name, value in items}
