"""An ASGI application on a socket: uvicorn inside our event loop, without its signal handlers."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any, Self

import uvicorn

from gymnast.errors import StartError

if TYPE_CHECKING:
    import socket
    from collections.abc import Iterator
    from types import TracebackType

    from gymnast.wire.asgi import AsgiApp


class _QuietServer(uvicorn.Server):
    """uvicorn that leaves signals to the process that owns the loop, and stops at once instead of polling."""

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


class Listener:
    """Serves `app` on an already bound socket while the block is open."""

    def __init__(self, app: AsgiApp, sock: socket.socket, *, lifespan: bool = False) -> None:
        config = uvicorn.Config(
            app,
            log_config=None,
            access_log=False,
            lifespan="auto" if lifespan else "off",
            timeout_keep_alive=30,
            timeout_graceful_shutdown=1,
            server_header=False,
            date_header=False,
            proxy_headers=False,
            http="httptools",
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
            await self._started(self._task)
        except BaseException:  # what uvicorn has begun it has to end: only then does it know its servers
            self.begin_to_close()
            self._task.add_done_callback(lambda _: self._drop())
            raise
        return self

    async def _started(self, task: asyncio.Task[None]) -> None:
        while not self._server.started:
            if task.done():
                error = task.exception() if not task.cancelled() else None
                raise StartError(
                    f"the server on {self.url} ended while starting: {error or 'no reason given'}"
                ) from error
            await asyncio.sleep(0.001)

    def begin_to_close(self) -> None:
        """Stop accepting; several listeners told so before they are closed end together, not one after the other."""
        self._server.stop()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.begin_to_close()
        try:
            if self._task is not None:
                await asyncio.gather(self._task, return_exceptions=True)
        finally:
            self._drop()

    def _drop(self) -> None:
        """Leave nothing open, even where closing was cancelled: uvicorn closes what it has only if it is waited for."""
        for server in getattr(self._server, "servers", ()):  # uvicorn has none before it has started
            server.close()
        for connection in list(self._server.server_state.connections):
            connection.transport.abort()
        self._sock.close()


def loop_factory() -> Any:
    """uvloop where it is installed; asyncio's own loop otherwise."""
    try:
        import uvloop  # noqa: PLC0415 - optional on some platforms
    except ImportError:
        return None
    return uvloop.new_event_loop
