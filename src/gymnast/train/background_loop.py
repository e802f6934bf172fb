"""An event loop in a thread, for synchronous trainers whose servers stay up between calls."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from contextlib import AbstractAsyncContextManager

T = TypeVar("T")
R = TypeVar("R")


class BackgroundLoop:
    """Runs coroutines in its thread and waits for them. `close` exits the entered resources in reverse order."""

    def __init__(self, name: str = "gymnast") -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name=name, daemon=True)
        self._thread.start()
        self._entered: list[AbstractAsyncContextManager[Any]] = []

    @property
    def is_closed(self) -> bool:
        return self._loop.is_closed()

    def enter(self, resource: AbstractAsyncContextManager[T]) -> T:
        """Open a resource that stays open until `close`."""
        value = self.run(resource.__aenter__())
        self._entered.append(resource)
        return value

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine and return its result. Interrupting the wait cancels it."""
        future = self.start(work)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def start(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Start a coroutine without waiting for it."""
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def close(self) -> None:
        """Exit the entered resources and stop the thread. Idempotent."""
        if self._loop.is_closed():
            return
        try:
            while self._entered:
                self.run(self._entered.pop().__aexit__(None, None, None))
        finally:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()


async def run_in_daemon(call: Callable[[], T]) -> T:
    """The result of a blocking call, made in a thread that the process does not wait for when it ends.

    `asyncio.to_thread` would keep a process alive for as long as one call hangs, and a call hangs if what it waits for
    was stopped first, as a trainer's queue may be.
    """
    future: Future[T] = Future()
    future.set_running_or_notify_cancel()  # it cannot be cancelled any more

    def work() -> None:
        try:
            future.set_result(call())
        except BaseException as error:  # noqa: BLE001 - the caller gets it
            future.set_exception(error)

    threading.Thread(target=work, name="gymnast-call", daemon=True).start()
    return await asyncio.wrap_future(future)


class BackgroundResource(Generic[R]):
    """A resource that opens in a background loop with the first call, for trainers that make many calls at once."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._lock = threading.Lock()
        self._background: BackgroundLoop | None = None
        self._resource: R | None = None

    async def run(
        self, make: Callable[[], AbstractAsyncContextManager[R]], work: Callable[[R], Coroutine[Any, Any, T]]
    ) -> T:
        """Do work with the resource, from any event loop."""
        background, resource = await asyncio.to_thread(self._open, make)
        return await asyncio.wrap_future(background.start(work(resource)))

    def close(self) -> None:
        """Close the resource. Idempotent."""
        with self._lock:
            if self._background is not None:
                self._background.close()

    def _open(self, make: Callable[[], AbstractAsyncContextManager[R]]) -> tuple[BackgroundLoop, R]:
        with self._lock:
            if self._background is not None and self._background.is_closed:
                raise RuntimeError(f"{self._name} was closed: make a new one for more rollouts")
            self._background = self._background or BackgroundLoop(self._name)
            if self._resource is None:
                self._resource = self._background.enter(make())
            return self._background, self._resource
