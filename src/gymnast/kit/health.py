"""Looking after replicas in the background: is each up, and how much is going on there.

Runs only where there is a choice to make. A replica is well if `/health` (or, where there is no such page, `/models`)
answers with a good status in time; where the engine has `/metrics`, its queue is read on the same occasion.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from gymnast.wire.engine_metrics import read_metrics
from gymnast.wire.http_client import target_of
from gymnast.wire.http_connection import TransportError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gymnast.kit.replicas import Replica, Replicas
    from gymnast.wire.http_client import Headers, HttpClient

_NO_SUCH_PAGE: Final = frozenset({404, 405})
_TIMEOUTS: Final = 2
"""Checks in a row without an answer in time: a busy engine may be late once."""
_MISSES: Final = 3
"""Times in a row that metrics are looked for where there are none."""


class HealthWatch:
    """Checks replicas from `start` to `stop`."""

    def __init__(
        self,
        replicas: Replicas,
        client: HttpClient,
        headers: Headers,
        *,
        interval_s: float,
        timeout_s: float,
        reads_load: bool,
        refresh: Callable[[], Sequence[str]] | None = None,
    ) -> None:
        self._replicas = replicas
        self._client = client
        self._headers = headers
        self._interval_s = interval_s
        self._timeout_s = timeout_s
        self._reads_load = reads_load
        self._refresh = refresh
        self._misses: dict[str, int] = {}
        self._page: dict[str, str] = {}
        self._late: dict[str, int] = {}
        self._task: asyncio.Task[None] | None = None

    @property
    def is_running(self) -> bool:
        return self._task is not None and not self._task.done()

    def start(self) -> None:
        """Begin, unless that was done already. Where one replica is all there ever is, there is nothing to find out."""
        has_choice = len(self._replicas.all) > 1 or self._refresh is not None
        if self._task is None and has_choice and self._interval_s > 0:
            self._task = asyncio.create_task(self._watch())

    async def stop(self) -> None:
        """End; nothing is asked any more."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _watch(self) -> None:
        while True:
            if self._refresh is not None:
                self._replicas.follow(await asyncio.to_thread(self._refresh))
            await asyncio.gather(*(self.check(replica) for replica in self._replicas.all))
            await asyncio.sleep(self._interval_s)

    async def check(self, replica: Replica) -> None:
        """Look at one replica now, and remember what was found."""
        well = await self._is_well(replica)
        if well is None:
            return
        if not well:
            replica.down_until = max(replica.down_until, self._replicas.clock() + self._interval_s + self._timeout_s)
            replica.failures += 1
            return
        replica.mark_up()
        if self._reads_load and self._misses.get(replica.base_url, 0) < _MISSES:
            await self._read_load(replica)

    async def _read_load(self, replica: Replica) -> None:
        found = await read_metrics(self._client, replica.base_url, self._timeout_s)
        if found is None:
            self._misses[replica.base_url] = self._misses.get(replica.base_url, 0) + 1
        else:
            self._misses.pop(replica.base_url, None)
            replica.note_engine_load(found.get("running", 0.0) + found.get("waiting", 0.0))

    async def _is_well(self, replica: Replica) -> bool | None:
        """None if it was merely late."""
        url = replica.base_url
        root = url.removesuffix("/v1")
        for page in (self._page[url],) if url in self._page else (f"{root}/health", f"{root}/v1/models"):
            try:
                async with asyncio.timeout(self._timeout_s):
                    answer = await self._client.request("GET", target_of(page), self._headers, repeatable=True)
            except TimeoutError:
                late = self._late[url] = self._late.get(url, 0) + 1
                return False if late >= _TIMEOUTS else None
            except TransportError:
                return False
            self._late.pop(url, None)
            if answer.status not in _NO_SUCH_PAGE:
                self._page[url] = page
                # A refusal (401, 403, 429) is an answer: what is wrong with our calls, calls will show.
                return answer.status < 500
        return True  # it answers, and has no page to tell more
