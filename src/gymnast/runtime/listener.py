"""Serves an ASGI application on a socket: uvicorn in our event loop, without its signal handlers."""

from __future__ import annotations

import asyncio
import contextlib
import resource
from typing import TYPE_CHECKING, Any, Final, Self

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from gymnast.errors import StartError

if TYPE_CHECKING:
    import socket
    from collections.abc import Iterator

    from gymnast.wire.asgi import AsgiApp


HEAD_TIMEOUT_S: Final = 60.0
"""How long a client may take to send the head of a request."""


class _QuietServer(uvicorn.Server):
    """uvicorn without signal handlers (the process that owns the loop has them) that stops without polling."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self._stopping = asyncio.Event()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    def stop(self) -> None:
        self.should_exit = True
        self._stopping.set()

    async def main_loop(self) -> None:
        await self._stopping.wait()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """As uvicorn's, which however always waits 0.1 s: idle connections close within a turn of the loop."""
        for server in self.servers:
            server.close()
        for connection in list(self.server_state.connections):
            connection.shutdown()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        if self.server_state.connections or self.server_state.tasks:
            await super().shutdown(sockets)
        else:
            await self.lifespan.shutdown()


class _BoundedProtocol(HttpToolsProtocol):
    """uvicorn's protocol with a time limit for a request's head and a limit of connections.

    Both apply before a token is checked: slow or idle clients must not use up the process's descriptors.
    """

    _head_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if len(self.connections) > _max_connections():
            transport.abort()
            return
        self._expect_head()

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._expect_head()

    def on_headers_complete(self) -> None:
        self._forget_head()
        super().on_headers_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        self._forget_head()
        super().connection_lost(exc)

    def _expect_head(self) -> None:
        if self._head_timer is None:
            self._head_timer = self.loop.call_later(HEAD_TIMEOUT_S, self.transport.abort)

    def _forget_head(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None


def _max_connections() -> int:
    return max(16, resource.getrlimit(resource.RLIMIT_NOFILE)[0] * 3 // 4)


class Listener:
    """Serves `app` on an already bound socket inside the `async with` block."""

    def __init__(self, app: AsgiApp, sock: socket.socket) -> None:
        config = uvicorn.Config(
            app,
            log_config=None,
            access_log=False,
            lifespan="off",
            timeout_keep_alive=30,
            timeout_graceful_shutdown=1,
            server_header=False,
            date_header=False,
            proxy_headers=False,
            http=_BoundedProtocol,
            ws="none",
        )
        self._server = _QuietServer(config)
        self._sock = sock
        self._task: asyncio.Task[None] | None = None
        self.host, self.port = sock.getsockname()[:2]

    @property
    def url(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}:{self.port}"

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self._server.serve(sockets=[self._sock]))
        try:
            await self._wait_until_started(self._task)
        except BaseException:  # uvicorn must finish starting before its servers can be closed
            self.start_closing()
            self._task.add_done_callback(lambda _: self._drop())
            raise
        return self

    async def _wait_until_started(self, task: asyncio.Task[None]) -> None:
        while not self._server.started:
            if task.done():
                error = task.exception() if not task.cancelled() else None
                raise StartError(
                    f"the server on {self.url} ended while starting: {error or 'unknown reason'}"
                ) from error
            await asyncio.sleep(0.001)

    def start_closing(self) -> None:
        """Stop accepting. Call this on several listeners before closing them, so that they close in parallel."""
        self._server.stop()

    async def __aexit__(self, *_: object) -> None:
        self.start_closing()
        try:
            if self._task is not None:
                await asyncio.gather(self._task, return_exceptions=True)
        finally:
            self._drop()

    def _drop(self) -> None:
        """Close all sockets, even if closing was cancelled: uvicorn closes them only if awaited."""
        for server in getattr(self._server, "servers", ()):  # absent before uvicorn has started
            server.close()
        for connection in list(self._server.server_state.connections):
            connection.transport.abort()
        self._sock.close()


def loop_factory() -> Any:
    """uvloop's loop if it is installed, otherwise None for asyncio's default."""
    try:
        import uvloop  # noqa: PLC0415 - optional on some platforms
    except ImportError:
        return None
    return uvloop.new_event_loop
