"""Records of a running collection as an async iterator. A slow consumer slows the run instead of filling the memory."""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Final

from gymnast.errors import MissingRolloutsError
from gymnast.rollouts.exit_status import Allowance, exit_code, explain_missing

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from gymnast.rollouts.engine import Engine
    from gymnast.rollouts.record import Record
    from gymnast.types.events import RunFinished

_MAX_WAITING: Final = 1024


class RecordStream:
    """Passes records from the engine to the consumer, and holds the engine while too many wait."""

    def __init__(self) -> None:
        self._waiting: deque[Record] = deque()
        self._changed = asyncio.Event()
        self._engine: Engine | None = None

    def watch(self, engine: Engine, _: object = None) -> AbstractContextManager[object]:
        """Set the engine to hold. A `RunObserver.watch`."""
        self._engine = engine
        return nullcontext()

    def put(self, record: Record) -> None:
        """Add a record. A `RunObserver.take`."""
        self._waiting.append(record)
        self._changed.set()
        if self._engine is not None and len(self._waiting) >= _MAX_WAITING:
            self._engine.hold(held=True)

    async def records(self, run: asyncio.Task[RunFinished], allowance: Allowance) -> AsyncGenerator[Record]:
        """Every record until the run ends. Raises if it ends with fewer scored than requested."""
        run.add_done_callback(lambda _: self._changed.set())
        while self._waiting or not run.done():
            if not self._waiting:
                self._changed.clear()
                await self._changed.wait()
                continue
            record = self._waiting.popleft()
            if self._engine is not None and len(self._waiting) < _MAX_WAITING // 2:
                self._engine.hold(held=False)
            yield record
        raise_if_missing(await run, allowance)

    async def end(self, run: asyncio.Task[RunFinished]) -> None:
        """End the run if the consumer leaves early. What was stored stays, the rest is owed."""
        if run.done():
            return
        if self._engine is None:
            run.cancel()
        else:
            self._engine.stop_now("the consumer of the records stopped")
        await asyncio.gather(run, return_exceptions=True)


def raise_if_missing(finished: RunFinished, allowance: Allowance) -> None:
    """Raise if more rollouts are missing than allowed."""
    if exit_code(finished, allowance) != 0:
        text = "\n".join(explain_missing(finished))
        raise MissingRolloutsError(text, finished.requested, finished.scored, finished.failed, finished.owed)
