"""A prepared run, from its first attempt to its last record: book, engine, control socket, and who is told."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import orjson

from gymnast.errors import DataError, UserError
from gymnast.rollouts.attempt import Failed, failure_line
from gymnast.rollouts.book import RunBook, Take
from gymnast.rollouts.concurrency import Pressure
from gymnast.rollouts.control import ControlServer
from gymnast.rollouts.engine import Engine, EngineOptions, Listen
from gymnast.rollouts.snapshot import Snapshot, snapshot
from gymnast.rollouts.steering import Steering
from gymnast.store.manifest import RunState
from gymnast.types.events import RunFinished, RunStarted
from gymnast.types.failure import BAD_ROW, FailureDetail, Stage
from gymnast.types.task import INPUT_LINE, ROLLOUT_INDEX, TASK_INDEX

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Iterator

    from gymnast.rollouts.executor import Executor
    from gymnast.rollouts.plan import BadRow
    from gymnast.rollouts.prepare import Prepared
    from gymnast.types.json import JsonObject
    from gymnast.types.task import RolloutKey

_FEEL_EVERY_S: Final = 2.0

Say = Callable[[str], None]
Look = Callable[[], Snapshot]
Watch = Callable[[Engine, Look], AbstractContextManager[object]]
Feel = Callable[[], Awaitable[Pressure | None]]


@dataclass(frozen=True, slots=True)
class Audience:
    """Who is told what happens in a run."""

    listen: Listen
    """Every event."""
    say: Say
    """Warnings and notes, in words."""
    watch: Watch = lambda *_: nullcontext()
    """Told of the engine when it begins; what it returns is open while the engine runs."""
    take: Take | None = None
    """Every outcome that is kept for good."""


@dataclass(frozen=True, slots=True)
class Conduct:
    """How a prepared run is worked on."""

    engine: EngineOptions
    retry_failed: bool | Container[str] = False
    only: Container[int] | None = None
    """Packed keys of the rollouts to be worked on; None for all that are owed."""
    feel: Feel | None = None
    """How full the policy's engines are, where they say so."""
    after: Callable[[RunFinished], Awaitable[None]] | None = None
    """Done when the last record is kept, before the end is announced."""


async def conduct(prepared: Prepared, executor: Executor, how: Conduct, audience: Audience) -> RunFinished:
    """Work on a prepared run until nothing is left to do, or until told to stop. Its lock must be held."""
    began = time.monotonic()
    async with RunBook(
        prepared.paths,
        prepared.manifest,
        max_attempts=how.engine.retry.max_attempts,
        retry_failed=how.retry_failed,
        only=how.only,
        take=audience.take,
    ) as book:
        for repaired in book.notes:
            audience.say(f"repaired: {repaired}")
        _keep_bad_rows(prepared, book)
        if book.counts().owed < 0:
            raise DataError(
                "the run has records of rollouts that were never planned",
                where=str(prepared.paths.output),
                next="bring its files together again, or choose another --output",
            )
        engine = Engine(book, executor, how.engine, audience.listen, list(prepared.agents))
        state = await _steered(engine, book, executor, how, audience, began)
        note = ending_note(engine, state)
        await book.save(state, note)
        finished = finished_event(engine, executor, state, note, began)
    if how.after is not None:
        await how.after(finished)
    audience.listen(finished)
    return finished


async def _steered(
    engine: Engine, book: RunBook, executor: Executor, how: Conduct, audience: Audience, began: float
) -> RunState:
    """Run the engine with its control socket open."""
    counts = book.counts()
    tasks = int(book.manifest.plan.get("tasks") or 0)
    audience.listen(RunStarted(counts.requested, tasks, book.name, time.time(), counts.requested - counts.owed))
    look = looking(engine, executor, began)
    feeling = asyncio.create_task(keep_feeling(engine, how.feel)) if how.feel is not None else None
    try:
        async with ControlServer(book.paths.socket, Steering(engine, look).handle):
            with audience.watch(engine, look):
                return await engine.run()
    except BaseException:
        with suppress(UserError):
            await book.save(RunState.INTERRUPTED, "the run was ended by an error")
        raise
    finally:
        if feeling is not None:
            feeling.cancel()
            await asyncio.gather(feeling, return_exceptions=True)


def looking(engine: Engine, executor: Executor, began: float) -> Look:
    """How the engine stands, whenever somebody asks."""

    def look() -> Snapshot:
        signals = executor.signals
        return snapshot(engine, began, model_calls=signals.model_calls, rejections=signals.rejections)

    return look


def _keep_bad_rows(prepared: Prepared, book: RunBook) -> None:
    """Rows that were skipped are failures like any other, once. One that was mended since is a failure no more."""
    if prepared.bad_rows is None:
        return  # as recorded
    book.settled.forget_bad_rows({key.packed for row in prepared.bad_rows for key in row.account_keys()})
    for key, line in bad_row_records(prepared.bad_rows, time.time(), book.run_id):
        if key not in book.settled:
            book.keep_failed(key, line, BAD_ROW, final=True)


def bad_row_records(rows: Iterable[BadRow], now: float, run_id: str) -> Iterator[tuple[RolloutKey, bytes]]:
    """The failure record of each rollout of rows that were skipped, with its key for the account."""
    for row in rows:
        detail = FailureDetail(BAD_ROW, Stage.PLAN, f"input line {row.line}: {row.what}", body=row.what)
        for key in row.account_keys():
            identity: JsonObject = {INPUT_LINE: row.line, TASK_INDEX: row.task, ROLLOUT_INDEX: key.rollout}
            failed = Failed(detail, 0.0, now, {INPUT_LINE: row.line})
            yield key, failure_line(orjson.dumps(identity), failed, index=0, final=True, run_id=run_id)


def ending_note(engine: Engine, state: RunState) -> str | None:
    """Why rollouts are still owed, in words."""
    if state is RunState.COMPLETE:
        return None
    reasons = list(engine.prospects.reasons().values())
    if engine.draining:
        reasons.insert(0, engine.draining)
    if engine.retry_budget_is_used_up:
        reasons.append("the run's budget of retries is used up")
    return "; ".join(reasons) or None


def finished_event(engine: Engine, executor: Executor, state: RunState, note: str | None, began: float) -> RunFinished:
    """How a run ended."""
    counts = engine.book.counts()
    return RunFinished(
        requested=counts.requested,
        scored=counts.scored,
        failed=counts.failed,
        owed=counts.owed,
        state=state.value,
        seconds=time.monotonic() - began,
        output=engine.book.name,
        attempts=counts.attempts,
        retries=counts.retries,
        note=note,
        concurrency=engine.limit.current,
        longest_lag_s=max(engine.longest_lag_s, executor.longest_lag_s),
        spent=engine.book.spent.usage(),
        is_out_of_budget=engine.is_out_of_budget and counts.owed > 0,
    )


async def keep_feeling(engine: Engine, feel: Feel) -> None:
    """Tell the limit what the engines' own metrics say. Endpoints that have none are not asked again."""
    pressure = await feel()
    if pressure is None:
        return
    while True:
        if pressure is not None:  # a busy engine may be late with its metrics
            engine.limit.feel(pressure)
        await asyncio.sleep(_FEEL_EVERY_S)
        pressure = await feel()
