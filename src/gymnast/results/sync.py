"""`gymnast.collect_sync`: a run in one blocking call, in a thread with an event loop of its own.

The caller may be inside a running event loop, as a notebook's cell is. An interrupt of the caller (Ctrl-C) ends the
run: what was scored is stored, and `resume` finishes the rest.
"""

from __future__ import annotations

import asyncio
import signal
import threading
from concurrent.futures import Future
from contextlib import aclosing, contextmanager, suppress
from contextvars import copy_context
from functools import wraps
from inspect import signature
from typing import TYPE_CHECKING, Any, ParamSpec

from gymnast.api.collect import collect
from gymnast.results.run import Run
from gymnast.runtime.listener import loop_factory
from gymnast.types.events import RunStarted

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator

    from gymnast.rollouts.record import Record
    from gymnast.types.events import Event

P = ParamSpec("P")


def _make_blocking(function: Callable[P, AsyncGenerator[Record]]) -> Callable[P, Run]:
    """The function as a blocking call with the same options."""

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> Run:
        options = signature(function).bind(*args, **kwargs).arguments
        output = _Output(options["output"], options.get("on_event"))
        _run_in_thread(_exhaust(function(*args, **{**kwargs, "on_event": output.listen})))  # type: ignore[arg-type]
        return Run(output.path)

    return call


class _Output:
    """Where the run is written: a fork has another name than the one that was asked for."""

    def __init__(self, path: Any, on_event: Callable[[Event], None] | None) -> None:
        self.path = path
        self._on_event = on_event

    def listen(self, event: Event) -> None:
        if isinstance(event, RunStarted):
            self.path = event.output
        if self._on_event is not None:
            self._on_event(event)


async def _exhaust(records: AsyncGenerator[Record]) -> None:
    async with aclosing(records):
        async for _ in records:
            pass


def _run_in_thread(work: Coroutine[Any, Any, None]) -> None:
    """Run a coroutine in a thread of its own; an exception of the caller, such as Ctrl-C, ends it first."""
    done: Future[None] = Future()
    running: Future[tuple[asyncio.AbstractEventLoop, asyncio.Task[None]]] = Future()

    def run() -> None:
        try:
            with asyncio.Runner(loop_factory=loop_factory()) as runner:
                runner.run(_announce(work, running))
        except BaseException as error:  # noqa: BLE001 - raised in the calling thread
            done.set_exception(error)
        else:
            done.set_result(None)

    thread = threading.Thread(target=copy_context().run, args=(run,), name="gymnast.collect_sync")
    with _raising_interrupts():
        try:
            thread.start()
            done.result()
        except BaseException:
            if not done.done():
                loop, task = running.result()
                with suppress(RuntimeError):  # the loop has just closed
                    loop.call_soon_threadsafe(task.cancel)
            raise
        finally:
            thread.join()


@contextmanager
def _raising_interrupts() -> Iterator[None]:
    """Let Ctrl-C raise KeyboardInterrupt here; inside `asyncio.run` it would only cancel a task that cannot run now."""
    handler = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(handler):
        yield  # signals go elsewhere, or are ignored
        return
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)


async def _announce(
    work: Coroutine[Any, Any, None], running: Future[tuple[asyncio.AbstractEventLoop, asyncio.Task[None]]]
) -> None:
    task = asyncio.create_task(work)
    running.set_result((asyncio.get_running_loop(), task))
    await task


collect_sync = _make_blocking(collect)
collect_sync.__name__ = collect_sync.__qualname__ = "collect_sync"
collect_sync.__doc__ = """Collect rollouts as `gymnast.collect` does, in one blocking call, and return the run.

Works in scripts and in notebooks, where an event loop is running already. Ctrl-C (or a notebook's interrupt) ends the
run: what was scored is stored, and `resume=True` finishes the rest. Callbacks are called in another thread.
"""
