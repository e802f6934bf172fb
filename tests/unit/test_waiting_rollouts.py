"""Rollouts that wait for others of the run: they take no room, and no wait is in vain."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from gymnast.rollouts.retry import RetryPolicy
from gymnast.store.manifest import RunState
from gymnast.wire.message import Reply, Request
from tests.helpers.waiting import eventually
from tests.unit.test_collect import Agent, World

ONCE = RetryPolicy(max_attempts=1)


class Gathering(Agent):
    """Rollouts of a task wait until `size` of them are there, or until they are told that no other can come."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.size = size
        self.present: dict[int, list[asyncio.Event]] = {}
        self.told = 0
        self.crashes = 0
        """How many of the next attempts fail."""

    async def send(self, request: Request) -> Reply:
        row, progress, end = request.body, request.progress, asyncio.Event()
        assert progress is not None
        if self.crashes:
            self.crashes -= 1
            return await self.answer({**row, "do": "crash"})
        together = self.present.setdefault(row["_ng_task_index"], [])
        together.append(end)
        if len(together) == self.size:
            for waiting in together:
                waiting.set()

        def end_wait() -> None:
            self.told += 1
            end.set()

        progress.end_wait = end_wait
        await end.wait()
        progress.end_wait = None
        is_complete = len(together) == self.size
        return await self.answer({**row, "do": "score" if is_complete else "judge"})


def world_of(folder: Path, rows: int, size: int, **plan: Any) -> tuple[World, Gathering]:
    world = World(folder, [{} for _ in range(rows)], **plan)
    world.agent = agent = Gathering(size)
    return world, agent


async def test_the_limit_does_not_keep_the_others_away(tmp_path: Path) -> None:
    world, agent = world_of(tmp_path, 3, 4, repeats=4)
    state, counts = await world.run(concurrency=2, cap=16)
    assert (state, counts.scored) == (RunState.COMPLETE, 12)
    assert agent.told == 0


async def test_a_retry_comes_although_all_others_wait(tmp_path: Path) -> None:
    world, agent = world_of(tmp_path, 1, 3, repeats=3)
    agent.crashes = 1
    state, counts = await world.run(concurrency=3, cap=16)
    assert (state, counts.scored) == (RunState.COMPLETE, 3)


async def test_waits_end_when_no_other_can_come(tmp_path: Path) -> None:
    world, agent = world_of(tmp_path, 2, 4, repeats=3)
    state, counts = await world.run(retry=ONCE, cap=16)
    assert (state, counts.scored, counts.failed) == (RunState.COMPLETE, 0, {"judge_failed": 6})
    assert agent.told == 6


async def test_waits_end_when_the_host_has_no_more_room(tmp_path: Path) -> None:
    world, agent = world_of(tmp_path, 8, 4, repeats=3)
    state, counts = await world.run(retry=ONCE, cap=3)
    assert (state, counts.failed) == (RunState.COMPLETE, {"judge_failed": 24})
    assert agent.told == 24


async def test_draining_does_not_wait_for_what_will_not_start(tmp_path: Path) -> None:
    world, agent = world_of(tmp_path, 1, 4, repeats=4)
    running = asyncio.create_task(world.run(concurrency=1, cap=2))
    await eventually(lambda: len(agent.present.get(0, [])) == 1)
    assert world.engine is not None
    world.engine.drain("test")
    state, counts = await running
    assert (state, counts.owed) == (RunState.INTERRUPTED, 4)
    assert agent.told == 0
