"""What inference engines say of themselves: vLLM's `/metrics`, read for queue and KV-cache pressure."""

from __future__ import annotations

import asyncio
import re
from typing import TYPE_CHECKING, Final

from gymnast.wire.http_client import target_of
from gymnast.wire.http_connection import TransportError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gymnast.wire.http_client import HttpClient

_LINE: Final = re.compile(
    r"^vllm:(num_requests_waiting|num_requests_running|(?:gpu_|kv_)cache_usage_perc)(?:\{[^}]*\})?\s+([-+\d.eE]+)\b",
    re.MULTILINE,
)


def parse_metrics(text: str) -> dict[str, float] | None:
    """`waiting`, `running` and `kv_usage` of a metrics page, or None if it is not vLLM's."""
    found: dict[str, list[float]] = {}
    for name, value in _LINE.findall(text):
        kind = "kv_usage" if "cache" in name else name.removeprefix("num_requests_")
        found.setdefault(kind, []).append(float(value))
    if not found:
        return None
    return {kind: max(values) if kind == "kv_usage" else sum(values) for kind, values in found.items()}


async def read_pressure(
    client: HttpClient, base_urls: Iterable[str], timeout_s: float = 2.0
) -> dict[str, float] | None:
    """The summed queues and the fullest KV cache over all endpoints that have metrics, or None if none has."""
    pages = await asyncio.gather(*(read_metrics(client, url, timeout_s) for url in base_urls))
    found = [page for page in pages if page is not None]
    if not found:
        return None
    return {
        "waiting": sum(page.get("waiting", 0.0) for page in found),
        "running": sum(page.get("running", 0.0) for page in found),
        "kv_usage": max(page.get("kv_usage", 0.0) for page in found),
    }


async def read_metrics(client: HttpClient, base_url: str, timeout_s: float = 2.0) -> dict[str, float] | None:
    """What one endpoint says, or None if it has no such page or does not answer."""
    try:
        async with asyncio.timeout(timeout_s):
            answer = await client.request("GET", target_of(base_url.removesuffix("/v1") + "/metrics"), repeatable=True)
    except (TimeoutError, TransportError, ValueError):
        return None
    return parse_metrics(answer.body.decode(errors="replace")) if answer.status == 200 else None
