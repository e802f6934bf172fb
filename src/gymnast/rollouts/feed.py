"""Records as they are kept, for somebody who takes them one by one. A slow taker slows the run, not the memory."""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import orjson

from gymnast.errors import MissingRolloutsError
from gymnast.rollouts.verdict import Allowance, exit_code, explanation

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from gymnast.rollouts.book import Kept
    from gymnast.rollouts.engine import Engine
    from gymnast.types.events import RunFinished
    from gymnast.types.json import JsonObject
    from gymnast.types.task import RolloutKey

_MOST_WAITING: Final = 1024


@dataclass(frozen=True, slots=True)
class Record:
    """The outcome of a rollout: scored, or failed for good."""

    key: RolloutKey
    line: bytes
    """The record as it stands in the run's file."""
    failure_kind: str | None = None

    @property
    def is_scored(self) -> bool:
        return self.failure_kind is None

    @property
    def data(self) -> JsonObject:
        """The record's fields."""
        found: JsonObject = orjson.loads(self.line)
        return found

    @property
    def reward(self) -> float | None:
        """None for a failure: it has no reward."""
        return float(self.data["reward"]) if self.is_scored else None


class Feed:
    """Between an engine that keeps records and somebody who takes them."""

    def __init__(self) -> None:
        self._waiting: deque[Kept] = deque()
        self._changed = asyncio.Event()
        self._engine: Engine | None = None

    def watch(self, engine: Engine, _: object = None) -> AbstractContextManager[object]:
        """The engine whose records these are."""
        self._engine = engine
        return nullcontext()

    def put(self, kept: Kept) -> None:
        """A record was kept."""
        self._waiting.append(kept)
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
            kept = self._waiting.popleft()
            if self._engine is not None and len(self._waiting) < _MOST_WAITING // 2:
                self._engine.hold(held=False)
            yield Record(kept.key, kept.line, kept.failure)
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
