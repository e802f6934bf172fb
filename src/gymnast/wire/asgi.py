"""A `Server` as an ASGI application: reads body and cookies, checks the token, writes the reply."""

from __future__ import annotations

import hmac
from collections.abc import Awaitable, Callable, MutableMapping
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

import orjson

from gymnast.types.usage import USAGE_HEADER, encode_usage
from gymnast.wire.allowed_hosts import HINT, AllowedHosts
from gymnast.wire.cookies import parse_cookie_header, set_cookie_header
from gymnast.wire.failure_header import FAILURE_HEADER, encode_failure
from gymnast.wire.message import PlainText, Reply, Request, encode_body
from gymnast.wire.progress import PROGRESS_KEY, AttemptProgress
from gymnast.wire.spans import SPANS_HEADER, TRACE_HEADER, SpanRecorder

if TYPE_CHECKING:
    from gymnast.wire.server import Server

AsgiScope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
AsgiApp = Callable[[AsgiScope, Receive, Send], Awaitable[None]]

MAX_REQUEST_BYTES: Final = 1024 * 1024 * 1024
"""The records of a large run, which are sent to be aggregated, take some hundred megabytes."""
ROLLOUT_HEADER = "x-gymnast-rollout"
_JSON = (b"content-type", b"application/json")


class ClientDisconnected(Exception):  # noqa: N818 - an event, not an error: there is no client left to reply to
    """The client closed the connection before its request was complete."""


class BodyTooLarge(Exception):  # noqa: N818 - becomes a reply
    """The request's body exceeds the limit."""


class ServerApp:
    """Serves a `Server` over ASGI."""

    def __init__(self, server: Server) -> None:
        self._server = server

    async def __call__(self, scope: AsgiScope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return  # the host handles lifespan; websockets are not supported
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        try:
            raw = await read_body(receive)
        except ClientDisconnected:
            return
        except BodyTooLarge:
            await send_reply(send, Reply(413, {"detail": f"the request exceeds {MAX_REQUEST_BYTES >> 20} MiB"}))
            return
        await send_reply(send, await self._reply(scope, headers, raw))

    async def _reply(self, scope: AsgiScope, headers: dict[str, str], raw: bytes) -> Reply:
        try:
            body = orjson.loads(raw) if raw else None
        except orjson.JSONDecodeError as error:
            return _invalid_json(error)
        request = Request(
            scope["method"],
            scope["path"],
            body,
            parse_cookie_header(headers["cookie"]) if "cookie" in headers else {},
            headers,
            headers.get(ROLLOUT_HEADER),
        )
        progress = request.progress = scope.get(PROGRESS_KEY) or AttemptProgress()
        trace = headers.get(TRACE_HEADER)
        if trace is not None:
            progress.spans = SpanRecorder.from_header(trace)
        reply = await self._server.handle(request)
        if progress.spans is not None:
            reply.headers = {**reply.headers, SPANS_HEADER: progress.spans.header()}
        if progress.usage_counter is not None:
            reply.headers = {**reply.headers, USAGE_HEADER: encode_usage(progress.usage_counter.usage())}
        if self._server.has_sessions and reply.status < 500:
            # In-process, a cookie is set once, when a session starts; over HTTP the contract sets one on every reply.
            reply.cookies = {**reply.cookies, self._server.cookie_name: request.session_id}
        return reply


class AccessGuard:
    """Rejects requests without the token, requests from other sites' pages, and requests for other hosts.

    A page of another site can point its own name at this address (DNS rebinding): its requests then are of the same
    site, but their `Host` is that name. With a token there is no need for this: the page does not have it.
    """

    def __init__(self, app: AsgiApp, token: str | None, hosts: AllowedHosts | None = None) -> None:
        self._app = app
        self._token = token.encode() if token else None
        self._hosts = hosts or AllowedHosts()

    async def __call__(self, scope: AsgiScope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            headers = dict(scope["headers"])
            if self._token is not None and not self._is_authorized(headers):
                await send_reply(send, Reply(401, {"detail": "this server requires a token: Authorization: Bearer …"}))
                return
            if self._token is None and not self._hosts.allows(headers.get(b"host", b"")):
                await send_reply(send, Reply(403, {"detail": f"this host name is not allowed: {HINT}"}))
                return
            if b"origin" in headers and not _is_same_site(headers):
                await send_reply(send, Reply(403, {"detail": "cross-site requests are refused"}))
                return
        await self._app(scope, receive, send)

    def _is_authorized(self, headers: dict[bytes, bytes]) -> bool:
        scheme, _, token = headers.get(b"authorization", b"").partition(b" ")
        if scheme.lower() != b"bearer":
            token = headers.get(b"x-api-key", b"")  # how Anthropic's clients send a key
        return hmac.compare_digest(token.strip(), self._token or b"")


async def read_body(receive: Receive, limit: int = MAX_REQUEST_BYTES) -> bytes:
    """Read the whole request body. Raises BodyTooLarge beyond the limit, and ClientDisconnected."""
    chunks: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnected
        chunks.append(message.get("body", b""))
        size += len(chunks[-1])
        if size > limit:
            raise BodyTooLarge
        if not message.get("more_body"):
            return chunks[0] if len(chunks) == 1 else b"".join(chunks)


async def send_reply(send: Send, reply: Reply) -> None:
    """Send a reply as ASGI messages."""
    payload = encode_body(reply.body)
    content_type = (b"content-type", reply.body.content_type) if isinstance(reply.body, PlainText) else _JSON
    headers = [content_type, (b"content-length", str(len(payload)).encode())]
    if reply.cookies:
        headers += [(b"set-cookie", set_cookie_header(*pair).encode("latin-1")) for pair in reply.cookies.items()]
        headers.append((b"vary", b"Cookie"))
    if reply.failure is not None:
        headers.append((FAILURE_HEADER.encode(), encode_failure(reply.failure).encode()))
    headers += [(name.encode("latin-1"), value.encode("latin-1")) for name, value in reply.headers.items()]
    await send({"type": "http.response.start", "status": reply.status, "headers": headers})
    await send({"type": "http.response.body", "body": payload})


def _invalid_json(error: orjson.JSONDecodeError) -> Reply:
    detail = {
        "type": "json_invalid",
        "loc": ["body", error.pos],
        "msg": "JSON decode error",
        "input": {},
        "ctx": {"error": error.msg},
    }
    return Reply(422, {"detail": [detail]})


def _is_same_site(headers: dict[bytes, bytes]) -> bool:
    return urlsplit(headers[b"origin"]).netloc == headers.get(b"host", b"")
