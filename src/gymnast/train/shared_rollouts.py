"""Bounds the rollouts in flight of several callers that share the same servers, first come, first served."""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import aclosing, asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any

from gymnast.train.batch_request import ReportsOutages

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Mapping

    from gymnast.train.batch_request import Outcome, Rollouts
    from gymnast.types.json import JsonObject


class SharedRollouts:
    """Runs rows like `rollouts`, at most `concurrency` of them at the same time over all calls of `run`."""

    def __init__(self, rollouts: Rollouts, concurrency: int) -> None:
        self._rollouts = rollouts
        self._limit = self._free = concurrency
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()

    async def run(
        self, rows: Iterable[Mapping[str, Any]], *, concurrency: int | None = None, **options: Any
    ) -> AsyncGenerator[tuple[JsonObject, Outcome]]:
        given = list(rows)
        places = min(len(given), concurrency or self._limit, self._limit)
        async with self._reserve(places), aclosing(self._rollouts.run(given, concurrency=places, **options)) as run:
            async for outcome in run:
                yield outcome

    def outage(self) -> tuple[float, str] | None:
        """For how many seconds no endpoint could be reached, and the last error; None if all is well."""
        return self._rollouts.outage() if isinstance(self._rollouts, ReportsOutages) else None

    @asynccontextmanager
    async def _reserve(self, places: int) -> AsyncIterator[None]:
        """Hold places while the block runs; a large request is not overtaken by later small ones."""
        if self._waiting or places > self._free:
            turn = asyncio.get_running_loop().create_future()
            self._waiting.append((places, turn))
            try:
                await turn
            except asyncio.CancelledError:
                if not turn.cancelled():
                    self._release(places)
                else:
                    with suppress(ValueError):  # passed over already
                        self._waiting.remove((places, turn))
                    self._admit()
                raise
        else:
            self._free -= places
        try:
            yield
        finally:
            self._release(places)

    def _release(self, places: int) -> None:
        self._free += places
        self._admit()

    def _admit(self) -> None:
        while self._waiting and self._waiting[0][0] <= self._free:
            places, turn = self._waiting.popleft()
            if not turn.cancelled():  # else its caller has given up, and is about to notice
                self._free -= places
                turn.set_result(None)
