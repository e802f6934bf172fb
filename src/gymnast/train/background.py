"""An event loop in a thread, for trainers that call and wait while servers of ours stay up between their calls."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Coroutine
    from concurrent.futures import Future
    from contextlib import AbstractAsyncContextManager

T = TypeVar("T")


class Background:
    """Runs coroutines elsewhere and waits for them. Close it: what was entered is left again, in reverse order."""

    def __init__(self, name: str = "gymnast") -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name=name, daemon=True)
        self._thread.start()
        self._entered: list[AbstractAsyncContextManager[Any]] = []

    def enter(self, resource: AbstractAsyncContextManager[T]) -> T:
        """Open a resource that stays open until `close`."""
        found = self.run(resource.__aenter__())
        self._entered.append(resource)
        return found

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """The result of a coroutine. Interrupting the wait cancels it."""
        future = self.start(work)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def start(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """The same without waiting."""
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def close(self) -> None:
        """Leave what was entered and end the thread. A second time does nothing."""
        if self._loop.is_closed():
            return
        try:
            while self._entered:
                self.run(self._entered.pop().__aexit__(None, None, None))
        finally:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()
