"""What a policy call costs with our HTTP client, as a ratio to aiohttp making the same calls in the same run.

    python bench/http_client.py [--calls 8000]

CPU microseconds per call on one core, best of three interleaved rounds, against the mock policy on the other core.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import time
from collections.abc import Awaitable, Callable

import aiohttp
import orjson
import uvloop
from rollout_cost import WORKLOADS, _bodies
from running import OUR_CORE, policy

from gymnast.wire.http_client import HttpClient, header_items, parse_target

HEADERS = {"content-type": "application/json", "authorization": "Bearer key"}


async def rounds(port: int, calls: int, concurrency: int) -> dict[str, float]:
    """CPU seconds per call of each client."""
    body = _bodies(WORKLOADS[0])[0]
    url = f"http://127.0.0.1:{port}/v1/chat/completions"
    target, headers = parse_target(url), header_items(HEADERS)
    connector = aiohttp.TCPConnector(limit=0)
    async with (
        HttpClient() as ours,
        aiohttp.ClientSession(connector=connector, cookie_jar=aiohttp.DummyCookieJar()) as theirs,
    ):

        async def with_ours() -> None:
            orjson.loads((await ours.request("POST", target, headers, orjson.dumps(body))).body)

        async def with_aiohttp() -> None:
            async with theirs.post(url, data=orjson.dumps(body), headers=HEADERS) as answer:
                orjson.loads(await answer.read())

        best = {"aiohttp": float("inf"), "gymnast": float("inf")}
        for _ in range(3):
            for name, call in (("aiohttp", with_aiohttp), ("gymnast", with_ours)):
                best[name] = min(best[name], await cpu_per_call(call, calls, concurrency))
        return best


async def cpu_per_call(call: Callable[[], Awaitable[None]], calls: int, concurrency: int) -> float:
    """CPU seconds of this process for one call."""
    left = iter(range(calls))

    async def worker() -> None:
        for _ in left:
            await call()

    started = time.process_time()
    await asyncio.gather(*(worker() for _ in range(concurrency)))
    return (time.process_time() - started) / calls


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", type=int, default=8000)
    options = parser.parse_args()
    with policy() as port:
        os.sched_setaffinity(0, {OUR_CORE})
        for concurrency in (64, 1024):
            best = uvloop.run(rounds(port, options.calls, concurrency))
            ratio = best["aiohttp"] / best["gymnast"]
            print(
                f"concurrency {concurrency:>4}: aiohttp {best['aiohttp'] * 1e6:6.1f} µs, "
                f"gymnast {best['gymnast'] * 1e6:6.1f} µs CPU per call; {ratio:.1f} times cheaper"
            )


if __name__ == "__main__":
    main()
