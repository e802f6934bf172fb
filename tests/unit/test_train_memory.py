"""What batches and streams hold: samples of a batch and little else, and of a stream what is under way."""

from __future__ import annotations

import tracemalloc
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping
from typing import Any

from gymnast.train import StreamOptions, collect_batch, stream
from gymnast.types.task import ROLLOUT_INDEX, TASK_INDEX, RolloutKey
from tests.helpers.train_records import SimulatedRecord, good, some_tasks

LINE = good(RolloutKey(0, 0), turns=4, tokens=64)
TOKENS = 4 * (4 + 64)


class Endless:
    """Answers every row with the same record."""

    async def run(
        self, rows: Iterable[Mapping[str, Any]], **_: Any
    ) -> AsyncGenerator[tuple[dict[str, Any], SimulatedRecord]]:
        for row in rows:
            yield dict(row), SimulatedRecord(RolloutKey(row[TASK_INDEX], row[ROLLOUT_INDEX]), LINE)


async def peak_bytes(collect: Callable[[int], Awaitable[None]], tasks: int) -> int:
    tracemalloc.start()
    try:
        await collect(tasks)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


async def test_a_batch_holds_its_samples_and_little_else() -> None:
    async def collect(tasks: int) -> None:
        assert len(await collect_batch(Endless(), some_tasks(tasks), generations=16)) == 16 * tasks

    small, large = await peak_bytes(collect, 8), await peak_bytes(collect, 40)
    of_one = (large - small) / (32 * 16)
    assert of_one < 9 * TOKENS + 4000  # 9 bytes a token; a row, its place in the account, and the sample around them


async def test_a_stream_does_not_grow_with_what_it_has_delivered() -> None:
    options = StreamOptions(groups_in_flight=4, groups_ready=4)

    async def collect(tasks: int) -> None:
        async with stream(Endless(), some_tasks(tasks), generations=4, options=options) as groups:
            assert [len(group) async for group in groups] == [4] * tasks

    small, large = await peak_bytes(collect, 20), await peak_bytes(collect, 120)
    assert (large - small) / 400 < 600  # figures of each rollout for the log, and the task itself
