"""A reply of a server in this process, in the form of aiohttp's `ClientResponse`; errors in the form of aiohttp's."""

from __future__ import annotations

import asyncio
from http.cookies import Morsel, SimpleCookie
from typing import TYPE_CHECKING, Any, Self

import orjson
from aiohttp import ClientConnectionError, ClientResponseError, RequestInfo, ServerTimeoutError, StreamReader
from aiohttp.base_protocol import BaseProtocol
from multidict import CIMultiDict, CIMultiDictProxy
from yarl import URL

from gymnast.wire.message import encode

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping
    from types import TracebackType

    from gymnast.errors import CallError
    from gymnast.types.failure import FailureDetail
    from gymnast.wire.message import Reply


class NoReply(ClientConnectionError):  # noqa: N818 - one of aiohttp's family
    """An instance gave no answer; `detail` says why."""

    def __init__(self, detail: FailureDetail) -> None:
        super().__init__(detail.message)
        self.detail = detail


class NoReplyInTime(ServerTimeoutError):  # noqa: N818 - as above
    """An instance did not answer before the deadline."""

    def __init__(self, detail: FailureDetail) -> None:
        super().__init__(detail.message)
        self.detail = detail


class BadStatus(ClientResponseError):  # noqa: N818 - as above
    """A reply whose status is an error. `response_content` is its body, `detail` what we know of the failure."""

    response_content: bytes = b""
    detail: FailureDetail | None = None


def no_reply(error: CallError) -> NoReply | NoReplyInTime:
    """The error that callers of the surface expect where we have none of aiohttp's."""
    in_time = error.detail.kind.endswith("_timeout")
    return NoReplyInTime(error.detail) if in_time else NoReply(error.detail)


class Nothing:
    """Nothing to wait for."""

    def __await__(self) -> Generator[None, None, None]:
        yield from ()


class HostedResponse:
    """What `ServerClient.post` returns for a server in this process or beside it."""

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
        return "OK" if self.ok else "error"

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
        nothing: CIMultiDictProxy[str] = CIMultiDictProxy(CIMultiDict())
        return RequestInfo(self.url, self.method, nothing, self.url)

    @property
    def history(self) -> tuple[()]:
        return ()

    @property
    def content(self) -> StreamReader:
        """The body as a stream; all of it is there."""
        if self._stream is None:
            loop, body = asyncio.get_running_loop(), self._bytes()
            self._stream = StreamReader(BaseProtocol(loop), max(len(body), 1), loop=loop)
            self._stream.feed_data(body)
            self._stream.feed_eof()
        return self._stream

    def _bytes(self) -> bytes:
        if self._content is None:
            self._content = encode(self.reply.body) if self.reply.body is not None else b"null"
        return self._content

    async def read(self) -> bytes:
        return self._bytes()

    async def text(self, encoding: str | None = None, errors: str = "strict") -> str:
        return self._bytes().decode(encoding or "utf-8", errors)

    async def json(self, **_: Any) -> Any:
        """A copy of its own: nothing that a caller does to it reaches the server."""
        return orjson.loads(self._bytes())

    def raise_for_status(self) -> None:
        if not self.ok:
            raise self.error(self._bytes())

    def error(self, content: bytes) -> BadStatus:
        """The error that this reply is."""
        found = BadStatus(self.request_info, (), status=self.status, message=self.reason, headers=self.headers)
        found.response_content = content
        found.detail = self.reply.failure
        return found

    def release(self) -> Nothing:
        """Nothing is held; callers may await that, as with aiohttp's."""
        return Nothing()

    def close(self) -> None:
        """Nothing is held."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None


def cookie_jar(cookies: Mapping[str, str]) -> SimpleCookie:
    """Cookies in the form of the standard library, values as they are."""
    jar: SimpleCookie = SimpleCookie()
    for name, value in cookies.items():
        morsel: Morsel[str] = Morsel()
        morsel.set(name, value, value)
        dict.__setitem__(jar, name, morsel)
    return jar


def plain_cookies(cookies: Any) -> dict[str, str]:
    """Cookies in whatever form callers have them, as names and values."""
    if not cookies:
        return {}
    items = cookies.items() if hasattr(cookies, "items") else cookies
    return {str(name): value.value if isinstance(value, Morsel) else str(value) for name, value in items}
