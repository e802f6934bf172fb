"""The library with servers in other processes: workers that batches share, and a `gymnast serve` that runs already."""

from __future__ import annotations

import asyncio
from pathlib import Path

import gymnast
from tests.helpers.commands import DEMO_POLICY, serving
from tests.helpers.jsonl import example_rows


async def test_two_batches_at_once_share_the_servers() -> None:
    rows = example_rows("mcqa")
    async with gymnast.Collector(environments=["mcqa"], config_paths=[DEMO_POLICY], workers=1) as collector:

        async def batch() -> int:
            return len([pair async for pair in collector.run(rows * 4, concurrency=3)])

        assert list(await asyncio.gather(batch(), batch())) == [4 * len(rows)] * 2


async def test_a_running_serve_can_be_used(tmp_path: Path) -> None:
    config = "resources_servers/mcqa/configs/mcqa.yaml"
    with serving(tmp_path, "--config", config, "--config", DEMO_POLICY) as served:
        async with gymnast.Collector(head=served.head, token=served.token) as collector:
            results = [pair async for pair in collector.run(example_rows("mcqa"))]
    assert len(results) == len(example_rows("mcqa"))
