"""The three ways to reach an instance: a native server in this process, an ASGI application in memory, HTTP."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

import orjson

from gymnast.wire.asgi import ROLLOUT_HEADER
from gymnast.wire.cookies import cookie_header, parse_set_cookies
from gymnast.wire.failure_header import decode_failure
from gymnast.wire.http_client import header_items, target_of
from gymnast.wire.http_connection import TransportError
from gymnast.wire.message import PlainText, Reply, Request, encode

if TYPE_CHECKING:
    from collections.abc import Awaitable, Iterable, MutableMapping

    from gymnast.wire.asgi import AsgiApp
    from gymnast.wire.http_client import HttpClient
    from gymnast.wire.server import Server


class InProcess:
    """A native server in this process: a function call, no bytes."""

    address = "in-process"

    def __init__(self, server: Server) -> None:
        self._server = server

    def send(self, request: Request) -> Awaitable[Reply]:
        if "?" in request.path:  # native servers read no query, over a port neither
            request.path = request.path.partition("?")[0]
        return self._server.handle(request)


class InMemoryAsgi:
    """An ASGI application in this process: requests as bytes, no sockets."""

    address = "in-process (ASGI)"

    def __init__(self, app: AsgiApp) -> None:
        self._app = app

    async def send(self, request: Request) -> Reply:
        sent = encode(request.body) if request.body is not None else b""
        headers = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in _headers(request).items()]
        length = (b"content-length", str(len(sent)).encode())
        scope = _http_scope(request, [(b"host", b"gymnast"), (b"content-type", b"application/json"), length, *headers])
        incoming: list[MutableMapping[str, Any]] = [{"type": "http.request", "body": sent, "more_body": False}]
        answer = _Answer()

        async def receive() -> MutableMapping[str, Any]:
            if incoming:
                return incoming.pop()
            await answer.complete.wait()
            return {"type": "http.disconnect"}

        try:
            await self._app(scope, receive, answer.take)
        except Exception as error:
            # Past its own middleware: over a socket the web server answers this with a 500.
            logging.getLogger(__name__).exception("%s %s raised", request.method, request.path)
            return Reply(500, f"{type(error).__name__}: {error}")
        if answer.status is None:
            raise TransportError("the application ended without an answer")
        return decoded(answer.status, answer.headers, b"".join(answer.chunks))


class Http:
    """An instance at a URL."""

    def __init__(self, base_url: str, client: HttpClient, *, token: str | None = None) -> None:
        self.address = base_url.rstrip("/")
        self._client = client
        authorization = (("authorization", f"Bearer {token}"),) if token else ()
        self._fixed = (("content-type", "application/json"), *authorization)

    async def send(self, request: Request) -> Reply:
        data = encode(request.body) if request.body is not None else None
        varying = header_items(_headers(request))
        target = target_of(self.address + request.path)
        answer = await self._client.request(request.method, target, self._fixed, data, varying=varying)
        return decoded(answer.status, answer.headers(), answer.body)


class AsgiLifespan:
    """Runs the startup and shutdown of an ASGI application that is hosted without a web server."""

    def __init__(self, app: AsgiApp) -> None:
        self._app = app
        self._to_app: asyncio.Queue[MutableMapping[str, Any]] = asyncio.Queue()
        self._from_app: asyncio.Queue[MutableMapping[str, Any]] = asyncio.Queue()
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Run the application's startup; an application without lifespan is fine."""
        self._task = asyncio.create_task(self._run())
        await self._to_app.put({"type": "lifespan.startup"})
        message = await self._next()
        if message is not None and message["type"] == "lifespan.startup.failed":
            raise TransportError(f"the application failed to start: {message.get('message', '')}")

    async def stop(self) -> None:
        """Run its shutdown."""
        if self._task is None or self._task.done():
            return
        await self._to_app.put({"type": "lifespan.shutdown"})
        await self._next()
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        scope = {"type": "lifespan", "asgi": {"version": "3.0", "spec_version": "2.0"}, "state": {}}
        await self._app(scope, self._to_app.get, self._from_app.put)

    async def _next(self) -> MutableMapping[str, Any] | None:
        """The application's next message, or None when it ended instead."""
        assert self._task is not None
        getter = asyncio.ensure_future(self._from_app.get())
        done, _ = await asyncio.wait({getter, self._task}, return_when=asyncio.FIRST_COMPLETED)
        if getter in done:
            return getter.result()
        getter.cancel()
        return None


def decoded(status: int, headers: Iterable[tuple[str, str]], raw: bytes) -> Reply:
    """Bytes and headers as a reply. A body that is not JSON is kept as text."""
    pairs = list(headers)
    cookies = parse_set_cookies(value for name, value in pairs if name == "set-cookie")
    named = dict(pairs)
    body: Any = None
    if raw:
        try:
            body = PlainText(raw.decode()) if named.get("content-type", "").startswith("text/") else orjson.loads(raw)
        except ValueError:
            body = PlainText(raw.decode("utf-8", errors="replace"))
    return Reply(status, body, cookies, named, decode_failure(named), raw)


class _Answer:
    """Collects what an ASGI application sends."""

    def __init__(self) -> None:
        self.status: int | None = None
        self.headers: list[tuple[str, str]] = []
        self.chunks: list[bytes] = []
        self.complete = asyncio.Event()

    async def take(self, message: MutableMapping[str, Any]) -> None:
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
