"""Model usage as text, for the summary of a run, `gymnast status` and the live view."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gymnast.types.usage import ModelUsage


def format_usage(usage: ModelUsage) -> str:
    """`1,200 calls, 3.4M tokens in (1.1M cached), 512k out (300k reasoning), 1,900 ms per call, cost 12.34`."""
    calls = f"{usage.calls:,} calls" + (f" ({usage.failed_calls:,} failed)" if usage.failed_calls else "")
    tokens_in = f"{format_count(usage.input_tokens)} tokens in" + _share(usage.cached_tokens, "cached")
    tokens_out = f"{format_count(usage.output_tokens)} out" + _share(usage.reasoning_tokens, "reasoning")
    parts = [calls, tokens_in, tokens_out, f"{usage.latency_ms / max(usage.calls, 1):,.4g} ms per call"]
    if usage.ttft_ms is not None:
        parts.append(f"first token after {usage.ttft_ms:.0f} ms")
    if usage.unmetered_calls:
        parts.append(f"{usage.unmetered_calls:,} calls reported no usage")
    parts.append("cost unknown (no prices)" if usage.cost is None else f"cost {usage.cost:.6g}")
    return ", ".join(parts)


def format_count(number: int) -> str:
    """Format a count: 999, 12.3k, 4.56M."""
    for size, unit in ((1_000_000_000, "G"), (1_000_000, "M"), (1_000, "k")):
        if number >= size:
            return f"{number / size:.3g}{unit}"
    return str(number)


def _share(count: int | None, label: str) -> str:
    return f" ({format_count(count)} {label})" if count else ""
