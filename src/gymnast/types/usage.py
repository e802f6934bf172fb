"""What model calls used: tokens, time and money of a call, an attempt or a run.

`ModelUsage` is frozen and persisted; `UsageCounter` adds up. What is unknown stays unknown: a cost without prices is
None, never 0, and so is a detail (cached, reasoning) that one of the calls did not report.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

import msgspec
import orjson

from gymnast.types.encoding import MAX_COUNT, is_count, printable

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from gymnast.types.json import JsonObject

MODEL_USAGE: Final = "_ng_model_usage"
"""Its key in a record."""
CALL_CAPTURE: Final = "ng_model_call_capture"
USAGE_HEADER: Final = "x-gymnast-usage"
"""The header of HTTP replies with the usage of the model calls behind them."""
_MAX_IGNORED: Final = 20
_MAX_NAME: Final = 100


class ModelUsage(msgspec.Struct, frozen=True):
    """The total usage of some model calls."""

    calls: int = 0
    failed_calls: int = 0
    """Calls without a usable response. They count as free, because their cost is unknown."""
    unmetered_calls: int = 0
    """Calls whose response reported no tokens."""
    input_tokens: int = 0
    cached_tokens: int | None = 0
    output_tokens: int = 0
    reasoning_tokens: int | None = 0
    latency_ms: float = 0.0
    """The sum over all calls."""
    ttft_ms: float | None = None
    """Mean time to first token of the calls where it was measured."""
    ttft_calls: int = 0
    cost: float | None = 0.0
    """None if any call had no price."""
    ignored: tuple[str, ...] = ()
    """Request parameters that did not reach the model."""
    judge: ModelUsage | None = None
    """The part that judges used; the rest is the policy's. None if no judge was called."""

    @property
    def tokens(self) -> int:
        return self.input_tokens + self.output_tokens

    def as_json(self) -> JsonObject:
        """The object in records and headers. Counts that are usually 0 are included only if they are not."""
        data: JsonObject = {
            "calls": self.calls,
            "input_tokens": self.input_tokens,
            "cached_tokens": self.cached_tokens,
            "output_tokens": self.output_tokens,
            "reasoning_tokens": self.reasoning_tokens,
            "latency_ms": round(self.latency_ms, 3),
            "ttft_ms": None if self.ttft_ms is None else round(self.ttft_ms, 3),
            "cost": None if self.cost is None else round(self.cost, 9),
        }
        if self.failed_calls:
            data["failed_calls"] = self.failed_calls
        if self.unmetered_calls:
            data["unmetered_calls"] = self.unmetered_calls
        if self.ttft_calls:
            data["ttft_calls"] = self.ttft_calls
        if self.ignored:
            data["ignored"] = list(self.ignored)
        if self.judge is not None:
            data["judge"] = self.judge.as_json()
        return data


class Tokens(msgspec.Struct, frozen=True):
    """The tokens of one call, as its response reports them."""

    input: int
    output: int
    cached: int | None = None
    reasoning: int | None = None


class UsageCounter:
    """Adds up the usage of model calls."""

    __slots__ = (
        *("cached_tokens", "calls", "captured", "cost", "failed_calls", "ignored", "input_tokens", "judge"),
        *("latency_ms", "output_tokens", "reasoning_tokens", "ttft_calls", "ttft_total_ms", "unmetered_calls"),
    )

    def __init__(self, *, captures: bool = False) -> None:
        """With `captures`, also lists every call."""
        self.calls = 0
        self.failed_calls = 0
        self.unmetered_calls = 0
        self.input_tokens = 0
        self.cached_tokens: int | None = 0
        self.output_tokens = 0
        self.reasoning_tokens: int | None = 0
        self.latency_ms = 0.0
        self.ttft_total_ms = 0.0
        self.ttft_calls = 0
        self.cost: float | None = 0.0
        self.ignored: list[str] = []
        self.captured: list[JsonObject] | None = [] if captures else None
        self.judge: UsageCounter | None = None
        """The part that judges used."""

    @property
    def tokens(self) -> int:
        return self.input_tokens + self.output_tokens

    def add_call(
        self, tokens: Tokens | None, latency_ms: float, *, cost: float | None, ttft_ms: float | None = None
    ) -> None:
        """Add a successful call. `tokens` is None if the response did not report them."""
        self.calls += 1
        self.latency_ms += latency_ms
        self.cost = add_known(self.cost, cost)
        if tokens is None:
            self.unmetered_calls += 1
            self.cached_tokens = self.reasoning_tokens = None
        else:
            self.input_tokens += tokens.input
            self.output_tokens += tokens.output
            self.cached_tokens = add_known(self.cached_tokens, tokens.cached)
            self.reasoning_tokens = add_known(self.reasoning_tokens, tokens.reasoning)
        if ttft_ms is not None:
            self.ttft_calls += 1
            self.ttft_total_ms += ttft_ms

    def add_failed(self, latency_ms: float) -> None:
        """Add a call without a usable response."""
        self.calls += 1
        self.failed_calls += 1
        self.latency_ms += latency_ms

    def add_ignored(self, names: Sequence[str]) -> None:
        """Add parameters that did not reach the model, each once, up to a limit."""
        for name in map(printable, names):
            if len(self.ignored) < _MAX_IGNORED and name[:_MAX_NAME] not in self.ignored:
                self.ignored.append(name[:_MAX_NAME])

    def merge(self, more: ModelUsage) -> None:
        """Add usage that was counted elsewhere."""
        self.calls += more.calls
        self.failed_calls += more.failed_calls
        self.unmetered_calls += more.unmetered_calls
        self.input_tokens += more.input_tokens
        self.output_tokens += more.output_tokens
        self.cached_tokens = add_known(self.cached_tokens, more.cached_tokens)
        self.reasoning_tokens = add_known(self.reasoning_tokens, more.reasoning_tokens)
        self.latency_ms += more.latency_ms
        self.cost = add_known(self.cost, more.cost)
        if more.ttft_ms is not None:
            self.ttft_calls += more.ttft_calls
            self.ttft_total_ms += more.ttft_ms * more.ttft_calls
        if more.ignored:
            self.add_ignored(more.ignored)
        if more.judge is not None:
            self._merge_into_judge(more.judge)

    def merge_judge(self, judge: UsageCounter) -> None:
        """Add what a judge used: to the total, and to the judges' part."""
        self.merge(judge.usage())
        self._merge_into_judge(judge.usage())
        if self.captured is not None:
            self.captured += judge.captured or ()

    def _merge_into_judge(self, more: ModelUsage) -> None:
        if self.judge is None:
            self.judge = UsageCounter()
        self.judge.merge(more)

    def usage(self) -> ModelUsage:
        return ModelUsage(
            self.calls,
            self.failed_calls,
            self.unmetered_calls,
            self.input_tokens,
            self.cached_tokens,
            self.output_tokens,
            self.reasoning_tokens,
            self.latency_ms,
            self.ttft_total_ms / self.ttft_calls if self.ttft_calls else None,
            self.ttft_calls,
            self.cost,
            tuple(self.ignored),
            None if self.judge is None else self.judge.usage(),
        )


