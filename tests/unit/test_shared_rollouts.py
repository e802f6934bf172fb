"""Callers that share servers: no more rollouts at a time than allowed, in order, and no place lost by who leaves."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterable, Mapping
from typing import Any

import pytest

from gymnast.rollouts.record import Record
from gymnast.train.batch_request import Outcome
from gymnast.train.shared_rollouts import SharedRollouts
from gymnast.types.json import JsonObject
from gymnast.types.task import RolloutKey


class HeldRollouts:
    """Rollouts that take until they are let go; notes how many ran at a time, and in which order they started."""

    def __init__(self) -> None:
        self.running = self.most = 0
        self.started: list[str] = []
        self.go = asyncio.Event()

    async def run(
        self, rows: Iterable[Mapping[str, Any]], *, concurrency: int | None = None, **_: Any
    ) -> AsyncGenerator[tuple[JsonObject, Outcome]]:
        assert concurrency is not None
        given = list(rows)
        self.started.append(given[0]["name"])
        self.running += concurrency
        self.most = max(self.most, self.running)
        try:
            await self.go.wait()
        finally:
            self.running -= concurrency
        for row in given:
            yield dict(row), Record(RolloutKey(0, 0), b"{}")


def request(shared: SharedRollouts, name: str, rows: int) -> asyncio.Task[int]:
    async def count() -> int:
        return len([pair async for pair in shared.run([{"name": name}] * rows)])

    return asyncio.create_task(count())


async def settle() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


async def test_callers_share_a_limit_and_a_large_one_is_not_overtaken() -> None:
    rollouts = HeldRollouts()
    shared = SharedRollouts(rollouts, 4)
    tasks = [request(shared, name, rows) for name, rows in (("a", 3), ("large", 9), ("small", 1))]
    await settle()
    assert rollouts.started == ["a"]
    rollouts.go.set()
    assert await asyncio.gather(*tasks) == [3, 9, 1]
    assert (rollouts.started, rollouts.most) == (["a", "large", "small"], 4)


@pytest.mark.parametrize("release_first", [True, False])
async def test_a_caller_that_leaves_as_its_turn_comes_takes_no_place_along(release_first: bool) -> None:  # noqa: FBT001
    rollouts = HeldRollouts()
    shared = SharedRollouts(rollouts, 2)
    first = request(shared, "first", 2)
    await settle()
    leaving, last = request(shared, "leaving", 2), request(shared, "last", 2)
    await settle()
    if release_first:
        rollouts.go.set()
        leaving.cancel()
    else:
        leaving.cancel()
        rollouts.go.set()
    assert await asyncio.wait_for(first, 60) == 2
    assert await asyncio.wait_for(last, 60) == 2
    with pytest.raises(asyncio.CancelledError):
        await leaving
    assert await asyncio.wait_for(request(shared, "next", 2), 60) == 2


async def test_every_moment_of_leaving_is_safe() -> None:
    for steps in range(12):
        rollouts = HeldRollouts()
        shared = SharedRollouts(rollouts, 1)
        tasks = [request(shared, str(number), 1) for number in range(4)]
        await settle()
        rollouts.go.set()
        for _ in range(steps):
            await asyncio.sleep(0)
        tasks[1].cancel()
        tasks[2].cancel()
        results = await asyncio.wait_for(asyncio.gather(*tasks, return_exceptions=True), 60)
        assert all(result == 1 or isinstance(result, asyncio.CancelledError) for result in results), (steps, results)
        assert await asyncio.wait_for(request(shared, "after", 1), 60) == 1
