"""A worker: servers that stay up and one engine, over as many chunks of a run as it can get.

It is started by anything, anywhere the run's folder can be seen, at any time, and may die at any point: what it had not
settled is owed, and others see to it.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from gymnast.cluster.chunk_book import ChunkBook
from gymnast.cluster.finder import Finder, PlannedAnewError
from gymnast.cluster.identity import is_gone
from gymnast.cluster.lease import Watch
from gymnast.cluster.tending import Tending
from gymnast.cluster.workplace import needed_instances
from gymnast.errors import UserError
from gymnast.rollouts.conduct import ending_note, finished_event, keep_feeling, looking
from gymnast.rollouts.engine import Engine, EngineOptions
from gymnast.rollouts.limits import agent_limits, host_cap
from gymnast.rollouts.reproducible import SETTING as REPRODUCIBLE
from gymnast.rollouts.retry import RetryPolicy
from gymnast.rollouts.run import feel
from gymnast.rollouts.starting import start_executor
from gymnast.runtime.cell import options_from
from gymnast.runtime.garbage import rare_garbage_collection
from gymnast.types.events import InstanceDied, RunStarted

if TYPE_CHECKING:
    from gymnast.cluster.finder import Clock
    from gymnast.cluster.workplace import Workplace
    from gymnast.config import Config, Environ, Instance
    from gymnast.rollouts.conduct import Audience, Feel
    from gymnast.rollouts.executor import Executor
    from gymnast.runtime.cell import Cell
    from gymnast.runtime.children import Child
    from gymnast.store.manifest import RunState
    from gymnast.types.events import RunFinished
    from gymnast.types.tokens import TokenForm

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


async def work(
    place: Workplace, config: Config, environ: Environ, audience: Audience, *, token_form: TokenForm | None = None
) -> Worked:
    """Work on chunks of the run until there is nothing left for this worker, or until it is told to end."""
    instances = needed_instances(place, config)
    async with AsyncExitStack() as stack:
        executor, cell = await _start(stack, place, instances, config, environ, audience, token_form)
        stack.enter_context(rare_garbage_collection())
        engine = _engine_options(place, config, instances)
        return await work_with(place, executor, engine, feel(cell.http, instances), audience)


async def work_with(
    place: Workplace, executor: Executor, options: EngineOptions, feeling: Feel | None, audience: Audience
) -> Worked:
    """The same with servers that are up."""
    began = time.monotonic()
    watch = Watch(place.options.lease_s, is_gone)
    rows, speculates = place.paths.materialized_inputs, place.options.speculates
    finder = Finder(place.layout, place.plan, rows, place.holder, watch, place.clock, speculates=speculates)
    book = ChunkBook(place.plan.run_id, str(place.paths.output), place.plan.requested, audience.take)
    engine = Engine(book, executor, options, audience.listen, place.agents)
    tending = Tending(place.layout, book, engine, finder, place.options, place.clock, audience.say)
    tasks = int(place.manifest.plan.get("tasks") or 0)
    audience.listen(RunStarted(place.plan.requested, tasks, book.name, time.time()))
    with audience.watch(engine, looking(engine, executor, began)):
        state = await _run(engine, tending, feeling)
        why = ending_note(engine, state)
        await _hand_back(tending, why, place.clock)
    finished = finished_event(engine, executor, state, why, began)
    audience.listen(finished)
    if engine.draining:
        return Worked(WorkEnd.DRAINED, finished)
    gave_up = bool(finder.given_up or engine.prospects.reasons())
    return Worked(WorkEnd.GAVE_UP if gave_up else WorkEnd.NOTHING_LEFT, finished)


async def _run(engine: Engine, tending: Tending, feeling: Feel | None) -> RunState:
    """Run the engine while its chunks are tended. If they cannot be, it ends, and what is on disk stays."""
    tended = asyncio.create_task(tending.run())

    def untended(_: object) -> None:
        engine.stop_now("its chunks are not tended any more")

    tended.add_done_callback(untended)
    felt = asyncio.create_task(keep_feeling(engine, feeling)) if feeling is not None else None
    try:
        state = await engine.run()
    except BaseException:
        await _untend(tending, tended)
        await _rescue(tending)
        raise
    finally:
        tended.remove_done_callback(untended)
        if felt is not None:
            felt.cancel()
            await asyncio.gather(felt, return_exceptions=True)
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


def _engine_options(place: Workplace, config: Config, instances: list[Instance]) -> EngineOptions:
    options = place.options
    return EngineOptions(
        options.concurrency,
        options.rollout_timeout_s,
        RetryPolicy(max_attempts=options.max_attempts),
        options.give_up_after_s,
        agent_limits=agent_limits(instances),
        cap=host_cap(),
        read_ahead=_READ_AHEAD,
        reproducible=bool(config.values.get(REPRODUCIBLE)),
    )


async def _start(
    stack: AsyncExitStack,
    place: Workplace,
    instances: list[Instance],
    config: Config,
    environ: Environ,
    audience: Audience,
    token_form: TokenForm | None,
) -> tuple[Executor, Cell]:
    def child_died(child: Child) -> None:
        audience.listen(InstanceDied(child.instance.name, child.process.death_note()))

    def process_died(note: str) -> None:
        audience.listen(InstanceDied(note.split(" ", 1)[0], note))

    logs = place.paths.logs / place.holder.worker  # workers share the run's folder, not their logs
    options = options_from(config, environ, log_dir=logs, on_child_death=child_died)
    if token_form is not None:
        options = replace(options, token_form=token_form)
    return await start_executor(
        stack,
        instances,
        config,
        options,
        workers=place.options.processes,
        on_worker_death=process_died,
        say=audience.say,
    )