def parse_tokens(usage: Any) -> Tokens | None:
    """The tokens in a `usage` object of any dialect, or None if it has none."""
    if not isinstance(usage, dict):
        return None
    if "input_tokens" in usage:
        tokens_in, tokens_out = usage["input_tokens"], usage.get("output_tokens")
        details_in, details_out = usage.get("input_tokens_details"), usage.get("output_tokens_details")
    else:
        tokens_in, tokens_out = usage.get("prompt_tokens"), usage.get("completion_tokens")
        details_in, details_out = usage.get("prompt_tokens_details"), usage.get("completion_tokens_details")
    if not is_count(tokens_in) or not is_count(tokens_out):
        return None
    cached = details_in.get("cached_tokens") if isinstance(details_in, dict) else None
    reasoning = details_out.get("reasoning_tokens") if isinstance(details_out, dict) else None
    if cached is None:
        cached = usage.get("cached_input_tokens", usage.get("cache_read_input_tokens"))
    if reasoning is None:
        reasoning = usage.get("reasoning_output_tokens")
    return Tokens(tokens_in, tokens_out, count_or_none(cached), count_or_none(reasoning))


def make_capture(usage_counter: UsageCounter, rollout_id: str | None) -> JsonObject:
    """The row attachment `ng_model_call_capture`: totals, and each call that this process saw."""
    calls = usage_counter.captured or []
    capture: JsonObject = {
        "rollout_id": rollout_id,
        "metrics": {
            "tokens_in": usage_counter.input_tokens,
            "tokens_out": usage_counter.output_tokens,
            "tokens_reasoning": usage_counter.reasoning_tokens,
            "tokens_total": usage_counter.tokens,
            "cached_tokens": usage_counter.cached_tokens,
            "latency_total_ms": round(usage_counter.latency_ms, 3),
            "num_calls": usage_counter.calls,
        },
        "calls": [{**call, "call_index": index} for index, call in enumerate(calls)],
    }
    if len(calls) < usage_counter.calls:
        capture["gaps"] = [
            f"{usage_counter.calls - len(calls)} calls were made in other processes: only their totals are known"
        ]
    return capture


def encode_usage(usage: ModelUsage) -> str:
    """The usage as a header value: ASCII JSON."""
    data = orjson.dumps(usage.as_json())
    return data.decode() if data.isascii() else json.dumps(usage.as_json())


_DECODER: Final = msgspec.json.Decoder(ModelUsage)


def decode_usage(headers: Mapping[str, str]) -> ModelUsage | None:
    """The usage in a reply's headers, or None if it is missing or invalid."""
    value = headers.get(USAGE_HEADER)
    if value is None:
        return None
    try:
        return _DECODER.decode(value)
    except msgspec.MsgspecError:
        return None


class _Line(msgspec.Struct):
    usage: ModelUsage | None = msgspec.field(default=None, name=MODEL_USAGE)


_LINES: Final = msgspec.json.Decoder(_Line)


def usage_of_line(line: bytes) -> ModelUsage | None:
    """The usage in a record, or None."""
    try:
        return _LINES.decode(line).usage
    except msgspec.MsgspecError:
        return None


def count_or_none(value: Any) -> int | None:
    """A count as it is, anything else as None."""
    return value if type(value) is int and 0 <= value <= MAX_COUNT else None


def add_known(total: Any, more: Any) -> Any:
    """The sum, or None if either is unknown."""
    return None if total is None or more is None else total + more
