"""Sessions: an environment's state per rollout, opened by seed, closed by verify, expired when unused."""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

S = TypeVar("S")

_MAX_EXPIRED = 10_000
"""Ids of expired sessions to remember, so that a late call gets the right error."""


class NoSession(LookupError):  # noqa: N818 - names the state that the caller must fix
    """No session is open under that id."""

    def __init__(self, *, expired: bool) -> None:
        super().__init__("the session expired" if expired else "no session is open: POST /seed_session first")
        self.expired = expired


@dataclass(slots=True)
class _Entry(Generic[S]):
    state: S
    last_used: float
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    users: int = 0


class _Use(AbstractAsyncContextManager[S]):
    """One user of a session."""

    __slots__ = ("_clock", "_entry", "_exclusive")

    def __init__(self, entry: _Entry[S], clock: Callable[[], float], *, exclusive: bool) -> None:
        self._entry = entry
        self._clock = clock
        self._exclusive = exclusive

    async def __aenter__(self) -> S:
        entry = self._entry
        entry.users += 1
        if self._exclusive:
            try:
                await entry.lock.acquire()
            except BaseException:
                self._leave()
                raise
        return entry.state

    async def __aexit__(self, *_: object) -> None:
        if self._exclusive:
            self._entry.lock.release()
        self._leave()

    def _leave(self) -> None:
        self._entry.users -= 1
        self._entry.last_used = self._clock()


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
        """Open a session with `state`. A session already open under the id is closed first."""
        await self.close(session_id)
        self._expired.pop(session_id, None)
        self._entries[session_id] = _Entry(state, self._clock())

    def use(self, session_id: str, *, exclusive: bool) -> AbstractAsyncContextManager[S]:
        """The session's state, which does not expire meanwhile. `exclusive` serialises its users in arrival order."""
        entry = self._entries.get(session_id)
        if entry is None:
            raise NoSession(expired=session_id in self._expired)
        return _Use(entry, self._clock, exclusive=exclusive)

    async def close(self, session_id: str) -> None:
        """Close the session if it is open."""
        entry = self._entries.pop(session_id, None)
        if entry is not None:
            await self._close(entry.state)

    async def sweep(self) -> int:
        """Close sessions unused for `ttl_s`. Returns how many."""
        limit = self._clock() - self._ttl_s
        unused = [key for key, entry in self._entries.items() if not entry.users and entry.last_used < limit]
        for session_id in unused:
            self._expired[session_id] = None
            await self.close(session_id)
        while len(self._expired) > _MAX_EXPIRED:
            self._expired.popitem(last=False)
        return len(unused)

    async def close_all(self) -> None:
        """Close all sessions."""
        for session_id in list(self._entries):
            await self.close(session_id)
