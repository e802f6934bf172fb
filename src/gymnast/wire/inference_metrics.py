"""Metrics of inference servers: `/metrics` of vLLM, for load and KV-cache pressure, and of SGLang, for activity."""

from __future__ import annotations

import asyncio
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from gymnast.wire.http_client import parse_target
from gymnast.wire.http_connection import TransportError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gymnast.wire.http_client import HttpClient

_LINE: Final = re.compile(
    r"^vllm:(num_requests_waiting|num_requests_running|(?:gpu_|kv_)cache_usage_perc)(?:\{[^}]*\})?\s+([-+\d.eE]+)\b",
    re.MULTILINE,
)
_ACTIVITY: Final = re.compile(
    r"^(vllm:num_requests_(?:running|waiting)|vllm:(?:generation|prompt)_tokens_total"
    r"|sglang:num_(?:running|queue)_reqs|sglang:gen_throughput)(?:\{[^}]*\})?\s+([-+\d.eE]+)\b",
    re.MULTILINE,
)


@dataclass(frozen=True, slots=True)
class Activity:
    """What an inference server is doing at one moment."""

    running: float
    waiting: float
    tokens: float | None = None
    """Prompt and output tokens so far; None if its counter does not move during a request (SGLang)."""
    throughput: float = 0.0
    """Output tokens per second, if it reports that."""


def parse_activity(text: str) -> Activity | None:
    """Parse a metrics page; None if it is neither vLLM's nor SGLang's."""
    sums: dict[str, float] = {}
    for name, value in _ACTIVITY.findall(text):
        sums[name] = sums.get(name, 0.0) + float(value)
    if "vllm:num_requests_running" in sums:
        counters = [value for name, value in sums.items() if name.endswith("_tokens_total")]
        return Activity(
            sums["vllm:num_requests_running"],
            sums.get("vllm:num_requests_waiting", 0.0),
            sum(counters) if counters else None,
        )
    if "sglang:num_running_reqs" in sums:
        return Activity(
            sums["sglang:num_running_reqs"],
            sums.get("sglang:num_queue_reqs", 0.0),
            throughput=sums.get("sglang:gen_throughput", 0.0),
        )
    return None


def parse_metrics(text: str) -> dict[str, float] | None:
    """Parse `waiting`, `running` and `kv_usage` from a metrics page; None if it is not vLLM's."""
    samples: dict[str, list[float]] = {}
    for name, value in _LINE.findall(text):
        kind = "kv_usage" if "cache" in name else name.removeprefix("num_requests_")
        samples.setdefault(kind, []).append(float(value))
    if not samples:
        return None
    return {kind: max(values) if kind == "kv_usage" else sum(values) for kind, values in samples.items()}


async def read_pressure(
    client: HttpClient, base_urls: Iterable[str], timeout_s: float = 2.0
) -> dict[str, float] | None:
    """Total queue lengths and the fullest KV cache over all endpoints with metrics; None if no endpoint has any."""
    results = await asyncio.gather(*(read_metrics(client, url, timeout_s) for url in base_urls))
    pages = [page for page in results if page is not None]
    if not pages:
        return None
    return {
        "waiting": sum(page.get("waiting", 0.0) for page in pages),
        "running": sum(page.get("running", 0.0) for page in pages),
        "kv_usage": max(page.get("kv_usage", 0.0) for page in pages),
    }


async def read_metrics(
    client: HttpClient, base_url: str, timeout_s: float = 2.0, *, external: bool = True
) -> dict[str, float] | None:
    """Read the load of one endpoint; None if it has no such page or does not answer."""
    page = await _read_page(client, base_url, timeout_s, external=external)
    return parse_metrics(page) if page is not None else None


async def read_activity(client: HttpClient, base_url: str) -> Activity | None:
    """Read what one endpoint is doing; None if it does not say."""
    page = await _read_page(client, base_url, timeout_s=5.0, external=True)
    return parse_activity(page) if page is not None else None


async def _read_page(client: HttpClient, base_url: str, timeout_s: float, *, external: bool) -> str | None:
    try:
        async with asyncio.timeout(timeout_s):
            target = parse_target(base_url.rstrip("/").removesuffix("/v1") + "/metrics", external=external)
            reply = await client.request("GET", target, idempotent=True)
    except (TimeoutError, TransportError, ValueError):
        return None
    return reply.body.decode(errors="replace") if reply.status == 200 else None
