"""The token sessions of a model server: one for each rollout, handed over when it ends, dropped when forgotten."""

from __future__ import annotations

import time
from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from gymnast.tokens.export import pack_ledger
from gymnast.tokens.session import TokenSession
from gymnast.wire.server import HttpError

if TYPE_CHECKING:
    from collections.abc import Callable

    from gymnast.tokens.engine import Asker
    from gymnast.tokens.rendering import Renderer
    from gymnast.types.json import JsonObject
    from gymnast.wire.message import Request
    from gymnast.wire.server import Server

OPEN_ROUTE: Final = "/token_ledger/open"
TAKE_ROUTE: Final = "/token_ledger/take"
_FORGOTTEN_AFTER_S: Final = 3 * 3600.0
_MOST: Final = 20_000
"""Sessions of clients that never take their ledger: the oldest go first."""


@dataclass(slots=True)
class Entry:
    """A rollout's session. `watched`: a collector will take the ledger, so items only refer to it."""

    session: TokenSession
    watched: bool
    used_at: float


class Ledgers:
    """The open sessions, oldest use first."""

    def __init__(self, renderer: Renderer | None, model: str, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._renderer = renderer
        self._model = model
        self._clock = clock
        self._entries: OrderedDict[str, Entry] = OrderedDict()

    def __len__(self) -> int:
        return len(self._entries)

    def serve_on(self, server: Server) -> None:
        """Let collectors open and take ledgers of the rollouts they run."""
        server.route("POST", OPEN_ROUTE, self._open)
        server.route("POST", TAKE_ROUTE, self._take)

    def of(self, who: Asker) -> Entry:
        """The session that a call belongs to: its rollout's, or that of its cookie."""
        key = who.rollout_id or f"session {who.session_id}"
        entry = self._entries.get(key)
        now = self._clock()
        if entry is None:
            entry = self._entries[key] = Entry(TokenSession(self._renderer, self._model), watched=False, used_at=now)
        entry.used_at = now
        self._entries.move_to_end(key)
        self._sweep(now)
        return entry

    def passing(self) -> Entry:
        """A session for one call, where nobody asks for tokens: each prompt is rendered as a whole."""
        return Entry(TokenSession(self._renderer, self._model), watched=False, used_at=0.0)

    async def _open(self, request: Request) -> JsonObject:
        key, now = _rollout_of(request), self._clock()
        watched = not (isinstance(request.body, dict) and request.body.get("form") == "items")
        self._entries[key] = Entry(TokenSession(self._renderer, self._model), watched=watched, used_at=now)
        self._sweep(now)
        return {}

    async def _take(self, request: Request) -> JsonObject:
        entry = self._entries.pop(_rollout_of(request), None)
        if entry is None or not len(entry.session):
            return {}
        return pack_ledger(entry.session.ledger())

    def _sweep(self, now: float) -> None:
        while self._entries:
            key = next(iter(self._entries))
            fresh = now - self._entries[key].used_at < _FORGOTTEN_AFTER_S
            if fresh and len(self._entries) <= _MOST:
                return
            del self._entries[key]


def _rollout_of(request: Request) -> str:
    if request.rollout_id is None:
        raise HttpError(422, "ledgers belong to rollouts: the path begins with /ng-rollout/<id>")
    return request.rollout_id
