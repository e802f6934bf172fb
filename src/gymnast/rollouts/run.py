"""A whole collection: get the run ready, start what its rows need (or find a serve), run it, say how it ended."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, AsyncExitStack, ExitStack, nullcontext, suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

import orjson

from gymnast.config.secrets import Scrubber
from gymnast.errors import NotFoundError, UserError, suggest
from gymnast.rollouts.aggregate import write_aggregate_metrics
from gymnast.rollouts.attempt import Failed, failure_line
from gymnast.rollouts.book import RunBook
from gymnast.rollouts.concurrency import Pressure
from gymnast.rollouts.control import ControlServer
from gymnast.rollouts.engine import Engine, EngineOptions, Listen
from gymnast.rollouts.executor import Executor, HereExecutor
from gymnast.rollouts.plan import PlanOptions
from gymnast.rollouts.prepare import Existing, OnChange, Preparation, Prepared, prepare, remove_prepared
from gymnast.rollouts.snapshot import Snapshot, snapshot
from gymnast.rollouts.steering import Steering
from gymnast.rollouts.workers import WorkerPool
from gymnast.runtime.cell import Cell, options_from, stderr_boundary
from gymnast.runtime.engine_metrics import read_pressure
from gymnast.runtime.garbage import rare_garbage_collection
from gymnast.runtime.probe import endpoint_urls, wait_for_endpoints
from gymnast.runtime.remote import read_head, remote_calls
from gymnast.store.lock import RunLock
from gymnast.store.manifest import RunState
from gymnast.store.paths import RunPaths
from gymnast.types.events import InstanceDied, RunFinished, RunStarted
from gymnast.types.failure import FailureDetail, Stage
from gymnast.types.task import ROLLOUT_INDEX, TASK_INDEX, RolloutKey
from gymnast.wire.http_client import HttpClient, connection_budget, raise_fd_limit
from gymnast.wire.trail import Signals

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from gymnast.config import Config, Environ, Instance
    from gymnast.runtime.children import Child
    from gymnast.types.json import JsonObject
    from gymnast.wire.calls import Calls

ENDPOINT_TIMEOUT_S: Final = 30.0
_PRESSURE_EVERY_S: Final = 2.0
_BYTES_PER_ROLLOUT: Final = 2 * 1024 * 1024

Say = Callable[[str], None]
Look = Callable[[], Snapshot]
Watch = Callable[[Engine, Look], AbstractContextManager[object]]
"""Told of the engine when it begins; what it returns is open while the engine runs."""


@dataclass(frozen=True, slots=True)
class CollectRequest:
    """What is to be collected, where it goes, and how."""

    source: Path
    output: Path
    plan: PlanOptions = field(default_factory=PlanOptions)
    engine: EngineOptions = field(default_factory=EngineOptions)
    existing: Existing = "refuse"
    on_change: OnChange = "refuse"
    retry_failed: bool = False
    """Try rollouts again that failed for good."""
    workers: int = 0
    """Worker processes; 0 runs everything in this one."""
    aggregate: bool = True
    request_debug: bool = False


async def collect_here(
    request: CollectRequest, config: Config, environ: Environ, listen: Listen, say: Say, watch: Watch | None = None
) -> RunFinished:
    """Collect with the instances of `config` living in this process, in workers, or where they say."""
    agents = [name for name, found in config.instances.items() if found.kind == "responses_api_agents"]
    paths = RunPaths(request.output)
    wanted = _preparation(request, agents, lambda names: reachable(config, names))
    with ExitStack() as locks:
        locks.enter_context(RunLock(paths.lock))
        prepared = prepare(paths, wanted)
        if prepared.paths.output != paths.output:
            locks.enter_context(RunLock(prepared.paths.lock))
        async with AsyncExitStack() as stack:
            try:
                executor, cell = await _start(stack, request, prepared, config, environ, listen, say)
            except BaseException:
                remove_prepared(prepared)
                raise
            limits = agent_limits(prepared.instances)
            engine = replace(request.engine, agent_limits=limits, cap=host_cap())
            run = _Conducted(replace(request, engine=engine), prepared, executor, cell.calls, listen, say, watch)
            stack.enter_context(rare_garbage_collection())
            return await run.conduct(cell.http, [url for url, _ in endpoint_urls(prepared.instances).items()])


async def collect_remote(
    request: CollectRequest, head_url: str, token: str | None, listen: Listen, say: Say, watch: Watch | None = None
) -> RunFinished:
    """Collect through the agents of a running serve."""
    raise_fd_limit()
    paths = RunPaths(request.output)
    async with AsyncExitStack() as stack:
        client = await stack.enter_async_context(HttpClient())
        head = await read_head(client, head_url, token)
        boundary = stderr_boundary(Scrubber()) if request.request_debug else None
        calls = remote_calls(client, head, boundary)
        stack.enter_context(RunLock(paths.lock))
        prepared = prepare(paths, _preparation(request, list(head.agents()), lambda _: []))
        engine = replace(request.engine, cap=host_cap())
        executor = HereExecutor(calls, Signals())
        run = _Conducted(replace(request, engine=engine), prepared, executor, calls, listen, say, watch)
        stack.enter_context(rare_garbage_collection())
        return await run.conduct(client, [])


def reachable(config: Config, agents: Iterable[str]) -> list[Instance]:
    """The instances that these agents need, themselves included."""
    found: dict[str, Instance] = {}
    waiting = list(agents)
    while waiting:
        name = waiting.pop()
        if name not in found:
            found[name] = config.instance(name)
            waiting += [ref.name for ref in found[name].refs.values()]
    return [instance for name, instance in config.instances.items() if name in found]


def only_agent(agents: Iterable[str]) -> str | None:
    """The agent that rows without one must mean: the only one there is."""
    names = list(agents)
    return names[0] if len(names) == 1 else None


def agent_limits(instances: Iterable[Instance]) -> dict[str, int]:
    """Rollouts in flight that agents and their environments allow, where they say so."""
    by_name = {instance.name: instance for instance in instances}
    found: dict[str, int] = {}
    for instance in by_name.values():
        if instance.kind == "responses_api_agents":
            needed = [instance, *(by_name[ref.name] for ref in instance.refs.values() if ref.name in by_name)]
            limits = [one.settings.get(key) for one in needed for key in ("max_rollouts", "max_sessions")]
            given = [limit for limit in limits if isinstance(limit, int)]
            if given:
                found[instance.name] = min(given)
    return found


def host_cap() -> int:
    """Rollouts in flight that the host's open files and memory allow."""
    pages = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return max(1, min(EngineOptions().cap, connection_budget() // 2, pages // _BYTES_PER_ROLLOUT))


def _preparation(
    request: CollectRequest, agents: list[str], instances_for: Callable[[Iterable[str]], list[Instance]]
) -> Preparation:
    asked = request.plan.agent
    if asked is not None and asked not in agents:
        raise NotFoundError(f"there is no agent '{asked}'", next=suggest(asked, agents))
    return Preparation(request.source, request.plan, agents, instances_for, request.existing, request.on_change)


async def _start(
    stack: AsyncExitStack,
    request: CollectRequest,
    prepared: Prepared,
    config: Config,
    environ: Environ,
    listen: Listen,
    say: Say,
) -> tuple[Executor, Cell]:
    """The instances that the run needs, here or in workers, with their endpoints answering."""

    def child_died(child: Child) -> None:
        listen(InstanceDied(child.instance.name, child.process.death_note()))

    def worker_died(note: str) -> None:
        listen(InstanceDied(note.split(" ", 1)[0], note))

    for warning in prepared.warnings:
        say(f"warning: {warning}")
    options = options_from(config, environ, log_dir=prepared.paths.logs, on_child_death=child_died)
    cell = Cell(prepared.instances if not request.workers else [], options)
    await stack.enter_async_context(cell)
    executor: Executor = HereExecutor(cell.calls, cell.signals, explain=cell.explain)
    if request.workers:
        executor = await stack.enter_async_context(
            WorkerPool(request.workers, prepared.instances, options, on_death=worker_died)
        )
    timeout_s = float(config.values.get("model_endpoint_readiness_timeout_seconds", ENDPOINT_TIMEOUT_S))
    await wait_for_endpoints(cell.http, prepared.instances, timeout_s, say)
    return executor, cell


class _Conducted:
    """A prepared run, from its first attempt to its last record."""

    def __init__(
        self,
        request: CollectRequest,
        prepared: Prepared,
        executor: Executor,
        calls: Calls,
        listen: Listen,
        say: Say,
        watch: Watch | None,
    ) -> None:
        self._request = request
        self._prepared = prepared
        self._executor = executor
        self._calls = calls
        self._listen = listen
        self._say = say
        self._watch = watch or (lambda *_: nullcontext())
        self._began = time.monotonic()

    async def conduct(self, client: HttpClient, endpoints: list[str]) -> RunFinished:
        prepared, request = self._prepared, self._request
        max_attempts = request.engine.retry.max_attempts
        async with RunBook(
            prepared.paths, prepared.manifest, max_attempts=max_attempts, retry_failed=request.retry_failed
        ) as book:
            for repaired in book.notes:
                self._say(f"repaired: {repaired}")
            self._keep_bad_rows(book)
            engine = Engine(book, self._executor, request.engine, self._listen, list(prepared.agents))
            state = await self._run(engine, client, endpoints)
            note = self._note(engine, state)
            await book.save(state, note)
            finished = self._finished(engine, state, note)
        if request.aggregate and finished.scored:
            with suppress(OSError):
                await write_aggregate_metrics(prepared.paths, prepared.agents, prepared.instances, self._calls)
        self._listen(finished)
        return finished

    async def _run(self, engine: Engine, client: HttpClient, endpoints: list[str]) -> RunState:
        book = engine.book
        counts = book.counts()
        tasks = int(self._prepared.manifest.plan.get("tasks") or 0)
        self._listen(
            RunStarted(counts.requested, tasks, str(book.paths.output), time.time(), counts.requested - counts.owed)
        )

        def look() -> Snapshot:
            signals = self._executor.signals
            return snapshot(engine, self._began, model_calls=signals.model_calls, rejections=signals.rejections)

        feeling = asyncio.create_task(_feel_pressure(engine, client, endpoints))
        try:
            async with ControlServer(book.paths.socket, Steering(engine, look).handle):
                with self._watch(engine, look):
                    return await engine.run()
        except BaseException:
            with suppress(UserError):
                await book.save(RunState.INTERRUPTED, "the run was ended by an error")
            raise
        finally:
            feeling.cancel()
            await asyncio.gather(feeling, return_exceptions=True)

    def _keep_bad_rows(self, book: RunBook) -> None:
        """Rows that were skipped are failures like any other, once."""
        now = time.time()
        for row in self._prepared.bad_rows:
            detail = FailureDetail("bad_row", Stage.PLAN, f"input line {row.line}: {row.what}", body=row.what)
            for rollout in range(row.rollouts):
                key = RolloutKey(row.task, rollout)
                if key not in book.settled:
                    identity: JsonObject = {TASK_INDEX: row.task, ROLLOUT_INDEX: rollout}
                    line = failure_line(
                        orjson.dumps(identity),
                        Failed(detail, 0.0, now),
                        index=0,
                        final=True,
                        run_id=book.manifest.run_id,
                    )
                    book.keep_failed(key, line, detail.kind, final=True)

    def _note(self, engine: Engine, state: RunState) -> str | None:
        if state is RunState.COMPLETE:
            return None
        reasons = list(engine.prospects.reasons().values())
        if engine.draining:
            reasons.insert(0, engine.draining)
        if engine.retry_budget_is_used_up:
            reasons.append("the run's budget of retries is used up")
        return "; ".join(reasons) or None

    def _finished(self, engine: Engine, state: RunState, note: str | None) -> RunFinished:
        counts = engine.book.counts()
        return RunFinished(
            requested=counts.requested,
            scored=counts.scored,
            failed=counts.failed,
            owed=counts.owed,
            state=state.value,
            seconds=time.monotonic() - self._began,
            output=str(engine.book.paths.output),
            attempts=counts.attempts,
            retries=counts.retries,
            note=note,
            concurrency=engine.limit.current,
            longest_lag_s=max(engine.longest_lag_s, getattr(self._executor, "longest_lag_s", 0.0)),
        )


async def _feel_pressure(engine: Engine, client: HttpClient, endpoints: list[str]) -> None:
    """Tell the limit what the engines' own metrics say, as long as they say something."""
    while endpoints:
        found = await read_pressure(client, endpoints)
        if found is None:
            return
        engine.limit.feel(Pressure(found["waiting"], found["running"], found["kv_usage"]))
        await asyncio.sleep(_PRESSURE_EVERY_S)
