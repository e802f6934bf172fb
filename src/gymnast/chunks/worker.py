"""A worker: servers that stay up and one engine, over as many chunks of a run as it can get.

It can be started by anything, at any time, anywhere the run's folder is visible, and may die at any point: what it had
not settled is owed, and other workers take it over.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from gymnast.chunks.finder import Clock, Finder, ReplannedError
from gymnast.chunks.identity import is_dead
from gymnast.chunks.lease import LeaseMonitor
from gymnast.chunks.run_store import ChunkRunStore
from gymnast.chunks.upkeep import ChunkUpkeep
from gymnast.chunks.worker_context import WorkerContext, select_instances
from gymnast.errors import UserError
from gymnast.rollouts.engine import Engine, EngineOptions
from gymnast.rollouts.identity import truncated_policy
from gymnast.rollouts.options import RunOptions
from gymnast.rollouts.retry import RetryPolicy
from gymnast.rollouts.run_engine import ending_note, run_engine
from gymnast.rollouts.servers import Servers, start_servers
from gymnast.runtime.garbage import rare_garbage_collection
from gymnast.store.outage import PATIENCE_S, read_patiently

if TYPE_CHECKING:
    from gymnast.config import Config, Environ
    from gymnast.rollouts.observer import RunObserver, TakeSnapshot
    from gymnast.store.manifest import RunState
    from gymnast.types.events import RunFinished

_READ_AHEAD: Final = 256
"""Rows that wait here for their agents. Few, because other workers could start them."""
_RETRY_S: Final = 0.5
"""How often writing the last records is retried."""


class WorkerExit(StrEnum):
    """Why a worker ended."""

    NOTHING_LEFT = "nothing_left"
    DRAINED = "drained"
    """It was asked to stop; its remaining rows are for others."""
    GAVE_UP = "gave_up"
    """It could not continue: what it needs is unreachable, or always fails."""

    @property
    def exit_code(self) -> int:
        """0, 75 (temporary failure: work is left) or 1."""
        return {WorkerExit.NOTHING_LEFT: 0, WorkerExit.DRAINED: 75, WorkerExit.GAVE_UP: 1}[self]


@dataclass(frozen=True, slots=True)
class WorkerResult:
    """How a worker ended, and what it did."""

    end: WorkerExit
    finished: RunFinished


async def run_worker(context: WorkerContext, config: Config, environ: Environ, observer: RunObserver) -> WorkerResult:
    """Run chunks until nothing is left for this worker, or until it is asked to stop."""
    instances = select_instances(context, config)
    log_dir = context.paths.logs / context.holder.worker  # workers share the run's folder, not their logs
    options = make_run_options(context)
    async with start_servers(instances, config, environ, options, observer, log_dir=log_dir) as servers:
        with rare_garbage_collection():
            return await run_with_servers(context, servers, options, observer)


def make_run_options(context: WorkerContext) -> RunOptions:
    """The run's options, from its worker spec."""
    options = context.options
    return RunOptions(
        output=context.paths.output,
        engine=EngineOptions(
            options.concurrency,
            options.rollout_timeout_s,
            RetryPolicy(max_attempts=options.max_attempts),
            options.give_up_after_s,
            read_ahead=_READ_AHEAD,
            truncated=truncated_policy(context.manifest.settings),
        ),
        workers=options.processes,
        token_form=context.token_form,
    )


async def run_with_servers(
    context: WorkerContext, servers: Servers, options: RunOptions, observer: RunObserver
) -> WorkerResult:
    """Run chunks with servers that are up."""
    monitor = LeaseMonitor(context.options.lease_s, is_dead)
    rows, speculates = context.paths.materialized_inputs, context.options.speculates

    def make_finder() -> Finder:
        return Finder(context.layout, context.plan, rows, context.holder, monitor, context.clock, speculates=speculates)

    finder = await asyncio.to_thread(read_patiently, make_finder)
    store = ChunkRunStore(context.plan.run_id, str(context.paths.output), context.plan.requested, observer.take)
    end = WorkerExit.NOTHING_LEFT

    async def drive(engine: Engine, _: TakeSnapshot) -> RunState:
        nonlocal end
        upkeep = ChunkUpkeep(context.layout, store, engine, finder, context.options, context.clock, observer.say)
        state = await _run_with_upkeep(engine, upkeep)
        await _hand_back(upkeep, ending_note(engine, state), context.clock)
        if engine.drain_reason:
            end = WorkerExit.DRAINED
        elif finder.unfinishable or engine.circuit_breaker.reasons():
            end = WorkerExit.GAVE_UP
        return state

    tasks = int(context.manifest.plan.get("tasks") or 0)
    finished = await run_engine(store, servers, options, observer, agents=context.agents, tasks=tasks, drive=drive)
    observer.listen(finished)
    return WorkerResult(end, finished)


async def _run_with_upkeep(engine: Engine, upkeep: ChunkUpkeep) -> RunState:
    """Run the engine. If the upkeep of its chunks fails, the engine stops, and what is on disk stays."""
    task = asyncio.create_task(upkeep.run())

    def stop_engine(_: object) -> None:
        engine.stop_now("the upkeep of its chunks has ended")

    task.add_done_callback(stop_engine)
    try:
        state = await engine.run()
    except BaseException:
        await _stop_upkeep(upkeep, task)
        await _rescue(upkeep)
        raise
    finally:
        task.remove_done_callback(stop_engine)
    error = await _stop_upkeep(upkeep, task)
    if isinstance(error, Exception):
        if not isinstance(error, ReplannedError):
            await _rescue(upkeep)
        raise error
    return state


async def _stop_upkeep(upkeep: ChunkUpkeep, task: asyncio.Task[None]) -> BaseException | None:
    """Stop the upkeep, so that this is the only writer, and return the error it ended with."""
    upkeep.stop()
    await asyncio.wait([task], timeout=PATIENCE_S)
    task.cancel()
    return (await asyncio.gather(task, return_exceptions=True))[0]


async def _rescue(upkeep: ChunkUpkeep) -> None:
    """Write and hand back what can be."""
    with suppress(OSError, UserError):
        await upkeep.hand_back("the worker was ended by an error")


async def _hand_back(upkeep: ChunkUpkeep, why: str | None, clock: Clock) -> None:
    """Commit and release everything at the end. Waits a while for a file system that refuses."""
    deadline = clock.monotonic() + PATIENCE_S
    while True:
        try:
            await upkeep.hand_back(why)
            return
        except OSError as error:
            if clock.monotonic() > deadline:
                raise UserError(
                    f"cannot write the last records: {error}",
                    next="start workers again; what is not on disk is still owed",
                ) from error
            await asyncio.sleep(_RETRY_S)
