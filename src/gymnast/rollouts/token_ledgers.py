"""The tokens of attempts: ledgers are opened at the model servers before an attempt and taken when it has ended."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from gymnast.errors import CallError
from gymnast.kit.ledgers import OPEN_ROUTE, TAKE_ROUTE
from gymnast.tokens.export import BadLedger, read_ledger
from gymnast.tokens.items import ledger_of_items
from gymnast.types.failure import FailureDetail, Stage
from gymnast.types.tokens import LEDGER

if TYPE_CHECKING:
    from gymnast.types.json import JsonObject
    from gymnast.types.tokens import TokenKeeping
    from gymnast.wire.calls import Calls, Scope

_TIMEOUT_S: Final = 60.0


class AttemptLedgers:
    """The ledgers of one attempt."""

    def __init__(self, calls: Calls, tokens: TokenKeeping, scope: Scope) -> None:
        self._calls = calls
        self._tokens = tokens
        self._scope = scope
        self._opened: list[str] = []

    async def open(self) -> None:
        """Ask every model server for one. Servers written elsewhere know none: their items carry the ids."""
        if self._scope.rollout_id is None:
            return
        body = {"form": self._tokens.form}
        for model in self._tokens.models:
            reply = await self._calls.call(
                model, OPEN_ROUTE, body, self._scope, stage=Stage.MODEL, timeout_s=_TIMEOUT_S
            )
            if reply.ok:
                self._opened.append(model)

    async def take_into(self, result: JsonObject) -> None:
        """Put the ledger into a result: the one that was kept, or one made of the ids that its items carry."""
        ledger = await self._take()
        if self._tokens.form == "items":
            return  # the items have it all
        if ledger is None:
            ledger = ledger_of_items(result.get("response"))
        if ledger is None:
            return
        result[LEDGER] = ledger
        try:
            read_ledger(result)
        except BadLedger as error:
            raise CallError(FailureDetail("model_bad_reply", Stage.MODEL, str(error))) from error

    async def drop(self) -> None:
        """Forget what a failed attempt sampled. A server that does not answer forgets by itself."""
        try:
            await self._take()
        except CallError:
            return

    async def _take(self) -> JsonObject | None:
        """The ledger of the model that was called, or None. Raises CallError when more than one was."""
        found: dict[str, JsonObject] = {}
        while self._opened:
            model = self._opened.pop()
            ledger = await self._calls.expect(
                model, TAKE_ROUTE, {}, self._scope, stage=Stage.MODEL, timeout_s=_TIMEOUT_S
            )
            if ledger:
                found[model] = ledger
        if len(found) > 1:
            text = f"tokens of one rollout come from several models: {', '.join(found)}"
            raise CallError(FailureDetail("model_bad_reply", Stage.MODEL, text))
        return next(iter(found.values()), None)
