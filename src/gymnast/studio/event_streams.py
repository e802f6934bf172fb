"""Server-sent events: what changes in a library of runs, to every open page."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

from gymnast.studio.access import SECURITY_HEADERS
from gymnast.studio.requests import Refusal
from gymnast.studio.routes import MAX_RUNS
from gymnast.types.encoding import encode_json

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from gymnast.studio.library import Library
    from gymnast.studio.requests import Request
    from gymnast.wire.asgi import Receive, Send

_KEEP_ALIVE_S: Final = 15.0
_MAX_WAITING: Final = 1000
"""Events that a slow page may be behind; then it starts over."""
_MAX_STREAMS: Final = 64
_END: Final = b""


class EventStreams:
    """The streams of all open pages."""

    def __init__(self, library: Library) -> None:
        self._library = library
        self._queues: set[asyncio.Queue[bytes]] = set()
        """The events that each open page has yet to get."""

    def end(self) -> None:
        """End all streams, before the server stops: it would wait for them."""
        for queue in self._queues:
            while queue.full():
                queue.get_nowait()
            queue.put_nowait(_END)

    async def serve(self, request: Request, receive: Receive, send: Send) -> None:
        """Send events until the page goes away."""
        if len(self._queues) >= _MAX_STREAMS:
            raise Refusal(429, "too many pages are open")
        headers = [(b"content-type", b"text/event-stream; charset=utf-8"), (b"cache-control", b"no-store")]
        await send({"type": "http.response.start", "status": 200, "headers": [*headers, *SECURITY_HEADERS]})
        events = asyncio.create_task(self._stream(tuple(request.params.get("run", ())[:MAX_RUNS]), send))
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
