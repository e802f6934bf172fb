"""The tokens of attempts: ledgers are opened at the model servers before an attempt and collected after it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from gymnast.endpoints.ledgers import OPEN_ROUTE, TAKE_ROUTE
from gymnast.errors import CallError
from gymnast.tokens.export import BadLedger, read_ledger
from gymnast.tokens.items import ledger_from_items
from gymnast.tokens.merge import first_call_of, merge_ledgers, renumber_calls
from gymnast.types.failure import FailureDetail, FailureKind, Stage
from gymnast.types.tokens import EPISODE_AGENTS, LEDGER

if TYPE_CHECKING:
    from gymnast.types.json import JsonObject
    from gymnast.types.tokens import RecordedTokens
    from gymnast.wire.calls import Calls, Scope

_TIMEOUT_S: Final = 60.0


class AttemptLedgers:
    def __init__(self, calls: Calls, tokens: RecordedTokens, scope: Scope) -> None:
        self._calls = calls
        self._tokens = tokens
        self._scope = scope
        self._positions = {model: position for position, model in enumerate(tokens.models)}
        self._opened: list[str] = []

    async def open(self) -> None:
        """Open a ledger at every model server. Third-party servers have none: their items carry the ids."""
        if self._scope.rollout_id is None:
            return
        for model, position in self._positions.items():
            body = {"form": self._tokens.form, "first_call": first_call_of(position)}
            reply = await self._calls.call(
                model, OPEN_ROUTE, body, self._scope, stage=Stage.MODEL, timeout_s=_TIMEOUT_S
            )
            if reply.ok:
                self._opened.append(model)

    async def attach_to(self, result: JsonObject) -> None:
        """Add the ledger to a result: the server's, or one made from the ids in the result's items."""
        ledgers = await self._take()
        if self._tokens.form == "items":
            return  # the items carry everything
        ledger = self._merge(ledgers, result) if ledgers else ledger_from_items(result.get("response"))
        if ledger is None:
            return
        result[LEDGER] = ledger
        try:
            read_ledger(result)
        except BadLedger as error:
            raise CallError(FailureDetail(FailureKind.MODEL_BAD_REPLY, Stage.MODEL, str(error))) from error

    async def discard(self) -> None:
        """Discard what a failed attempt sampled. A server that does not reply lets its ledger expire."""
        try:
            await self._take()
        except CallError:
            return

    def _merge(self, ledgers: dict[str, JsonObject], result: JsonObject) -> JsonObject:
        """The rollout's ledger. Raises CallError if several models sampled and the result does not tell them apart."""
        if len(ledgers) > 1 and EPISODE_AGENTS not in result:
            text = (
                f"the tokens of one rollout come from several models: {', '.join(ledgers)}; name the calls of each "
                f"trained agent in `{EPISODE_AGENTS}`, or set return_token_id_information to false where a model is "
                "not trained"
            )
            raise CallError(FailureDetail(FailureKind.MODEL_BAD_REPLY, Stage.MODEL, text))
        if len(self._positions) == 1:
            return next(iter(ledgers.values()))
        renumber_calls(result, self._positions, ledgers)
        return merge_ledgers(ledgers)

    async def _take(self) -> dict[str, JsonObject]:
        """The ledgers of the models that were called, in the order of the configuration."""
        ledgers: dict[str, JsonObject] = {}
        while self._opened:
            model = self._opened.pop(0)
            ledger = await self._calls.expect(
                model, TAKE_ROUTE, {}, self._scope, stage=Stage.MODEL, timeout_s=_TIMEOUT_S
            )
            if ledger:
                ledgers[model] = ledger
        return ledgers
