"""A whole collection: prepare the run, start its servers, run the engine, write the aggregate metrics."""

from __future__ import annotations

import time
from contextlib import AsyncExitStack, ExitStack, contextmanager, suppress
from dataclasses import replace
from typing import TYPE_CHECKING

import orjson

from gymnast.errors import DataError
from gymnast.rollouts.aggregate import write_aggregate_metrics
from gymnast.rollouts.attempt import Failed, make_failure_line
from gymnast.rollouts.budget import require_prices
from gymnast.rollouts.control import ControlCommands, ControlServer
from gymnast.rollouts.preflight_probes import find_suspicions, needs_preflight
from gymnast.rollouts.prepare import prepare_run, remove_run
from gymnast.rollouts.run_engine import run_engine
from gymnast.rollouts.run_store import FileRunStore
from gymnast.rollouts.servers import connect_servers, reachable_instances, start_servers
from gymnast.runtime.garbage import rare_garbage_collection
from gymnast.store.lock import RunLock
from gymnast.types.failure import FailureDetail, FailureKind, Stage
from gymnast.types.task import INPUT_LINE, ROLLOUT_INDEX, TASK_INDEX

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from gymnast.config import Config, Environ
    from gymnast.rollouts.engine import Engine
    from gymnast.rollouts.observer import RunObserver, TakeSnapshot
    from gymnast.rollouts.options import RunOptions
    from gymnast.rollouts.plan import BadRow
    from gymnast.rollouts.prepare import InstancesFor, PreparedRun
    from gymnast.rollouts.servers import Servers
    from gymnast.store.manifest import RunState
    from gymnast.types.events import RunFinished
    from gymnast.types.json import JsonObject
    from gymnast.types.task import RolloutKey


async def collect_run(options: RunOptions, config: Config, environ: Environ, observer: RunObserver) -> RunFinished:
    """Collect with the agents of `options.serve`, or with the instances of `config`, started here or in workers."""
    if options.serve is not None:
        async with connect_servers(options) as servers:
            return await collect_with(servers, options, observer)
    with _prepare(options, config.agents, lambda names: reachable_instances(config, names), observer) as prepared:
        log_dir = prepared.paths.logs
        starting = start_servers(prepared.instances, config, environ, options, observer, log_dir=log_dir)
        async with AsyncExitStack() as stack:
            try:
                require_prices(options.engine.budget, prepared.instances)
                servers = await stack.enter_async_context(starting)
                if needs_preflight(options, prepared):
                    suspicions = await find_suspicions(prepared, servers, options, observer)
                    options = replace(options, engine=replace(options.engine, suspicions=suspicions))
            except BaseException:
                remove_run(prepared)  # a new run whose servers do not start leaves only their logs behind
                raise
            return await run_prepared(prepared, servers, options, observer)


async def collect_with(servers: Servers, options: RunOptions, observer: RunObserver) -> RunFinished:
    """Collect with servers that are already up."""
    with _prepare(options, servers.agents, lambda _: [], observer) as prepared:
        return await run_prepared(prepared, servers, options, observer)


@contextmanager
def _prepare(
    options: RunOptions, agents: list[str], instances_for: InstancesFor, observer: RunObserver
) -> Iterator[PreparedRun]:
    """Prepare a run and hold its lock; a fork has its own."""
    with ExitStack() as locks:
        locks.enter_context(RunLock(options.paths.lock))
        prepared = prepare_run(options, agents, instances_for)
        if prepared.paths.output != options.output:
            locks.enter_context(RunLock(prepared.paths.lock))
        observer.note(prepared.notes)
        observer.warn(prepared.warnings)
        yield prepared


async def run_prepared(
    prepared: PreparedRun,
    servers: Servers,
    options: RunOptions,
    observer: RunObserver,
    *,
    verifiers: Mapping[str, str] | None = None,
) -> RunFinished:
    """Run a prepared run with its control socket open. Its lock must be held.

    `verifiers` names, for each agent, the instance that aggregates its metrics; by default the agent itself.
    """
    async with FileRunStore(
        prepared.paths,
        prepared.manifest,
        max_attempts=options.engine.retry.max_attempts,
        retry_failed=options.retry_failed,
        only=options.only,
        take=observer.take,
    ) as store:
        for repair in store.notes:
            observer.say(f"repaired: {repair}")
        _record_bad_rows(prepared, store)
        if store.counts().owed < 0:
            raise DataError(
                "the run has records of rollouts that were never planned",
                where=str(prepared.paths.output),
                next="restore its files, or choose another --output",
            )

        async def drive(engine: Engine, take_snapshot: TakeSnapshot) -> RunState:
            async with ControlServer(prepared.paths.socket, ControlCommands(engine, take_snapshot).handle):
                return await engine.run()

        tasks = int(prepared.manifest.plan.get("tasks") or 0)
        agents = list(prepared.agents)
        engine_options = replace(options.engine, preflight=needs_preflight(options, prepared))
        options = replace(options, engine=engine_options)
        with rare_garbage_collection():
            finished = await run_engine(store, servers, options, observer, agents=agents, tasks=tasks, drive=drive)
    if options.aggregate and finished.scored:
        with suppress(OSError):
            aggregators = verifiers or {name: name for name in agents}
            observer.warn(await write_aggregate_metrics(prepared.paths, aggregators, prepared.instances, servers.calls))
    observer.listen(finished)
    return finished


def bad_row_records(rows: Iterable[BadRow], now: float, run_id: str) -> Iterator[tuple[RolloutKey, bytes]]:
    """The failure record of each rollout of skipped rows, with its key in the store."""
    for row in rows:
        detail = FailureDetail(FailureKind.BAD_ROW, Stage.PLAN, f"input line {row.line}: {row.what}", body=row.what)
        for key in row.store_keys():
            identity: JsonObject = {INPUT_LINE: row.line, TASK_INDEX: row.task, ROLLOUT_INDEX: key.rollout}
            failed = Failed(detail, 0.0, now, {INPUT_LINE: row.line})
            yield key, make_failure_line(orjson.dumps(identity), failed, index=0, final=True, run_id=run_id)


def _record_bad_rows(prepared: PreparedRun, store: FileRunStore) -> None:
    """Record skipped rows as failures, once. Rows that were fixed since are no longer failures."""
    if prepared.bad_rows is None:
        return  # as recorded
    store.settled.forget_bad_rows({key.packed for row in prepared.bad_rows for key in row.store_keys()})
    for key, line in bad_row_records(prepared.bad_rows, time.time(), store.run_id):
        if key not in store.settled:
            store.record_failed(key, line, FailureKind.BAD_ROW.value, "", final=True)
