"""What a model call used and cost: read from its reply, priced, and put on the account of the attempt it belongs to.

Prices are settings of a model instance, in any currency, per million tokens. Without them the cost of a call is not
known. A call that was not answered counts as free, because nobody says what it cost.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from typing import TYPE_CHECKING, Any, Final

from pydantic import BaseModel, ConfigDict, NonNegativeFloat

from gymnast.errors import CallError
from gymnast.kit.settings import Settings
from gymnast.types.usage import Tokens, tokens_of
from gymnast.wire.server import ReplyError
from gymnast.wire.validate import InvalidBody

if TYPE_CHECKING:
    from gymnast.kit.model import ModelCall
    from gymnast.types.json import JsonObject
    from gymnast.types.usage import Account

_MILLION: Final = 1_000_000
_NOTHING: Final = Tokens(0, 0, 0, 0)


class Prices(BaseModel):
    """What a million tokens cost."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)
    input: NonNegativeFloat
    output: NonNegativeFloat
    cached_input: NonNegativeFloat | None = None
    """Input that the endpoint had in its cache; null prices it like other input."""
    reasoning: NonNegativeFloat | None = None
    """Output that is reasoning; null prices it like other output."""

    def cost_of(self, tokens: Tokens) -> float:
        """What a call cost. Tokens that are not known to be cached are not taken to be."""
        cached, thought = min(tokens.cached or 0, tokens.input), min(tokens.reasoning or 0, tokens.output)
        cached_price = self.input if self.cached_input is None else self.cached_input
        thought_price = self.output if self.reasoning is None else self.reasoning
        total = (tokens.input - cached) * self.input + cached * cached_price
        return (total + (tokens.output - thought) * self.output + thought * thought_price) / _MILLION


class ModelSettings(Settings):
    """Settings of every model server."""

    prices: Prices | None = None
    """What a million tokens cost: `{input: 0.4, cached_input: 0.1, output: 1.6}`. Unset, money is not accounted."""


class Meter:
    """Accounts the calls of one model server."""

    def __init__(self, instance: str, prices: Prices | None) -> None:
        self._instance = instance
        self._prices = prices

    def answered(self, call: ModelCall, dialect: str, reply: Any, started: float) -> None:
        """A call was answered with this body, in the form of any dialect."""
        account = call.account
        if account is None:
            return
        latency_ms = (time.perf_counter() - started) * 1000
        tokens = _NOTHING if call.is_free else tokens_of(reply.get("usage"))
        cost = None if tokens is None or self._prices is None else self._prices.cost_of(tokens)
        account.add_call(tokens, latency_ms, cost=cost, ttft_ms=call.ttft_ms)
        if call.ignored:
            account.add_ignored(call.ignored)
        if account.captured is not None:
            seen = _captured(self._instance, dialect, latency_ms) | _of_reply(reply, tokens)
            _capture(account, {**seen, "status_code": 200, "latency_ttft_ms": call.ttft_ms, "cost": cost})

    def failed(self, call: ModelCall, dialect: str, error: BaseException, started: float) -> None:
        """A call was not answered well."""
        account = call.account
        if account is None:
            return
        latency_ms = (time.perf_counter() - started) * 1000
        account.add_failed(latency_ms)
        if call.ignored:
            account.add_ignored(call.ignored)
        if account.captured is not None:
            status = _status_of(error)
            seen = _captured(self._instance, dialect, latency_ms)
            _capture(account, {**seen, "status_code": status, "error_category": error_category(error, status)})


def error_category(error: BaseException, status: int | None) -> str:
    """The contract's word for a failed call."""
    if isinstance(error, (asyncio.CancelledError, TimeoutError)):
        return "timeout"
    if isinstance(error, CallError) and error.detail.kind in _BY_KIND:
        return _BY_KIND[error.detail.kind]
    if status is None:
        return "exception"
    return _BY_STATUS.get(status, "upstream_error" if status >= 500 else "client_error")


_BY_KIND: Final = {
    "model_timeout": "timeout",
    "model_unreachable": "connection",
    "model_bad_reply": "capture_parse_error",
}
_BY_STATUS: Final = {401: "auth", 403: "auth", 404: "not_found", 408: "timeout", 429: "rate_limit"}


def _status_of(error: BaseException) -> int | None:
    if isinstance(error, CallError):
        return error.detail.status
    if isinstance(error, ReplyError):
        return error.reply.status
    return 422 if isinstance(error, InvalidBody) else None


def _captured(instance: str, dialect: str, latency_ms: float) -> JsonObject:
    completed_at = time.time()
    return {
        "model_call_id": secrets.token_hex(16),
        "model_ref": {"type": "responses_api_models", "name": instance},
        "dialect": dialect,
        "started_at": completed_at - latency_ms / 1000,
        "completed_at": completed_at,
        "latency_total_ms": round(latency_ms, 3),
    }


def _of_reply(reply: JsonObject, tokens: Tokens | None) -> JsonObject:
    """What a reply says of itself, in the words of the contract's captures."""
    choice = (reply.get("choices") or [{}])[0]
    output = [item for item in reply.get("output") or () if isinstance(item, dict)]
    made = [item for item in output if item.get("type") == "function_call"]
    tool_calls = [{"name": item.get("name"), "call_id": item.get("call_id")} for item in made] or [
        {"name": (one.get("function") or {}).get("name"), "call_id": one.get("id")}
        for one in (choice.get("message") or {}).get("tool_calls") or ()
    ]
    incomplete = (reply.get("incomplete_details") or {}).get("reason")
    return {
        "response_id": reply.get("id"),
        "model": reply.get("model"),
        "response_status": reply.get("status"),
        "finish_reason": choice.get("finish_reason") or incomplete or ("tool_calls" if tool_calls else "stop"),
        "tokens_in": tokens.input if tokens else None,
        "tokens_out": tokens.output if tokens else None,
        "tokens_reasoning": tokens.reasoning if tokens else None,
        "tokens_total": tokens.input + tokens.output if tokens else None,
        "cached_tokens": tokens.cached if tokens else None,
        "cache_hit": bool(tokens.cached) if tokens and tokens.cached is not None else None,
        "tool_calls": tool_calls,
    }


def _capture(account: Account, seen: JsonObject) -> None:
    assert account.captured is not None
    account.captured.append(seen)
