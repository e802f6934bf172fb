"""A whole collection: get the run ready, start what its rows need (or find a serve), run it, say how it ended."""

from __future__ import annotations

from contextlib import AsyncExitStack, ExitStack, suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from gymnast.config.secrets import Scrubber
from gymnast.errors import NotFoundError, suggest
from gymnast.rollouts.aggregate import write_aggregate_metrics
from gymnast.rollouts.budget import require_prices
from gymnast.rollouts.concurrency import Pressure
from gymnast.rollouts.conduct import Audience, Conduct, conduct
from gymnast.rollouts.engine import EngineOptions
from gymnast.rollouts.executor import HereExecutor
from gymnast.rollouts.limits import agent_limits, host_cap
from gymnast.rollouts.plan import PlanOptions
from gymnast.rollouts.prepare import Existing, OnChange, Preparation, Prepared, prepare, remove_prepared
from gymnast.rollouts.reproducible import SETTING as REPRODUCIBLE
from gymnast.rollouts.starting import start_executor
from gymnast.runtime.cell import options_from, stderr_boundary
from gymnast.runtime.garbage import rare_garbage_collection
from gymnast.runtime.probe import endpoint_urls
from gymnast.runtime.remote import read_head, remote_calls
from gymnast.store.lock import RunLock
from gymnast.store.paths import RunPaths
from gymnast.types.events import InstanceDied
from gymnast.wire.engine_metrics import read_pressure
from gymnast.wire.http_client import HttpClient, raise_fd_limit
from gymnast.wire.trail import Signals

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from gymnast.config import Config, Environ, Instance
    from gymnast.rollouts.conduct import Feel
    from gymnast.rollouts.executor import Executor
    from gymnast.runtime.cell import Cell
    from gymnast.runtime.children import Child
    from gymnast.types.events import RunFinished
    from gymnast.types.tokens import TokenForm
    from gymnast.wire.calls import Calls


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
    token_form: TokenForm | None = None
    """How records hold the tokens of models that account for them; None: as the configuration says."""


async def collect_here(request: CollectRequest, config: Config, environ: Environ, audience: Audience) -> RunFinished:
    """Collect with the instances of `config` living in this process, in workers, or where they say."""
    paths = RunPaths(request.output)
    wanted = preparation(request, config.agents, lambda names: reachable(config, names))
    with ExitStack() as locks:
        locks.enter_context(RunLock(paths.lock))
        prepared = prepare(paths, wanted)
        if prepared.paths.output != paths.output:
            locks.enter_context(RunLock(prepared.paths.lock))
        async with AsyncExitStack() as stack:
            try:
                require_prices(request.engine.budget, prepared.instances)
                executor, cell = await _start(stack, request, prepared, config, environ, audience)
            except BaseException:
                remove_prepared(prepared)
                raise
            engine = replace(
                request.engine,
                agent_limits=agent_limits(prepared.instances),
                cap=host_cap(),
                reproducible=bool(config.values.get(REPRODUCIBLE)),
            )
            how = _conduct(request, engine, prepared, cell.calls, feel(cell.http, prepared.instances))
            stack.enter_context(rare_garbage_collection())
            return await conduct(prepared, executor, how, audience)


async def collect_remote(request: CollectRequest, head_url: str, token: str | None, audience: Audience) -> RunFinished:
    """Collect through the agents of a running serve."""
    raise_fd_limit()
    paths = RunPaths(request.output)
    async with AsyncExitStack() as stack:
        client = await stack.enter_async_context(HttpClient())
        head = await read_head(client, head_url, token)
        boundary = stderr_boundary(Scrubber()) if request.request_debug else None
        calls = remote_calls(client, head, boundary)
        stack.enter_context(RunLock(paths.lock))
        prepared = prepare(paths, preparation(request, list(head.agents()), lambda _: []))
        if prepared.paths.output != paths.output:
            stack.enter_context(RunLock(prepared.paths.lock))
        say_all(prepared.warnings, audience)
        how = _conduct(request, replace(request.engine, cap=host_cap()), prepared, calls, None)
        stack.enter_context(rare_garbage_collection())
        executor = HereExecutor(calls, Signals(), tokens=head.tokens(request.token_form))
        return await conduct(prepared, executor, how, audience)


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


def preparation(
    request: CollectRequest,
    agents: list[str],
    instances_for: Callable[[Iterable[str]], list[Instance]],
    *,
    in_chunks: bool = False,
) -> Preparation:
    """What getting the run of a request ready needs to know."""
    asked = request.plan.agent
    if asked is not None and asked not in agents:
        raise NotFoundError(f"there is no agent '{asked}'", next=suggest(asked, agents))
    return Preparation(
        request.source, request.plan, agents, instances_for, request.existing, request.on_change, in_chunks
    )


async def _start(
    stack: AsyncExitStack,
    request: CollectRequest,
    prepared: Prepared,
    config: Config,
    environ: Environ,
    audience: Audience,
) -> tuple[Executor, Cell]:
    """The instances that the run needs, here or in workers, with their endpoints answering."""

    def child_died(child: Child) -> None:
        audience.listen(InstanceDied(child.instance.name, child.process.death_note()))

    def worker_died(note: str) -> None:
        audience.listen(InstanceDied(note.split(" ", 1)[0], note))

    say_all(prepared.warnings, audience)
    options = options_from(config, environ, log_dir=prepared.paths.logs, on_child_death=child_died)
    if request.token_form is not None:
        options = replace(options, token_form=request.token_form)
    return await start_executor(
        stack,
        prepared.instances,
        config,
        options,
        workers=request.workers,
        on_worker_death=worker_died,
        say=audience.say,
    )


def _conduct(
    request: CollectRequest, engine: EngineOptions, prepared: Prepared, calls: Calls, feeling: Feel | None
) -> Conduct:
    async def aggregate(finished: RunFinished) -> None:
        if request.aggregate and finished.scored:
            with suppress(OSError):
                ask = {name: name for name in prepared.agents}
                await write_aggregate_metrics(prepared.paths, ask, prepared.instances, calls)

    return Conduct(engine, request.retry_failed, feel=feeling, after=aggregate)


def feel(client: HttpClient, instances: Iterable[Instance]) -> Feel | None:
    """How to ask the engines behind these instances how full they are."""
    urls = list(endpoint_urls(instances))

    async def ask() -> Pressure | None:
        found = await read_pressure(client, urls)
        return Pressure(found["waiting"], found["running"], found["kv_usage"]) if found is not None else None

    return ask if urls else None


def say_all(warnings: Iterable[str], audience: Audience) -> None:
    """Warnings, in words."""
    for warning in warnings:
        audience.say(f"warning: {warning}")
