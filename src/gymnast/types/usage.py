"""What model calls used: tokens, time and money of a call, of an attempt, of a run.

`ModelUsage` is what travels and is kept; `Account` is where it adds up. What is not known stays unknown: a cost without
prices is None and never 0, and so is a detail (cached, reasoning) that one of the calls did not tell.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

import msgspec
import orjson

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from gymnast.types.json import JsonObject

MODEL_USAGE: Final = "_ng_model_usage"
"""The key of a record."""
CALL_CAPTURE: Final = "ng_model_call_capture"
USAGE_HEADER: Final = "x-gymnast-usage"
"""On replies over HTTP: what the model calls behind them used."""
_MOST_IGNORED: Final = 20
_LONGEST_NAME: Final = 100


class ModelUsage(msgspec.Struct, frozen=True):
    """What some model calls used together."""

    calls: int = 0
    failed_calls: int = 0
    """Of those, the ones without a usable answer. They count as free: nobody says what they cost."""
    unmetered_calls: int = 0
    """Answered without a word about tokens."""
    input_tokens: int = 0
    cached_tokens: int | None = 0
    output_tokens: int = 0
    reasoning_tokens: int | None = 0
    latency_ms: float = 0.0
    """Of all calls together."""
    ttft_ms: float | None = None
    """Time to the first token: the mean over the calls where it was measured."""
    ttft_calls: int = 0
    cost: float | None = 0.0
    """None if any call had no price."""
    ignored: tuple[str, ...] = ()
    """Parameters that did not reach the model."""
    judge: ModelUsage | None = None
    """The part of all this that judges used; the rest is the policy's. None where no judge was asked."""

    @property
    def tokens(self) -> int:
        return self.input_tokens + self.output_tokens

    def as_json(self) -> JsonObject:
        """The object that records and headers carry. Counts that are usually 0 are there only if they are not."""
        found: JsonObject = {
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
            found["failed_calls"] = self.failed_calls
        if self.unmetered_calls:
            found["unmetered_calls"] = self.unmetered_calls
        if self.ttft_calls:
            found["ttft_calls"] = self.ttft_calls
        if self.ignored:
            found["ignored"] = list(self.ignored)
        if self.judge is not None:
            found["judge"] = self.judge.as_json()
        return found


class Tokens(msgspec.Struct, frozen=True):
    """The tokens of one call, as its reply tells them."""

    input: int
    output: int
    cached: int | None = None
    reasoning: int | None = None


class Account:
    """Adds up what model calls used."""

    __slots__ = (
        *("cached_tokens", "calls", "captured", "cost", "failed_calls", "ignored", "input_tokens", "judge"),
        *("latency_ms", "output_tokens", "reasoning_tokens", "ttft_calls", "ttft_total_ms", "unmetered_calls"),
    )

    def __init__(self, *, captures: bool = False) -> None:
        """With `captures`, every call is also listed."""
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
        self.judge: Account | None = None
        """The part that judges used."""

    @property
    def tokens(self) -> int:
        return self.input_tokens + self.output_tokens

    def add_call(
        self, tokens: Tokens | None, latency_ms: float, *, cost: float | None, ttft_ms: float | None = None
    ) -> None:
        """A call that was answered. Without `tokens` the reply did not say."""
        self.calls += 1
        self.latency_ms += latency_ms
        self.cost = _sum(self.cost, cost)
        if tokens is None:
            self.unmetered_calls += 1
            self.cached_tokens = self.reasoning_tokens = None
        else:
            self.input_tokens += tokens.input
            self.output_tokens += tokens.output
            self.cached_tokens = _sum(self.cached_tokens, tokens.cached)
            self.reasoning_tokens = _sum(self.reasoning_tokens, tokens.reasoning)
        if ttft_ms is not None:
            self.ttft_calls += 1
            self.ttft_total_ms += ttft_ms

    def add_failed(self, latency_ms: float) -> None:
        """A call without a usable answer."""
        self.calls += 1
        self.failed_calls += 1
        self.latency_ms += latency_ms

    def add_ignored(self, names: Sequence[str]) -> None:
        """Parameters that did not reach the model; each is named once, and not without bound."""
        for name in names:
            if len(self.ignored) < _MOST_IGNORED and name[:_LONGEST_NAME] not in self.ignored:
                self.ignored.append(name[:_LONGEST_NAME])

    def merge(self, more: ModelUsage) -> None:
        """What was added up elsewhere."""
        self.calls += more.calls
        self.failed_calls += more.failed_calls
        self.unmetered_calls += more.unmetered_calls
        self.input_tokens += more.input_tokens
        self.output_tokens += more.output_tokens
        self.cached_tokens = _sum(self.cached_tokens, more.cached_tokens)
        self.reasoning_tokens = _sum(self.reasoning_tokens, more.reasoning_tokens)
        self.latency_ms += more.latency_ms
        self.cost = _sum(self.cost, more.cost)
        if more.ttft_ms is not None:
            self.ttft_calls += more.ttft_calls
            self.ttft_total_ms += more.ttft_ms * more.ttft_calls
        if more.ignored:
            self.add_ignored(more.ignored)
        if more.judge is not None:
            self._of_judges(more.judge)

    def merge_judge(self, judged: Account) -> None:
        """What a judge used: it counts like every call, and is told apart."""
        self.merge(judged.usage())
        self._of_judges(judged.usage())
        if self.captured is not None:
            self.captured += judged.captured or ()

    def _of_judges(self, more: ModelUsage) -> None:
        if self.judge is None:
            self.judge = Account()
        self.judge.merge(more)

    def usage(self) -> ModelUsage:
        """The sums."""
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


def tokens_of(usage: Any) -> Tokens | None:
    """The tokens in a `usage` object of any dialect, or None where it does not tell."""
    if not isinstance(usage, dict):
        return None
    if "input_tokens" in usage:
        given, made = usage["input_tokens"], usage.get("output_tokens")
        before, after = usage.get("input_tokens_details"), usage.get("output_tokens_details")
    else:
        given, made = usage.get("prompt_tokens"), usage.get("completion_tokens")
        before, after = usage.get("prompt_tokens_details"), usage.get("completion_tokens_details")
    if not isinstance(given, int) or not isinstance(made, int):
        return None
    cached = before.get("cached_tokens") if isinstance(before, dict) else None
    thought = after.get("reasoning_tokens") if isinstance(after, dict) else None
    if cached is None:
        cached = usage.get("cached_input_tokens", usage.get("cache_read_input_tokens"))
    if thought is None:
        thought = usage.get("reasoning_output_tokens")
    return Tokens(given, made, _whole(cached), _whole(thought))


def capture_of(account: Account, rollout_id: str | None) -> JsonObject:
    """The row attachment `ng_model_call_capture`: sums, and each call as far as it was seen from here."""
    calls = account.captured or []
    found: JsonObject = {
        "rollout_id": rollout_id,
        "metrics": {
            "tokens_in": account.input_tokens,
            "tokens_out": account.output_tokens,
            "tokens_reasoning": account.reasoning_tokens,
            "tokens_total": account.tokens,
            "cached_tokens": account.cached_tokens,
            "latency_total_ms": round(account.latency_ms, 3),
            "num_calls": account.calls,
        },
        "calls": [{**call, "call_index": index} for index, call in enumerate(calls)],
    }
    if len(calls) < account.calls:
        found["gaps"] = [f"{account.calls - len(calls)} calls were made in other processes: only their sums are known"]
    return found


def encode_usage(usage: ModelUsage) -> str:
    """As a header value: JSON in ASCII."""
    data = orjson.dumps(usage.as_json())
    return data.decode() if data.isascii() else json.dumps(usage.as_json())


_DECODER: Final = msgspec.json.Decoder(ModelUsage)


def decode_usage(headers: Mapping[str, str]) -> ModelUsage | None:
    """The usage in a reply's headers, or None where there is none that can be read."""
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
    """What a record says was used for it, or None."""
    try:
        return _LINES.decode(line).usage
    except msgspec.MsgspecError:
        return None


def _whole(value: Any) -> int | None:
    return value if isinstance(value, int) else None


def _sum(total: Any, more: Any) -> Any:
    return None if total is None or more is None else total + more
