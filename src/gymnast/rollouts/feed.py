"""Records as they are kept, for somebody who takes them one by one. A slow taker slows the run, not the memory."""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Final

from gymnast.errors import MissingRolloutsError
from gymnast.rollouts.verdict import Allowance, exit_code, explanation

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from gymnast.rollouts.engine import Engine
    from gymnast.rollouts.record import Record
    from gymnast.types.events import RunFinished

_MOST_WAITING: Final = 1024


class Feed:
    """Between an engine that keeps records and somebody who takes them."""

    def __init__(self) -> None:
        self._waiting: deque[Record] = deque()
        self._changed = asyncio.Event()
        self._engine: Engine | None = None

    def watch(self, engine: Engine, _: object = None) -> AbstractContextManager[object]:
        """The engine whose records these are."""
        self._engine = engine
        return nullcontext()

    def put(self, record: Record) -> None:
        """A record was kept."""
        self._waiting.append(record)
        self._changed.set()
        if self._engine is not None and len(self._waiting) >= _MOST_WAITING:
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
            if self._engine is not None and len(self._waiting) < _MOST_WAITING // 2:
                self._engine.hold(held=False)
            yield record
        refuse_if_missing(await run, allowance)

    async def end(self, run: asyncio.Task[RunFinished]) -> None:
        """A taker who leaves early ends the run; what it kept stays, and the rest is owed."""
        if run.done():
            return
        if self._engine is None:
            run.cancel()
        else:
            self._engine.stop_now("whoever took the records stopped")
        await asyncio.gather(run, return_exceptions=True)


def refuse_if_missing(finished: RunFinished, allowance: Allowance) -> None:
    """Raise if fewer rollouts were scored than may be."""
    if exit_code(finished, allowance) != 0:
        text = "\n".join(explanation(finished))
        raise MissingRolloutsError(text, finished.requested, finished.scored, finished.failed, finished.owed)
