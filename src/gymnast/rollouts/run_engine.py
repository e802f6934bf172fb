"""Runs the engine over a run store: events, live snapshots, the load of inference servers, how the run ended."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from gymnast.errors import UserError
from gymnast.rollouts.engine import Engine
from gymnast.rollouts.limits import host_cap
from gymnast.rollouts.snapshot import Snapshot, make_snapshot
from gymnast.rollouts.tally import overall_stats, stats_of
from gymnast.store.manifest import RunState
from gymnast.types.events import RunFinished, RunStarted

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from gymnast.rollouts.observer import RunObserver, TakeSnapshot
    from gymnast.rollouts.options import RunOptions
    from gymnast.rollouts.run_store import RunStore
    from gymnast.rollouts.runner import AttemptRunner
    from gymnast.rollouts.servers import PollPressure, Servers

_POLL_EVERY_S: Final = 2.0

Drive = Callable[[Engine, "TakeSnapshot"], Awaitable[RunState]]
"""Runs an engine to its end, together with whatever has to run meanwhile."""


async def _run_alone(engine: Engine, _: TakeSnapshot) -> RunState:
    return await engine.run()


async def run_engine(
    store: RunStore,
    servers: Servers,
    options: RunOptions,
    observer: RunObserver,
    *,
    agents: list[str],
    tasks: int = 0,
    drive: Drive = _run_alone,
) -> RunFinished:
    """Run a store's owed rollouts until nothing is left to do or the engine is stopped.

    `RunFinished` is returned, not sent to the observer.
    """
    started = time.monotonic()
    observer.warn(host_cap().warn(options.engine.concurrency))
    if observer.tracer is not None:
        servers = replace(servers, runner=observer.tracer.wrap(servers.runner, store.run_id))
    engine = Engine(store, servers.runner, servers.engine_options(options.engine), observer.listen, agents)
    counts = store.counts()
    observer.listen(RunStarted(counts.requested, tasks, store.name, time.time(), counts.requested - counts.owed))

    def take_snapshot() -> Snapshot:
        return make_snapshot(engine, started, servers.runner.signals)

    try:
        async with _adjusting_to_pressure(engine, servers.poll_pressure):
            with observer.watch(engine, take_snapshot):
                state = await drive(engine, take_snapshot)
    except BaseException:
        with suppress(UserError):
            await store.save(RunState.INTERRUPTED, "the run was ended by an error")
        raise
    note = ending_note(engine, state)
    await store.save(state, note)
    return _make_finished(engine, servers.runner, state, note, started, settled_before=counts.requested - counts.owed)


def ending_note(engine: Engine, state: RunState) -> str | None:
    """Why rollouts are still owed, for a person."""
    if state is RunState.COMPLETE:
        return None
    reasons = list(engine.circuit_breaker.reasons().values())
    if engine.drain_reason:
        reasons.insert(0, engine.drain_reason)
    if engine.is_out_of_retries:
        reasons.append("the run's budget of retries is used up")
    return "; ".join(reasons) or None


def _make_finished(
    engine: Engine, runner: AttemptRunner, state: RunState, note: str | None, started: float, *, settled_before: int
) -> RunFinished:
    counts = engine.store.counts()
    return RunFinished(
        requested=counts.requested,
        scored=counts.scored,
        failed=counts.failed,
        owed=counts.owed,
        state=state.value,
        seconds=time.monotonic() - started,
        output=engine.store.name,
        attempts=counts.attempts,
        retries=counts.retries,
        note=note,
        concurrency=engine.limit.current,
        longest_lag_s=max(engine.longest_lag_s, runner.longest_lag_s),
        spent=engine.store.spent.usage(),
        is_out_of_budget=engine.is_out_of_budget and counts.owed > 0,
        agents=stats_of(engine.store.totals()),
        settled_before=settled_before,
        this_invocation=overall_stats(engine.tally.totals()),
    )


@asynccontextmanager
async def _adjusting_to_pressure(engine: Engine, poll: PollPressure | None) -> AsyncIterator[None]:
    task = asyncio.create_task(_poll_forever(engine, poll)) if poll is not None else None
    try:
        yield
    finally:
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


async def _poll_forever(engine: Engine, poll: PollPressure) -> None:
    """Report the load of inference servers to the concurrency limit. Endpoints without metrics are polled only once."""
    pressure = await poll()
    if pressure is None:
        return
    while True:
        if pressure is not None:  # a busy server may be late with its metrics
            engine.limit.adjust_to_pressure(pressure)
        await asyncio.sleep(_POLL_EVERY_S)
        pressure = await poll()
