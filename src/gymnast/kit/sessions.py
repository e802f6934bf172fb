"""Sessions: an environment's state for one rollout, opened by seed, closed by verify, expired when forgotten."""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

S = TypeVar("S")

_REMEMBERED_EXPIRED = 10_000


class NoSession(LookupError):  # noqa: N818 - what the caller must do is open one
    """There is no open session under that id."""

    def __init__(self, *, expired: bool) -> None:
        super().__init__("the session expired" if expired else "no session is open: POST /seed_session first")
        self.expired = expired


@dataclass(slots=True)
class _Entry(Generic[S]):
    state: S
    last_used: float
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    users: int = 0


class Sessions(Generic[S]):
    """The open sessions of one environment."""

    def __init__(
        self, ttl_s: float, close: Callable[[S], Awaitable[None]], *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._ttl_s = ttl_s
        self._close = close
        self._clock = clock
        self._entries: dict[str, _Entry[S]] = {}
        self._expired: OrderedDict[str, None] = OrderedDict()

    def __len__(self) -> int:
        return len(self._entries)

    async def open(self, session_id: str, state: S) -> None:
        """Put `state` under the id. A session already open there is closed first."""
        await self.close(session_id)
        self._expired.pop(session_id, None)
        self._entries[session_id] = _Entry(state, self._clock())

    @asynccontextmanager
    async def use(self, session_id: str, *, exclusive: bool) -> AsyncIterator[S]:
        """The state under the id, kept from expiring meanwhile; `exclusive` serialises its users in arrival order."""
        entry = self._entries.get(session_id)
        if entry is None:
            raise NoSession(expired=session_id in self._expired)
        entry.users += 1
        try:
            if exclusive:
                async with entry.lock:
                    yield entry.state
            else:
                yield entry.state
        finally:
            entry.users -= 1
            entry.last_used = self._clock()

    async def close(self, session_id: str) -> None:
        """Close the session if it is open."""
        entry = self._entries.pop(session_id, None)
        if entry is not None:
            await self._close(entry.state)

    async def sweep(self) -> int:
        """Close what nobody used for `ttl_s`. Returns how many."""
        limit = self._clock() - self._ttl_s
        forgotten = [key for key, entry in self._entries.items() if not entry.users and entry.last_used < limit]
        for session_id in forgotten:
            self._expired[session_id] = None
            await self.close(session_id)
        while len(self._expired) > _REMEMBERED_EXPIRED:
            self._expired.popitem(last=False)
        return len(forgotten)

    async def close_all(self) -> None:
        """Close everything."""
        for session_id in list(self._entries):
            await self.close(session_id)
