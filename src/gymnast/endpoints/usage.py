"""Usage and cost of model calls: read from replies, priced, and added to the usage of the attempt.

Prices are settings of a model instance, per million tokens, in any currency. Without them the cost of a call is
unknown. A failed call counts as free, because no reply says what it cost.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from typing import TYPE_CHECKING, Any, Final

from pydantic import BaseModel, ConfigDict, NonNegativeFloat

from gymnast.config.server_settings import Settings
from gymnast.errors import CallError
from gymnast.types.failure import FailureKind
from gymnast.types.usage import Tokens, parse_tokens
from gymnast.wire.server import ReplyError
from gymnast.wire.validate import InvalidBody

if TYPE_CHECKING:
    from gymnast.endpoints.model_server import ModelCall
    from gymnast.types.json import JsonObject

_MILLION: Final = 1_000_000
_NO_TOKENS: Final = Tokens(0, 0, 0, 0)


class Prices(BaseModel):
    """Prices per million tokens."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)
    input: NonNegativeFloat
    output: NonNegativeFloat
    cached_input: NonNegativeFloat | None = None
    """Input found in the endpoint's cache; null uses the price of other input."""
    reasoning: NonNegativeFloat | None = None
    """Reasoning output; null uses the price of other output."""

    def cost_of(self, tokens: Tokens) -> float:
        """The cost of a call. Tokens not reported as cached are priced as uncached."""
        cached, reasoning = min(tokens.cached or 0, tokens.input), min(tokens.reasoning or 0, tokens.output)
        cached_price = self.input if self.cached_input is None else self.cached_input
        reasoning_price = self.output if self.reasoning is None else self.reasoning
        total = (tokens.input - cached) * self.input + cached * cached_price
        return (total + (tokens.output - reasoning) * self.output + reasoning * reasoning_price) / _MILLION


class ModelSettings(Settings):
    prices: Prices | str | None = None
    """Prices per million tokens: `{input: 0.4, cached_input: 0.1, output: 1.6}`, `table` for those that ship with
    Gymnast, or a file in the form of that table. If unset, costs are not recorded."""


class Meter:
    """Records usage and latency of the calls of one model server."""

    def __init__(self, instance: str, prices: Prices | None) -> None:
        self._instance = instance
        self._prices = prices

    def record_reply(self, call: ModelCall, dialect: str, reply: Any, started: float) -> None:
        """Record an answered call. `reply` is the body in any dialect."""
        usage_counter = call.usage_counter
        if usage_counter is None:
            return
        latency_ms = (time.perf_counter() - started) * 1000
        tokens = _NO_TOKENS if call.is_free else parse_tokens(reply.get("usage"))
        cost = None if tokens is None or self._prices is None else self._prices.cost_of(tokens)
        usage_counter.add_call(tokens, latency_ms, cost=cost, ttft_ms=call.ttft_ms)
        if call.ignored:
            usage_counter.add_ignored(call.ignored)
        if usage_counter.captured is not None:
            capture = _make_capture(self._instance, dialect, latency_ms) | _describe_reply(reply, tokens)
            usage_counter.captured.append(
                {**capture, "status_code": 200, "latency_ttft_ms": call.ttft_ms, "cost": cost}
            )

    def record_failure(self, call: ModelCall, dialect: str, error: BaseException, started: float) -> None:
        """Record a failed call."""
        usage_counter = call.usage_counter
        if usage_counter is None:
            return
        latency_ms = (time.perf_counter() - started) * 1000
        usage_counter.add_failed(latency_ms)
        if call.ignored:
            usage_counter.add_ignored(call.ignored)
        if usage_counter.captured is not None:
            status = _status_of(error)
            capture = _make_capture(self._instance, dialect, latency_ms)
            category = error_category(error, status)
            usage_counter.captured.append({**capture, "status_code": status, "error_category": category})


def error_category(error: BaseException, status: int | None) -> str:
    """The category of a failed call, as the contract defines it."""
    if isinstance(error, (asyncio.CancelledError, TimeoutError)):
        return "timeout"
    if isinstance(error, CallError) and error.detail.kind in _CATEGORY_BY_KIND:
        return _CATEGORY_BY_KIND[error.detail.kind]
    if status is None:
        return "exception"
    return _CATEGORY_BY_STATUS.get(status, "upstream_error" if status >= 500 else "client_error")


_CATEGORY_BY_KIND: Final = {
    FailureKind.MODEL_TIMEOUT: "timeout",
    FailureKind.MODEL_UNREACHABLE: "connection",
    FailureKind.MODEL_BAD_REPLY: "capture_parse_error",
}
_CATEGORY_BY_STATUS: Final = {401: "auth", 403: "auth", 404: "not_found", 408: "timeout", 429: "rate_limit"}


def _status_of(error: BaseException) -> int | None:
    if isinstance(error, CallError):
        return error.detail.status
    if isinstance(error, ReplyError):
        return error.reply.status
    return 422 if isinstance(error, InvalidBody) else None


def _make_capture(instance: str, dialect: str, latency_ms: float) -> JsonObject:
    completed_at = time.time()
    return {
        "model_call_id": secrets.token_hex(16),
        "model_ref": {"type": "responses_api_models", "name": instance},
        "dialect": dialect,
        "started_at": completed_at - latency_ms / 1000,
        "completed_at": completed_at,
        "latency_total_ms": round(latency_ms, 3),
    }


def _describe_reply(reply: JsonObject, tokens: Tokens | None) -> JsonObject:
    """The fields of a capture that come from the reply."""
    choice = (reply.get("choices") or [{}])[0]
    output = [item for item in reply.get("output") or () if isinstance(item, dict)]
    calls = [item for item in output if item.get("type") == "function_call"]
    tool_calls = [{"name": item.get("name"), "call_id": item.get("call_id")} for item in calls] or [
        {"name": (call.get("function") or {}).get("name"), "call_id": call.get("id")}
        for call in (choice.get("message") or {}).get("tool_calls") or ()
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
