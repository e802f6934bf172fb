"""A worker: servers that stay up and one engine, over as many chunks of a run as it can get.

It is started by anything, anywhere the run's folder can be seen, at any time, and may die at any point: what it had not
settled is owed, and others see to it.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from gymnast.cluster.chunk_book import ChunkBook
from gymnast.cluster.finder import Finder, PlannedAnewError
from gymnast.cluster.identity import is_gone
from gymnast.cluster.lease import Watch
from gymnast.cluster.tending import Tending
from gymnast.cluster.workplace import needed_instances
from gymnast.errors import UserError
from gymnast.rollouts.engine import EngineOptions
from gymnast.rollouts.options import RunOptions
from gymnast.rollouts.retry import RetryPolicy
from gymnast.rollouts.run_engine import ending_note, run_engine
from gymnast.rollouts.servers import start_servers
from gymnast.runtime.garbage import rare_garbage_collection

if TYPE_CHECKING:
    from gymnast.cluster.finder import Clock
    from gymnast.cluster.workplace import Workplace
    from gymnast.config import Config, Environ
    from gymnast.rollouts.engine import Engine
    from gymnast.rollouts.observer import RunObserver, TakeSnapshot
    from gymnast.rollouts.servers import Servers
    from gymnast.store.manifest import RunState
    from gymnast.types.events import RunFinished

_READ_AHEAD: Final = 256
"""Rows that wait for their agents here: others could begin them."""
_PATIENCE_S: Final = 60.0
"""How long the last records may take to be written,"""
_AGAIN_S: Final = 0.5
"""and how often that is tried."""


class WorkEnd(StrEnum):
    """Why a worker ended."""

    NOTHING_LEFT = "nothing_left"
    DRAINED = "drained"
    """It was told to; rows it had are for others."""
    GAVE_UP = "gave_up"
    """It could not go on: what it needs is out of reach, or fails always."""

    @property
    def exit_code(self) -> int:
        """0, 75 (try again: there is work left) or 1."""
        return {WorkEnd.NOTHING_LEFT: 0, WorkEnd.DRAINED: 75, WorkEnd.GAVE_UP: 1}[self]


@dataclass(frozen=True, slots=True)
class Worked:
    """How a worker ended, and what it did."""

    end: WorkEnd
    finished: RunFinished


async def work(place: Workplace, config: Config, environ: Environ, observer: RunObserver) -> Worked:
    """Work on chunks of the run until there is nothing left for this worker, or until it is told to end."""
    instances = needed_instances(place, config)
    log_dir = place.paths.logs / place.holder.worker  # workers share the run's folder, not their logs
    options = worker_options(place)
    async with start_servers(instances, config, environ, options, observer, log_dir=log_dir) as servers:
        with rare_garbage_collection():
            return await work_with(place, servers, options, observer)


def worker_options(place: Workplace) -> RunOptions:
    """The run's options as its order says them to workers."""
    options = place.options
    return RunOptions(
        output=place.paths.output,
        engine=EngineOptions(
            options.concurrency,
            options.rollout_timeout_s,
            RetryPolicy(max_attempts=options.max_attempts),
            options.give_up_after_s,
            read_ahead=_READ_AHEAD,
        ),
        workers=options.processes,
        token_form=place.token_form,
    )


async def work_with(place: Workplace, servers: Servers, options: RunOptions, observer: RunObserver) -> Worked:
    """The same with servers that are up."""
    watch = Watch(place.options.lease_s, is_gone)
    rows, speculates = place.paths.materialized_inputs, place.options.speculates
    finder = Finder(place.layout, place.plan, rows, place.holder, watch, place.clock, speculates=speculates)
    store = ChunkBook(place.plan.run_id, str(place.paths.output), place.plan.requested, observer.take)
    end = WorkEnd.NOTHING_LEFT

    async def drive(engine: Engine, _: TakeSnapshot) -> RunState:
        nonlocal end
        tending = Tending(place.layout, store, engine, finder, place.options, place.clock, observer.say)
        state = await _run(engine, tending)
        await _hand_back(tending, ending_note(engine, state), place.clock)
        if engine.draining:
            end = WorkEnd.DRAINED
        elif finder.given_up or engine.prospects.reasons():
            end = WorkEnd.GAVE_UP
        return state

    tasks = int(place.manifest.plan.get("tasks") or 0)
    finished = await run_engine(store, servers, options, observer, agents=place.agents, tasks=tasks, drive=drive)
    observer.listen(finished)
    return Worked(end, finished)


async def _run(engine: Engine, tending: Tending) -> RunState:
    """Run the engine while its chunks are tended. If they cannot be, it ends, and what is on disk stays."""
    tended = asyncio.create_task(tending.run())

    def untended(_: object) -> None:
        engine.stop_now("its chunks are not tended any more")

    tended.add_done_callback(untended)
    try:
        state = await engine.run()
    except BaseException:
        await _untend(tending, tended)
        await _rescue(tending)
        raise
    finally:
        tended.remove_done_callback(untended)
    ended = await _untend(tending, tended)
    if isinstance(ended, Exception):
        if not isinstance(ended, PlannedAnewError):
            await _rescue(tending)
        raise ended
    return state


async def _untend(tending: Tending, tended: asyncio.Task[None]) -> BaseException | None:
    """End the tending, so that nobody else writes, and say what it ended by."""
    tending.stop()
    await asyncio.wait([tended], timeout=_PATIENCE_S)
    tended.cancel()
    return (await asyncio.gather(tended, return_exceptions=True))[0]


async def _rescue(tending: Tending) -> None:
    """Keep and hand back what can be."""
    with suppress(OSError, UserError):
        await tending.commit()
        await tending.release_all("the worker was ended by an error")


async def _hand_back(tending: Tending, why: str | None, clock: Clock) -> None:
    """Commit and release at the end; a file system that refuses is waited for a while."""
    deadline = clock.monotonic() + _PATIENCE_S
    while True:
        try:
            await tending.commit()
            await tending.release_all(why)
            return
        except OSError as error:
            if clock.monotonic() > deadline:
                raise UserError(
                    f"the last records cannot be written: {error}", next="they are owed; start workers again"
                ) from error
            await asyncio.sleep(_AGAIN_S)
