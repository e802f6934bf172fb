"""The three ways to reach an instance: a native server in this process, an ASGI application in memory, HTTP."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

import orjson

from gymnast.types.failure import message_of
from gymnast.wire.asgi import ROLLOUT_HEADER
from gymnast.wire.cookies import cookie_header, parse_set_cookies
from gymnast.wire.failure_header import decode_failure
from gymnast.wire.http_client import header_items, parse_target
from gymnast.wire.http_connection import TransportError
from gymnast.wire.message import PlainText, Reply, Request, encode_body

if TYPE_CHECKING:
    from collections.abc import Awaitable, Iterable, MutableMapping

    from gymnast.wire.asgi import AsgiApp, AsgiScope, Receive, Send
    from gymnast.wire.http_client import HttpClient
    from gymnast.wire.server import Server


class InProcessTransport:
    """Calls a native server in this process: a function call, no encoding."""

    address = "in-process"

    def __init__(self, server: Server) -> None:
        self._server = server

    def send(self, request: Request) -> Awaitable[Reply]:
        if "?" in request.path:  # native servers ignore the query, as they do over HTTP
            request.path = request.path.partition("?")[0]
        return self._server.handle(request)


class AsgiTransport:
    """Calls an ASGI application in this process: encoded requests, no sockets."""

    address = "in-process (ASGI)"

    def __init__(self, app: AsgiApp) -> None:
        self._app = app

    async def send(self, request: Request) -> Reply:
        data = encode_body(request.body) if request.body is not None else b""
        headers = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in _headers(request).items()]
        length = (b"content-length", str(len(data)).encode())
        scope = _http_scope(request, [(b"host", b"gymnast"), (b"content-type", b"application/json"), length, *headers])
        incoming: list[MutableMapping[str, Any]] = [{"type": "http.request", "body": data, "more_body": False}]
        reply = _AsgiReply()

        async def receive() -> MutableMapping[str, Any]:
            if incoming:
                return incoming.pop()
            await reply.complete.wait()
            return {"type": "http.disconnect"}

        try:
            await self._app(scope, receive, reply.receive)
        except Exception as error:
            # It escaped the application's middleware: a web server replies 500 here.
            logging.getLogger(__name__).exception("%s %s raised", request.method, request.path)
            return Reply(500, f"{type(error).__name__}: {message_of(error)}")
        if reply.status is None:
            raise TransportError("the application ended without a reply")
        return decode_reply(reply.status, reply.headers, b"".join(reply.chunks))


class HttpTransport:
    """Calls an instance at a URL."""

    def __init__(self, base_url: str, client: HttpClient, *, token: str | None = None) -> None:
        self.address = base_url.rstrip("/")
        self._client = client
        authorization = (("authorization", f"Bearer {token}"),) if token else ()
        self._headers = (("content-type", "application/json"), *authorization)

    async def send(self, request: Request) -> Reply:
        data = encode_body(request.body) if request.body is not None else None
        extra_headers = header_items(_headers(request))
        target = parse_target(self.address + request.path)
        reply = await self._client.request(request.method, target, self._headers, data, extra_headers=extra_headers)
        return decode_reply(reply.status, reply.headers(), reply.body)


class AsgiLifespan:
    """Runs the startup and shutdown of an ASGI application hosted without a web server."""

    def __init__(self, app: AsgiApp) -> None:
        self._app = app
        self.state: dict[str, Any] = {}
        """What the application yielded at startup, for the state of every request."""
        self._to_app: asyncio.Queue[MutableMapping[str, Any]] = asyncio.Queue()
        self._from_app: asyncio.Queue[MutableMapping[str, Any]] = asyncio.Queue()
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Run the application's startup. Applications without lifespan support are fine."""
        self._task = asyncio.create_task(self._run())
        await self._to_app.put({"type": "lifespan.startup"})
        message = await self._next()
        if message is not None and message["type"] == "lifespan.startup.failed":
            raise TransportError(f"the application failed to start: {message.get('message', '')}")

    async def stop(self) -> None:
        """Run the application's shutdown."""
        if self._task is None or self._task.done():
            return
        await self._to_app.put({"type": "lifespan.shutdown"})
        await self._next()
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def serve(self, scope: AsgiScope, receive: Receive, send: Send) -> None:
        """Pass a request to the application, with the state of its startup."""
        if self.state:
            scope = {**scope, "state": {**self.state, **scope.get("state", {})}}
        await self._app(scope, receive, send)

    async def _run(self) -> None:
        scope = {"type": "lifespan", "asgi": {"version": "3.0", "spec_version": "2.0"}, "state": self.state}
        await self._app(scope, self._to_app.get, self._from_app.put)

    async def _next(self) -> MutableMapping[str, Any] | None:
        """The application's next message, or None if the application ended."""
        assert self._task is not None
        getter = asyncio.ensure_future(self._from_app.get())
        done, _ = await asyncio.wait({getter, self._task}, return_when=asyncio.FIRST_COMPLETED)
        if getter in done:
            return getter.result()
        getter.cancel()
        return None


def decode_reply(status: int, headers: Iterable[tuple[str, str]], raw: bytes) -> Reply:
    """Decode a reply. A body that is not JSON becomes text."""
    pairs = list(headers)
    cookies = parse_set_cookies(value for name, value in pairs if name == "set-cookie")
    fields = dict(pairs)
    body: Any = None
    if raw:
        try:
            body = PlainText(raw.decode()) if fields.get("content-type", "").startswith("text/") else orjson.loads(raw)
        except ValueError:
            body = PlainText(raw.decode("utf-8", errors="replace"))
    return Reply(status, body, cookies, fields, decode_failure(fields), raw)


class _AsgiReply:
    """Collects the messages an ASGI application sends."""

    def __init__(self) -> None:
        self.status: int | None = None
        self.headers: list[tuple[str, str]] = []
        self.chunks: list[bytes] = []
        self.complete = asyncio.Event()

    async def receive(self, message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            self.headers = [
                (name.decode("latin-1").lower(), value.decode("latin-1")) for name, value in message.get("headers", [])
            ]
        elif message["type"] == "http.response.body":
            self.chunks.append(message.get("body", b""))
            if not message.get("more_body"):
                self.complete.set()


def _headers(request: Request) -> dict[str, str]:
    headers = dict(request.headers)
    if request.cookies:
        headers["cookie"] = cookie_header(request.cookies)
    if request.rollout_id:
        headers[ROLLOUT_HEADER] = request.rollout_id
    return headers


def _http_scope(request: Request, headers: list[tuple[bytes, bytes]]) -> dict[str, Any]:
    path, _, query = request.path.partition("?")
    return {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "1.1",
        "method": request.method,
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "query_string": query.encode(),
        "root_path": "",
        "headers": headers,
        "client": ("127.0.0.1", 0),
        "server": ("gymnast", 80),
        "state": {},
    }
