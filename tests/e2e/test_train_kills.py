"""Batches for a trainer while agents, servers and workers are killed: everything that was asked for, or the error."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest

import gymnast
from gymnast.train import Batch, BatchOptions, FewerRolloutsError, Sample, batch_metrics, collect_batch
from tests.helpers.jsonl import example_rows

POLICY = "++policy_model.responses_api_models.embedded_model.return_token_id_information=true"
AGENT_IN_CHILD = "++shop_lookup_simple_agent.responses_api_agents.simple_agent.runs_in=child"
SERVER_IN_CHILD = "++shop_lookup_resources_server.resources_servers.shop_lookup.runs_in=child"
TASKS, GENERATIONS = 3, 4
DEATHS = {"instance_died", "worker_died", "out_of_memory", "agent_unreachable", "environment_unreachable"}
"""How a death is called; the last two until it is known that the process is gone."""
VICTIMS = [
    pytest.param("gymnast.runtime.child", [AGENT_IN_CHILD], 0, id="agent"),
    pytest.param("gymnast.runtime.child", [SERVER_IN_CHILD], 0, id="server"),
    pytest.param("gymnast.rollouts.worker", [], 1, id="worker"),
]


@asynccontextmanager
async def collector(overrides: list[str], workers: int) -> AsyncIterator[gymnast.Collector]:
    async with gymnast.Collector(
        environments=["shop_lookup"], model_type="embedded_model", overrides=[POLICY, *overrides], workers=workers
    ) as one:
        yield one


def victims(module: str) -> list[psutil.Process]:
    """Processes of ours that run a module."""
    found = []
    for process in psutil.Process().children(recursive=True):
        try:
            if module in process.cmdline():
                found.append(process)
        except psutil.Error:
            continue
    return found


class Watched:
    """A collector whose first outcome of a batch is the signal to kill."""

    def __init__(self, inner: gymnast.Collector) -> None:
        self._inner = inner
        self.begun = asyncio.Event()

    async def run(self, rows: Any, **asked: Any) -> Any:
        async for pair in self._inner.run(rows, **asked):
            self.begun.set()
            yield pair


async def killed_during(module: str, watched: Watched, *, again: bool) -> int:
    """Kill whoever runs the module, once or as often as it comes back. How often."""
    await watched.begun.wait()
    killed: set[int] = set()
    while True:
        for process in victims(module):
            if process.pid not in killed:
                os.kill(process.pid, signal.SIGKILL)
                killed.add(process.pid)
        if not again:
            return len(killed)
        await asyncio.sleep(0.05)


async def batch_while_killing(
    module: str, overrides: list[str], workers: int, options: BatchOptions, *, again: bool
) -> Batch:
    async with collector(overrides, workers) as one:
        watched = Watched(one)
        killing = asyncio.create_task(killed_during(module, watched, again=again))
        try:
            assert victims(module)
            return await collect_batch(
                watched, example_rows("shop_lookup")[:TASKS], generations=GENERATIONS, options=options
            )
        finally:
            killing.cancel()
            await asyncio.gather(killing, return_exceptions=True)


def is_whole(sample: Sample) -> bool:
    return sample.is_trainable and all(
        (segment.mask == 1).sum() == sum(end - start for start, end in segment.turns) > 0 for segment in sample.segments
    )


@pytest.mark.parametrize(("module", "overrides", "workers"), VICTIMS)
async def test_what_is_killed_once_costs_attempts_and_no_rollout(
    module: str, overrides: list[str], workers: int
) -> None:
    options = BatchOptions(concurrency=4, max_attempts=4)
    batch = await batch_while_killing(module, overrides, workers, options, again=False)
    assert [len(group) for group in batch.groups] == [GENERATIONS] * TASKS
    assert all(map(is_whole, batch.samples))
    assert batch.masked() == {}
    figures = batch_metrics(batch.samples)
    assert figures["trained_samples"] == figures["samples"] == TASKS * GENERATIONS


@pytest.mark.parametrize(("module", "overrides", "workers"), VICTIMS)
async def test_what_keeps_dying_is_an_error_that_says_so(module: str, overrides: list[str], workers: int) -> None:
    options = BatchOptions(concurrency=4, max_attempts=1)
    with pytest.raises(FewerRolloutsError) as caught:
        await batch_while_killing(module, overrides, workers, options, again=True)
    error = caught.value
    assert error.requested == TASKS * GENERATIONS
    assert 0 < len(error.missing) == error.requested - error.scored
    assert set(error.failed) <= DEATHS
    assert "prompts × generations (3 × 4 = 12) is too much for this host at the same time" in str(error)
    assert "lower concurrency (rollouts in flight, now 4)" in str(error)


_TRAINER = """
import asyncio, sys
from pathlib import Path
from gymnast.train import StreamOptions, stream
from tests.helpers.train_records import Simulated, shuffled_delays, some_tasks

async def main(state, log, seed):
    options = StreamOptions(groups_in_flight=4, groups_ready=3)
    policy = Simulated(delay_s=shuffled_delays(seed))
    async with stream(policy, some_tasks(60), generations=2, options=options, state=Path(state)) as groups:
        with open(log, "a", buffering=1) as out:
            async for group in groups:
                print(group.task, file=out)
                await asyncio.sleep(0.01)

asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))
"""


def test_a_trainer_that_is_killed_goes_on_where_it_was(tmp_path: Path) -> None:
    """Over kill -9 no group is lost, and none comes twice but the one that it held at the time."""
    log = tmp_path / "trained.txt"
    kills = 0
    for seed in range(50):
        command = [sys.executable, "-c", _TRAINER, str(tmp_path / "state.json"), str(log), str(seed)]
        trainer = subprocess.Popen(command, cwd=Path(__file__).parents[2])
        had = len(groups_in(log))
        while trainer.poll() is None and (kills == 3 or len(groups_in(log)) < had + 15):
            time.sleep(0.005)
        if trainer.poll() is not None:
            break
        trainer.kill()
        trainer.wait()
        kills += 1
    assert trainer.returncode == 0
    assert kills == 3
    found = groups_in(log)
    assert set(found) == set(range(60))
    assert len(found) <= 60 + kills


def groups_in(log: Path) -> list[int]:
    return [int(line) for line in log.read_text().split()] if log.exists() else []
