"""The studio's HTTP server: the JSON API, server-sent events and the web application, as one ASGI application."""

from __future__ import annotations

import asyncio
import gzip
import logging
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qs

import orjson

from gymnast.errors import GymnastError, NotFoundError, UserError
from gymnast.studio.access import SECURITY_HEADERS
from gymnast.studio.event_streams import EventStreams
from gymnast.studio.requests import Refusal, Reply, Request
from gymnast.studio.routes import Api
from gymnast.studio.web_files import WebFiles
from gymnast.types.encoding import encode_json
from gymnast.wire.asgi import BodyTooLarge, ClientDisconnected, read_body

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gymnast.studio.access import Access
    from gymnast.studio.library import Library
    from gymnast.studio.routes import Handler
    from gymnast.wire.asgi import AsgiScope, Receive, Send

_LOG: Final = logging.getLogger(__name__)
_MAX_QUERY: Final = 16 << 10
_MAX_PARAMS: Final = 200
_MAX_BODY: Final = 64 << 10
_MIN_COMPRESSED: Final = 2048


class StudioApp:
    """The ASGI application."""

    def __init__(
        self, library: Library, access: Access, *, read_only: bool = False, single_run: str | None = None
    ) -> None:
        self._access = access
        self._files = WebFiles()
        self._events = EventStreams(library)
        self._routes = Api(library, read_only=read_only, single_run=single_run).routes

    def end_streams(self) -> None:
        """End the streams of events, before the server stops: it would wait for them."""
        self._events.end()

    async def __call__(self, scope: AsgiScope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        try:
            if (scope["method"], scope["path"]) == ("GET", "/api/events"):
                self._check(scope, headers)
                await self._events.serve(self._request(scope), receive, send)
                return
            reply = await self._reply(scope, headers, receive)
        except ClientDisconnected:
            return
        except Refusal as refusal:
            reply = _error(refusal.status, refusal.what, refusal.hint)
        except asyncio.CancelledError:  # the server stops, and this page took too long
            reply = _error(503, "the studio is stopping", None)
        await _send(send, reply, headers)

    async def _reply(self, scope: AsgiScope, headers: Mapping[str, str], receive: Receive) -> Reply:
        path, method = scope["path"], scope["method"]
        if path == "/" and method == "GET" and b"token=" in scope["query_string"]:
            return self._give_cookie(scope, headers)
        self._check(scope, headers)
        if not path.startswith("/api/"):
            return self._file(path, method)
        handler = self._routes.get((method, path))
        if handler is None:
            is_known = any(known == path for _, known in self._routes)
            raise Refusal(405 if is_known else 404, "there is no such page")
        request = self._request(scope)
        if method == "POST":
            request.body = await self._read_body(headers, receive)
        return await self._handle(handler, request, path)

    async def _handle(self, handler: Handler, request: Request, path: str) -> Reply:
        try:
            result = await handler(request)
        except NotFoundError as error:
            raise Refusal(404, error.what, error.next) from error
        except UserError as error:
            raise Refusal(400, error.what, error.next) from error
        except GymnastError as error:
            raise Refusal(400, str(error)) from error
        except (OSError, RecursionError, MemoryError) as error:
            raise Refusal(404, f"cannot read the run: {error}") from error
        except Refusal:
            raise
        except Exception as error:  # the boundary: a bug must not end the studio
            _LOG.exception("%s raised", path)
            raise Refusal(500, f"the studio failed: {type(error).__name__}", "please report this") from error
        return result if isinstance(result, Reply) else Reply(encode_json(result))

    def _check(self, scope: AsgiScope, headers: Mapping[str, str]) -> None:
        """Refuse requests from elsewhere, and those without the token."""
        reason = self._access.refuse(headers, is_api=scope["path"].startswith("/api/"))
        if reason is not None:
            raise Refusal(403, reason)
        if not self._access.has_token(headers):
            raise Refusal(403, "the token is missing or expired", "open the URL that gymnast view printed")

    def _give_cookie(self, scope: AsgiScope, headers: Mapping[str, str]) -> Reply:
        reason = self._access.refuse(headers, is_api=False)
        given = self._request(scope).params.get("token", [""])[-1]
        if reason is not None or not self._access.is_token(given):
            raise Refusal(403, reason or "the token is wrong", "open the URL that gymnast view printed")
        location = [(b"location", b"/"), (b"set-cookie", self._access.set_cookie())]
        return Reply(b"", "text/plain", 303, location)

    def _request(self, scope: AsgiScope) -> Request:
        query = scope["query_string"]
        if len(query) > _MAX_QUERY:
            raise Refusal(414, "the address is too long")
        try:
            text = query.decode("ascii")
            return Request(parse_qs(text, keep_blank_values=True, max_num_fields=_MAX_PARAMS, errors="replace"))
        except ValueError as error:
            raise Refusal(400, "cannot read the parameters of the address") from error

    async def _read_body(self, headers: Mapping[str, str], receive: Receive) -> Any:
        if headers.get("content-type", "").partition(";")[0].strip() != "application/json":
            raise Refusal(415, "expected application/json")
        try:
            return orjson.loads(await read_body(receive, _MAX_BODY))
        except BodyTooLarge as error:
            raise Refusal(413, "the request is too large") from error
        except ValueError as error:
            raise Refusal(400, "the request is not JSON") from error

    def _file(self, path: str, method: str) -> Reply:
        if method != "GET":
            raise Refusal(405, "there is no such page")
        name = "index.html" if path == "/" else path.removeprefix("/web/") if path.startswith("/web/") else ""
        file = self._files.get(name) if name else None
        if file is None:
            raise Refusal(404, "there is no such page")
        headers = [(b"content-encoding", b"gzip"), (b"vary", b"accept-encoding"), (b"cache-control", b"no-cache")]
        return Reply(file.compressed, file.content_type, 200, headers, is_compressible=False)


def _error(status: int, what: str, hint: str | None) -> Reply:
    return Reply(encode_json({"error": {"what": what, "next": hint}}), status=status)


async def _send(send: Send, reply: Reply, headers: Mapping[str, str]) -> None:
    data, own = reply.data, list(reply.headers)
    accepts_gzip = "gzip" in headers.get("accept-encoding", "")
    if reply.is_compressible and accepts_gzip and len(data) > _MIN_COMPRESSED:
        data = await asyncio.to_thread(gzip.compress, data, 1, mtime=0)
        own.append((b"content-encoding", b"gzip"))
    if not any(name == b"cache-control" for name, _ in own):
        own.append((b"cache-control", b"no-store"))
    start = [(b"content-type", reply.content_type.encode()), (b"content-length", str(len(data)).encode())]
    await send({"type": "http.response.start", "status": reply.status, "headers": [*start, *own, *SECURITY_HEADERS]})
    await send({"type": "http.response.body", "body": data})
