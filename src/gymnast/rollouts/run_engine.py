"""Running the engine over a store of rollouts: events, live snapshots, pressure of inference servers, how it ended."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Final

from gymnast.errors import UserError
from gymnast.rollouts.engine import Engine
from gymnast.rollouts.snapshot import Snapshot, snapshot
from gymnast.store.manifest import RunState
from gymnast.types.events import RunFinished, RunStarted

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from gymnast.rollouts.book import Book
    from gymnast.rollouts.executor import Executor
    from gymnast.rollouts.observer import RunObserver, TakeSnapshot
    from gymnast.rollouts.options import RunOptions
    from gymnast.rollouts.servers import PollPressure, Servers

_POLL_EVERY_S: Final = 2.0

Drive = Callable[[Engine, "TakeSnapshot"], Awaitable[RunState]]
"""Runs an engine to its end, with whatever has to run beside it."""


async def _run_alone(engine: Engine, _: TakeSnapshot) -> RunState:
    return await engine.run()


async def run_engine(
    store: Book,
    servers: Servers,
    options: RunOptions,
    observer: RunObserver,
    *,
    agents: list[str],
    tasks: int = 0,
    drive: Drive = _run_alone,
) -> RunFinished:
    """Work on a store until nothing is left to do, or until told to stop. How it ended is returned, not announced."""
    started = time.monotonic()
    engine = Engine(store, servers.executor, servers.engine_options(options.engine), observer.listen, agents)
    counts = store.counts()
    observer.listen(RunStarted(counts.requested, tasks, store.name, time.time(), counts.requested - counts.owed))

    def take_snapshot() -> Snapshot:
        signals = servers.executor.signals
        return snapshot(engine, started, model_calls=signals.model_calls, rejections=signals.rejections)

    try:
        async with _watched_pressure(engine, servers.poll_pressure):
            with observer.watch(engine, take_snapshot):
                state = await drive(engine, take_snapshot)
    except BaseException:
        with suppress(UserError):
            await store.save(RunState.INTERRUPTED, "the run was ended by an error")
        raise
    note = ending_note(engine, state)
    await store.save(state, note)
    return _finished(engine, servers.executor, state, note, started)


def ending_note(engine: Engine, state: RunState) -> str | None:
    """Why rollouts are still owed, for a person."""
    if state is RunState.COMPLETE:
        return None
    reasons = list(engine.prospects.reasons().values())
    if engine.draining:
        reasons.insert(0, engine.draining)
    if engine.retry_budget_is_used_up:
        reasons.append("the run's budget of retries is used up")
    return "; ".join(reasons) or None


def _finished(engine: Engine, executor: Executor, state: RunState, note: str | None, started: float) -> RunFinished:
    counts = engine.book.counts()
    return RunFinished(
        requested=counts.requested,
        scored=counts.scored,
        failed=counts.failed,
        owed=counts.owed,
        state=state.value,
        seconds=time.monotonic() - started,
        output=engine.book.name,
        attempts=counts.attempts,
        retries=counts.retries,
        note=note,
        concurrency=engine.limit.current,
        longest_lag_s=max(engine.longest_lag_s, executor.longest_lag_s),
        spent=engine.book.spent.usage(),
        is_out_of_budget=engine.is_out_of_budget and counts.owed > 0,
    )


@asynccontextmanager
async def _watched_pressure(engine: Engine, poll: PollPressure | None) -> AsyncIterator[None]:
    task = asyncio.create_task(_keep_polling(engine, poll)) if poll is not None else None
    try:
        yield
    finally:
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


async def _keep_polling(engine: Engine, poll: PollPressure) -> None:
    """Tell the concurrency limit how loaded inference servers are. Endpoints without metrics are asked once."""
    pressure = await poll()
    if pressure is None:
        return
    while True:
        if pressure is not None:  # a busy server may be late with its metrics
            engine.limit.feel(pressure)
        await asyncio.sleep(_POLL_EVERY_S)
        pressure = await poll()
