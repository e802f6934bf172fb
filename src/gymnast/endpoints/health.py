"""Background health checks of replicas: whether each is up, and its load.

Runs only if there is a choice between replicas. A replica is healthy if `/health` (or `/v1/models`, if that page does
not exist) answers with a good status in time. If the server has `/metrics`, its queue length is read, too.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from gymnast.wire.http_client import parse_target
from gymnast.wire.http_connection import TransportError
from gymnast.wire.inference_metrics import read_metrics

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gymnast.endpoints.replicas import Replica, Replicas
    from gymnast.wire.http_client import Headers, HttpClient

_NO_SUCH_PAGE: Final = frozenset({404, 405})
_MAX_TIMEOUTS: Final = 2
"""Consecutive timeouts after which a replica is down: a busy server may be late once."""
_MAX_MISSES: Final = 3
"""Consecutive failures to read metrics after which they are no longer read."""


class HealthMonitor:
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
        """Start the checks, unless they are running or there can only be one replica."""
        has_choice = len(self._replicas.all) > 1 or self._refresh is not None
        if self._task is None and has_choice and self._interval_s > 0:
            self._task = asyncio.create_task(self._watch())

    async def stop(self) -> None:
        """Stop the checks."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _watch(self) -> None:
        while True:
            if self._refresh is not None:
                self._replicas.update(await asyncio.to_thread(self._refresh))
            await asyncio.gather(*(self.check(replica) for replica in self._replicas.all))
            await asyncio.sleep(self._interval_s)

    async def check(self, replica: Replica) -> None:
        """Check one replica now, and record the result."""
        is_healthy = await self._is_healthy(replica)
        if is_healthy is None:
            return
        if not is_healthy:
            replica.down_until = max(replica.down_until, self._replicas.clock() + self._interval_s + self._timeout_s)
            replica.failures += 1
            return
        replica.mark_up()
        if self._reads_load and self._misses.get(replica.base_url, 0) < _MAX_MISSES:
            await self._read_load(replica)

    async def _read_load(self, replica: Replica) -> None:
        metrics = await read_metrics(self._client, replica.base_url, self._timeout_s, external=replica.is_external)
        if metrics is None:
            self._misses[replica.base_url] = self._misses.get(replica.base_url, 0) + 1
        else:
            self._misses.pop(replica.base_url, None)
            replica.record_server_load(metrics.get("running", 0.0) + metrics.get("waiting", 0.0))

    async def _is_healthy(self, replica: Replica) -> bool | None:
        """None if the reply was merely late."""
        url = replica.base_url
        root = url.removesuffix("/v1")
        for page in (self._page[url],) if url in self._page else (f"{root}/health", f"{root}/v1/models"):
            try:
                async with asyncio.timeout(self._timeout_s):
                    target = parse_target(page, external=replica.is_external)
                    reply = await self._client.request("GET", target, self._headers, idempotent=True)
            except TimeoutError:
                late = self._late[url] = self._late.get(url, 0) + 1
                return False if late >= _MAX_TIMEOUTS else None
            except TransportError:
                return False
            self._late.pop(url, None)
            if reply.status not in _NO_SUCH_PAGE:
                self._page[url] = page
                # 401, 403 and 429 mean that the server is up: model calls will report the problem.
                return reply.status < 500
        return True  # it answers, but has neither page
