"""What model calls used, in words: for the end of a run, `gymnast status` and the live view."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gymnast.types.usage import ModelUsage


def spending(usage: ModelUsage) -> str:
    """`1,200 calls, 3.4M tokens in (1.1M cached), 512k out (300k reasoning), 1,900 ms a call, cost 12.34`."""
    calls = f"{usage.calls:,} calls" + (f" ({usage.failed_calls:,} failed)" if usage.failed_calls else "")
    given = f"{amount(usage.input_tokens)} tokens in" + _part(usage.cached_tokens, "cached")
    made = f"{amount(usage.output_tokens)} out" + _part(usage.reasoning_tokens, "reasoning")
    parts = [calls, given, made, f"{usage.latency_ms / max(usage.calls, 1):,.4g} ms a call"]
    if usage.ttft_ms is not None:
        parts.append(f"first token after {usage.ttft_ms:.0f} ms")
    if usage.unmetered_calls:
        parts.append(f"{usage.unmetered_calls:,} calls did not say what they used")
    parts.append("cost unknown (no prices)" if usage.cost is None else f"cost {usage.cost:.6g}")
    return ", ".join(parts)


def amount(number: int) -> str:
    """999, 12.3k, 4.56M."""
    for size, unit in ((1_000_000_000, "G"), (1_000_000, "M"), (1_000, "k")):
        if number >= size:
            return f"{number / size:.3g}{unit}"
    return str(number)


def _part(number: int | None, what: str) -> str:
    return f" ({amount(number)} {what})" if number else ""
