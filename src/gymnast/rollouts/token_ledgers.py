"""The tokens of attempts: ledgers are opened at the model servers before an attempt and taken when it has ended."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from gymnast.errors import CallError
from gymnast.kit.ledgers import OPEN_ROUTE, TAKE_ROUTE
from gymnast.tokens.export import BadLedger, read_ledger
from gymnast.tokens.items import ledger_of_items
from gymnast.types.failure import FailureDetail, Stage
from gymnast.types.tokens import LEDGER

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gymnast.types.json import JsonObject
    from gymnast.wire.calls import Calls, Scope

_TIMEOUT_S: Final = 60.0


class AttemptLedgers:
    """The ledgers of one attempt."""

    def __init__(self, calls: Calls, models: Iterable[str], scope: Scope) -> None:
        self._calls = calls
        self._models = models
        self._scope = scope
        self._opened: list[str] = []

    async def open(self) -> None:
        """Ask every model server for one. Servers written elsewhere know none: their items carry the ids."""
        if self._scope.rollout_id is None:
            return
        for model in self._models:
            reply = await self._calls.call(model, OPEN_ROUTE, {}, self._scope, stage=Stage.MODEL, timeout_s=_TIMEOUT_S)
            if reply.ok:
                self._opened.append(model)

    async def take(self) -> JsonObject | None:
        """The ledger of the model that was called, or None. Raises CallError when more than one was."""
        found: dict[str, JsonObject] = {}
        for model in self._opened:
            ledger = await self._calls.expect(
                model, TAKE_ROUTE, {}, self._scope, stage=Stage.MODEL, timeout_s=_TIMEOUT_S
            )
            if ledger:
                found[model] = ledger
        if len(found) > 1:
            text = f"tokens of one rollout come from several models: {', '.join(found)}"
            raise CallError(FailureDetail("model_bad_reply", Stage.MODEL, text))
        return next(iter(found.values()), None)

    async def drop(self) -> None:
        """Forget what a failed attempt sampled. A server that does not answer forgets by itself."""
        try:
            await self.take()
        except CallError:
            return


def with_tokens(result: JsonObject, ledger: JsonObject | None) -> JsonObject:
    """The result with its ledger: the one that was taken, or one made of the ids that its items carry."""
    if ledger is None:
        ledger = ledger_of_items(result.get("response"))
    if ledger is not None:
        result[LEDGER] = ledger
        checked(result)
    return result


def checked(record: JsonObject) -> Any:
    """The record's ledger, checked; a failure of the model server's when it does not hold together."""
    try:
        return read_ledger(record)
    except BadLedger as error:
        raise CallError(FailureDetail("model_bad_reply", Stage.MODEL, str(error))) from error
