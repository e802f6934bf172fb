"""The token conversations of a model server: one per rollout, taken by its collector, dropped when they expire."""

from __future__ import annotations

import time
from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from gymnast.tokens.conversation import TokenConversation
from gymnast.tokens.export import pack_ledger
from gymnast.wire.server import HttpError

if TYPE_CHECKING:
    from collections.abc import Callable

    from gymnast.tokens.backend import Caller
    from gymnast.tokens.rendering import Renderer
    from gymnast.types.json import JsonObject
    from gymnast.wire.message import Request
    from gymnast.wire.server import Server

OPEN_ROUTE: Final = "/token_ledger/open"
TAKE_ROUTE: Final = "/token_ledger/take"
_EXPIRE_AFTER_S: Final = 3 * 3600.0
_MAX_ENTRIES: Final = 20_000
"""Entries of clients that never take their ledger; the oldest are dropped first."""


@dataclass(slots=True)
class LedgerEntry:
    """A rollout's token conversation. `is_collected`: a collector will take the ledger, so items only refer to it."""

    conversation: TokenConversation
    is_collected: bool
    used_at: float
    first_call: int = 0
    """The number of its first call on items; rollouts of several models have one for each."""

    def call_on_item(self, number: int) -> int | None:
        """How an item refers to this call; None if items carry ids."""
        return self.first_call + number if self.is_collected else None


class TokenLedgers:
    """The open entries, least recently used first."""

    def __init__(self, renderer: Renderer | None, model: str, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._renderer = renderer
        self._model = model
        self._clock = clock
        self._entries: OrderedDict[str, LedgerEntry] = OrderedDict()

    def __len__(self) -> int:
        return len(self._entries)

    def add_routes(self, server: Server) -> None:
        """Add routes through which collectors open and take the ledgers of their rollouts."""
        server.route("POST", OPEN_ROUTE, self._open)
        server.route("POST", TAKE_ROUTE, self._take)

    def entry_for(self, caller: Caller) -> LedgerEntry:
        """The entry that a call belongs to: by its rollout, or by its session cookie."""
        key = caller.rollout_id or f"session {caller.session_id}"
        entry = self._entries.get(key)
        now = self._clock()
        if entry is None:
            entry = self._entries[key] = self.new_entry()
        entry.used_at = now
        self._entries.move_to_end(key)
        self._sweep(now)
        return entry

    def new_entry(self, *, is_collected: bool = False) -> LedgerEntry:
        """An entry with a new conversation, not kept: for a single call whose tokens are not requested."""
        conversation = TokenConversation(self._renderer, self._model)
        return LedgerEntry(conversation, is_collected=is_collected, used_at=self._clock())

    async def _open(self, request: Request) -> JsonObject:
        key = _require_rollout_id(request)
        body = request.body if isinstance(request.body, dict) else {}
        entry = self._entries[key] = self.new_entry(is_collected=body.get("form") != "items")
        entry.first_call = int(body.get("first_call") or 0)
        self._sweep(self._clock())
        return {}

    async def _take(self, request: Request) -> JsonObject:
        entry = self._entries.pop(_require_rollout_id(request), None)
        if entry is None or not len(entry.conversation):
            return {}
        return pack_ledger(entry.conversation.ledger())

    def _sweep(self, now: float) -> None:
        while self._entries:
            key = next(iter(self._entries))
            is_fresh = now - self._entries[key].used_at < _EXPIRE_AFTER_S
            if is_fresh and len(self._entries) <= _MAX_ENTRIES:
                return
            del self._entries[key]


def _require_rollout_id(request: Request) -> str:
    if request.rollout_id is None:
        raise HttpError(422, "a token ledger belongs to a rollout: start the path with /ng-rollout/<id>")
    return request.rollout_id
