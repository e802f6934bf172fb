"""The studio's HTTP server: the JSON API, server-sent events and the web application, as one ASGI application."""

from __future__ import annotations

import asyncio
import gzip
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qs, quote

import msgspec
import orjson

from gymnast import __version__
from gymnast.errors import GymnastError, NotFoundError, UserError
from gymnast.rollouts.control import send_request
from gymnast.store.annotations import LABELS, annotations_path, append_annotation, make_annotation
from gymnast.studio import pages
from gymnast.studio.access import SECURITY_HEADERS
from gymnast.studio.download import FORMATS, make_download
from gymnast.studio.query import last_of, parse_count, parse_query
from gymnast.studio.rollout_page import MAX_RAW
from gymnast.studio.runs import read_curve
from gymnast.studio.web_files import WebFiles
from gymnast.types.encoding import encode_json
from gymnast.wire.asgi import BodyTooLarge, ClientDisconnected, read_body

if TYPE_CHECKING:
    from gymnast.studio.access import Access
    from gymnast.studio.library import Library
    from gymnast.types.json import JsonObject
    from gymnast.wire.asgi import AsgiScope, Receive, Send

_LOG: Final = logging.getLogger(__name__)
_MAX_QUERY: Final = 16 << 10
_MAX_PARAMS: Final = 200
_MAX_BODY: Final = 64 << 10
_MAX_RUNS: Final = 12
_MIN_COMPRESSED: Final = 2048
_KEEP_ALIVE_S: Final = 15.0
_MAX_WAITING: Final = 1000
"""Events that a slow page may be behind; then it starts over."""
_MAX_STREAMS: Final = 64
_END: Final = b""
_COMMANDS: Final = frozenset({"pause", "resume", "drain", "stop", "cancel", "set"})


class Refusal(Exception):  # noqa: N818 - becomes a reply
    """Ends a request with this status."""

    def __init__(self, status: int, what: str, hint: str | None = None) -> None:
        super().__init__(what)
        self.status = status
        self.what = what
        self.hint = hint


@dataclass(slots=True)
class Request:
    """A request that passed all checks."""

    params: dict[str, list[str]]
    body: Any = None

    def run(self) -> str:
        runs = self.params.get("run", [])
        if not runs:
            raise Refusal(400, "expected a run", "add ?run=ID")
        return runs[0]

    def index(self, name: str) -> int:
        if not self.params.get(name):
            raise Refusal(400, f"expected a {name}")
        return parse_count(self.params, name, 0, 2**40)


@dataclass(slots=True)
class Reply:
    """What is sent."""

    data: bytes
    content_type: str = "application/json"
    status: int = 200
    headers: list[tuple[bytes, bytes]] = field(default_factory=list)
    is_compressible: bool = True


Handler = Callable[[Request], Awaitable[Any]]


