"""Metrics of inference servers: vLLM's `/metrics`, read for queue length and KV-cache pressure."""

from __future__ import annotations

import asyncio
import re
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
    """Read the metrics of one endpoint; None if it has no such page or does not answer."""
    try:
        async with asyncio.timeout(timeout_s):
            target = parse_target(base_url.removesuffix("/v1") + "/metrics", external=external)
            reply = await client.request("GET", target, idempotent=True)
    except (TimeoutError, TransportError, ValueError):
        return None
    return parse_metrics(reply.body.decode(errors="replace")) if reply.status == 200 else None