class StudioApp:
    """The ASGI application."""

    def __init__(
        self, library: Library, access: Access, *, read_only: bool = False, single_run: str | None = None
    ) -> None:
        self._library = library
        self._access = access
        self._read_only = read_only
        self._single_run = single_run
        self._files = WebFiles()
        self._queues: set[asyncio.Queue[bytes]] = set()
        """The events that each open page has yet to get."""
        self._routes: dict[tuple[str, str], Handler] = {
            ("GET", "/api/session"): self._session,
            ("GET", "/api/runs"): self._runs,
            ("GET", "/api/run"): self._run,
            ("GET", "/api/run/plots"): self._plots,
            ("GET", "/api/run/live"): self._live,
            ("GET", "/api/run/training"): self._training,
            ("GET", "/api/columns"): self._columns,
            ("GET", "/api/rollouts"): self._rollouts,
            ("GET", "/api/tasks"): self._tasks,
            ("GET", "/api/rollout"): self._rollout,
            ("GET", "/api/rollout/raw"): self._raw,
            ("GET", "/api/compare"): self._compare,
            ("GET", "/api/doctor"): self._doctor,
            ("GET", "/api/annotations"): self._annotations,
            ("GET", "/api/download"): self._download,
            ("POST", "/api/annotations"): self._annotate,
            ("POST", "/api/control"): self._control,
        }

    def end_streams(self) -> None:
        """End the streams of events, before the server stops: it would wait for them."""
        for queue in self._queues:
            while queue.full():
                queue.get_nowait()
            queue.put_nowait(_END)

    # --- requests ----------------------------------------------------------------------------------------------------

    async def __call__(self, scope: AsgiScope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        try:
            if (scope["method"], scope["path"]) == ("GET", "/api/events"):
                self._check(scope, headers)
                await self._send_events(self._request(scope), receive, send)
                return
            reply = await self._reply(scope, headers, receive)
        except ClientDisconnected:
            return
        except Refusal as refusal:
            reply = _error(refusal.status, refusal.what, refusal.hint)
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
            raise Refusal(403, "the token is missing or of another start", "open the URL that gymnast view printed")

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

    # --- the API -----------------------------------------------------------------------------------------------------

    async def _session(self, _: Request) -> JsonObject:
        return {
            "version": __version__,
            "folder": str(self._library.folders.root),
            "read_only": self._read_only,
            "labels": list(LABELS),
            "static": False,
            "single_run": self._single_run,
            "files": None,
        }

    async def _runs(self, _: Request) -> JsonObject:
        await self._library.poll(max_age_s=1.0)
        rows = [entry.row() for entry in self._library.entries.values()]
        return {"runs": rows, "left_out": self._library.left_out}

    async def _run(self, request: Request) -> JsonObject:
        entry = await self._library.indexed(request.run())
        return await asyncio.to_thread(pages.run_page, entry)

    async def _plots(self, request: Request) -> JsonObject:
        return await asyncio.to_thread(pages.plots, [await self._library.indexed(run) for run in _runs(request, 1)])

    async def _live(self, request: Request) -> JsonObject:
        entry = self._library.entry(request.run())
        if not entry.history.points or entry.live is None:
            await self._library.read_live(entry)
        return self._library.describe_live(entry, entry.history.points)

    async def _training(self, request: Request) -> JsonObject:
        entry = self._library.entry(request.run())
        if entry.found.curve is None:
            return {"steps": [], "held_out": []}
        return await asyncio.to_thread(read_curve, entry.found.curve)

    async def _columns(self, request: Request) -> JsonObject:
        return await asyncio.to_thread(pages.columns_page, await self._library.indexed(request.run()))

    async def _rollouts(self, request: Request) -> JsonObject:
        query = parse_query(request.params)
        return await asyncio.to_thread(pages.rollouts_page, await self._library.indexed(request.run()), query)

    async def _tasks(self, request: Request) -> JsonObject:
        query = parse_query(request.params)
        return await asyncio.to_thread(pages.tasks_page, await self._library.indexed(request.run()), query)

    async def _rollout(self, request: Request) -> JsonObject:
        entry = await self._library.indexed(request.run())
        full = last_of(request.params, "full") == "1"
        task, rollout = request.index("task"), request.index("rollout")
        return await asyncio.to_thread(pages.rollout_page, entry, task, rollout, full=full)

    async def _raw(self, request: Request) -> Reply:
        entry = await self._library.indexed(request.run())
        line = await asyncio.to_thread(pages.raw_line, entry, request.index("task"), request.index("rollout"))
        if len(line) > MAX_RAW:
            raise Refusal(413, f"the record has {len(line) >> 20} MiB", "read it from the run's file")
        return Reply(line, "text/plain; charset=utf-8")

    async def _compare(self, request: Request) -> JsonObject:
        entries = [await self._library.indexed(run) for run in _runs(request, 2)]
        for entry in entries:
            if entry.progress.state == "building":
                raise Refusal(409, f"'{entry.id}' is still being indexed", "try again in some seconds")
        params: JsonObject = {
            "by_index": last_of(request.params, "by_index") == "1",
            "page": parse_count(request.params, "page", 0, 2**31),
            "size": max(1, parse_count(request.params, "size", 100, 500)),
            "sort": last_of(request.params, "sort") or "abs",
            "desc": last_of(request.params, "desc") != "0",
        }
        return await asyncio.to_thread(pages.compare_page, entries, params)

    async def _doctor(self, request: Request) -> JsonObject:
        entry = self._library.entry(request.run())
        return await asyncio.to_thread(pages.doctor_page, entry, await pages.read_stuck(entry))

    async def _annotations(self, request: Request) -> JsonObject:
        annotations = self._library.entry(request.run()).annotations()
        return {"annotations": [msgspec.to_builtins(own) for own in annotations.values()]}

    async def _download(self, request: Request) -> Reply:
        table, kind = last_of(request.params, "table") or "rollouts", last_of(request.params, "format") or "csv"
        if table not in ("rollouts", "tasks") or kind not in FORMATS:
            raise Refusal(400, "expected table=rollouts|tasks and format=csv|jsonl|parquet")
        entry = await self._library.indexed(request.run())
        data = await asyncio.to_thread(make_download, entry, parse_query(request.params), table, kind)
        name = quote(f"{entry.found.paths.output.stem}_{table}.{kind}")
        disposition = f"attachment; filename*=UTF-8''{name}".encode()
        return Reply(data, FORMATS[kind], 200, [(b"content-disposition", disposition)])

    async def _annotate(self, request: Request) -> JsonObject:
        self._require_writing()
        entry = self._library.entry(_run_of(request.body))
        annotation = make_annotation(request.body)
        await asyncio.to_thread(append_annotation, annotations_path(entry.found.paths.output), annotation)
        self._library.tell("annotations", {"run": entry.id})
        return {"annotation": msgspec.to_builtins(annotation)}

    async def _control(self, request: Request) -> JsonObject:
        self._require_writing()
        entry = self._library.entry(_run_of(request.body))
        command, argument = request.body.get("command"), request.body.get("argument")
        if command not in _COMMANDS or not isinstance(argument, str | None):
            raise Refusal(400, "unknown command", f"use one of {', '.join(sorted(_COMMANDS))}")
        message = {"command": command, "argument": argument}
        result = await send_request(entry.found.paths.socket, message)
        await self._library.poll()
        return {"result": result}

    def _require_writing(self) -> None:
        if self._read_only:
            raise Refusal(403, "the studio is read-only", "start gymnast view without --read-only")

    # --- events ------------------------------------------------------------------------------------------------------

    async def _send_events(self, request: Request, receive: Receive, send: Send) -> None:
        """Send events until the page goes away."""
        if len(self._queues) >= _MAX_STREAMS:
            raise Refusal(429, "too many pages are open")
        headers = [(b"content-type", b"text/event-stream; charset=utf-8"), (b"cache-control", b"no-store")]
        await send({"type": "http.response.start", "status": 200, "headers": [*headers, *SECURITY_HEADERS]})
        events = asyncio.create_task(self._stream(tuple(request.params.get("run", ())[:_MAX_RUNS]), send))
        gone = asyncio.create_task(_wait_until_gone(receive))
        try:
            await asyncio.wait([events, gone], return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (events, gone):
                task.cancel()
            await asyncio.gather(events, gone, return_exceptions=True)

    async def _stream(self, runs: tuple[str, ...], send: Send) -> None:
        async for chunk in self._events(runs):
            await send({"type": "http.response.body", "body": chunk, "more_body": True})
        await send({"type": "http.response.body", "body": b""})

    async def _events(self, runs: tuple[str, ...]) -> AsyncIterator[bytes]:
        """Events as text; ends if the page is too slow, so that it connects again and starts over."""
        queue: asyncio.Queue[bytes] = asyncio.Queue(_MAX_WAITING)
        self._queues.add(queue)

        def listen(event: str, data: Any) -> None:
            if event != "live" or data["run"] in runs:
                if queue.full():
                    self._library.listeners.pop(listen, None)
                    return
                queue.put_nowait(_event(event, data))

        self._library.listeners[listen] = runs
        try:
            yield _event("hello", {"runs": len(self._library.entries)})
            while listen in self._library.listeners or not queue.empty():
                try:
                    async with asyncio.timeout(_KEEP_ALIVE_S):
                        chunk = await queue.get()
                except TimeoutError:
                    chunk = b": still here\n\n"
                if chunk == _END:
                    return
                yield chunk
        finally:
            self._queues.discard(queue)
            self._library.listeners.pop(listen, None)


async def _wait_until_gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def _event(name: str, data: Any) -> bytes:
    return b"event: %b\ndata: %b\n\n" % (name.encode(), encode_json(data))


def _runs(request: Request, least: int) -> list[str]:
    runs = list(dict.fromkeys(request.params.get("run", [])))
    if not least <= len(runs) <= _MAX_RUNS:
        raise Refusal(400, f"expected {least} to {_MAX_RUNS} runs, got {len(runs)}")
    return runs


def _run_of(body: Any) -> str:
    run = body.get("run") if isinstance(body, dict) else None
    if not isinstance(run, str):
        raise Refusal(400, "expected a run")
    return run


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
