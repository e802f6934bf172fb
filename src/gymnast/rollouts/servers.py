"""The servers of a run: instances started here or in workers, or those of a running `gymnast serve`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from gymnast.config.secrets import Scrubber
from gymnast.rollouts.concurrency import Pressure
from gymnast.rollouts.limits import agent_limits, host_cap
from gymnast.rollouts.reproducible import SETTING as REPRODUCIBLE
from gymnast.rollouts.runner import LocalRunner
from gymnast.rollouts.worker_pool import WorkerPool
from gymnast.runtime.cell import Cell, make_cell_options, stderr_boundary
from gymnast.runtime.probe import endpoint_urls, wait_for_endpoints
from gymnast.runtime.remote import read_head, remote_calls
from gymnast.types.events import InstanceDied
from gymnast.wire.http_client import HttpClient, raise_fd_limit
from gymnast.wire.inference_metrics import read_pressure
from gymnast.wire.progress import Signals

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Mapping
    from pathlib import Path

    from gymnast.config import Config, Environ, Instance
    from gymnast.rollouts.engine import EngineOptions
    from gymnast.rollouts.observer import RunObserver
    from gymnast.rollouts.options import RunOptions
    from gymnast.rollouts.runner import AttemptRunner
    from gymnast.runtime.cell import CellOptions
    from gymnast.runtime.children import Child
    from gymnast.wire.calls import Calls

_ENDPOINT_TIMEOUT_S: Final = 30.0
_SHARED_BY_WORKERS: Final = frozenset({"genrm_compare", "genrm_model", "local_vllm_model"})
"""Servers that start inference servers, or compare rollouts of all workers: all workers use the same one."""

PollPressure = Callable[[], Awaitable[Pressure | None]]


@dataclass(frozen=True, slots=True)
class Servers:
    """What attempts need, up and ready."""

    runner: AttemptRunner
    calls: Calls
    agents: list[str]
    """The agents that rows may name."""
    instances: list[Instance]
    """The instances started for the run; empty if it uses a running serve."""
    poll_pressure: PollPressure | None = None
    """Reads the load of inference servers, where they publish it."""
    reproducible: bool = False
    contexts: Mapping[str, int] = field(default_factory=dict)
    """The context length in tokens of each model instance whose endpoints report it."""

    def engine_options(self, options: EngineOptions) -> EngineOptions:
        """The run's options with the limits of the host and of these servers."""
        limits = agent_limits(self.instances)
        scrubber = Scrubber({instance.name: instance.block for instance in self.instances})
        return replace(
            options,
            scrubber=scrubber,
            agent_limits=limits,
            cap=host_cap().rollouts,
            reproducible=self.reproducible,
        )


@asynccontextmanager
async def start_servers(
    instances: list[Instance],
    config: Config,
    environ: Environ,
    options: RunOptions,
    observer: RunObserver,
    *,
    log_dir: Path,
) -> AsyncIterator[Servers]:
    """Start instances in this process, or in each of its workers, and wait until their endpoints respond."""

    def child_died(child: Child) -> None:
        observer.listen(InstanceDied(child.instance.name, child.process.describe_death()))

    def worker_died(note: str) -> None:
        observer.listen(InstanceDied(note.split(" ", 1)[0], note))

    cell_options = make_cell_options(config, environ, log_dir=log_dir, on_child_death=child_died, say=observer.say)
    if options.token_form is not None:
        cell_options = replace(cell_options, token_form=options.token_form)
    captures = bool(config.values.get("observability_enabled"))
    timeout_s = float(config.values.get("model_endpoint_readiness_timeout_seconds", _ENDPOINT_TIMEOUT_S))
    async with AsyncExitStack() as stack:
        cell = await stack.enter_async_context(_make_cell(instances, cell_options, workers=options.workers))
        runner: AttemptRunner = LocalRunner(
            cell.calls, cell.signals, explain=cell.explain, captures=captures, tokens=cell_options.tokens_of(instances)
        )
        if options.workers:
            pool = WorkerPool(
                options.workers, _add_urls(instances, cell), cell_options, on_death=worker_died, captures=captures
            )
            runner = await stack.enter_async_context(pool)
        contexts = await wait_for_endpoints(cell.http, instances, timeout_s, observer.say)
        yield Servers(
            runner,
            cell.calls,
            config.agents,
            instances,
            poll_pressure=_make_poll(cell.http, instances),
            reproducible=bool(config.values.get(REPRODUCIBLE)),
            contexts=contexts,
        )


@asynccontextmanager
async def connect_servers(options: RunOptions) -> AsyncIterator[Servers]:
    """Use the agents of `options.serve`: a running `gymnast serve`, or a NeMo Gym head server."""
    assert options.serve is not None, "these options start servers"
    raise_fd_limit()
    async with HttpClient() as client:
        head = await read_head(client, options.serve.url, options.serve.token)
        boundary = stderr_boundary(Scrubber()) if options.request_debug else None
        calls = remote_calls(client, head, boundary)
        runner = LocalRunner(calls, Signals(), tokens=head.tokens(options.token_form))
        yield Servers(runner, calls, list(head.agents()), [])


def reachable_instances(config: Config, agents: Iterable[str]) -> list[Instance]:
    """The instances that these agents need, including themselves."""
    needed: dict[str, Instance] = {}
    pending = list(agents)
    while pending:
        name = pending.pop()
        if name not in needed:
            needed[name] = config.instance(name)
            pending += [ref.name for ref in needed[name].refs.values()]
    return [instance for name, instance in config.instances.items() if name in needed]


def _make_cell(instances: list[Instance], options: CellOptions, *, workers: int) -> Cell:
    """The instances of this process: all, or, with workers, those that the workers share."""
    if not workers:
        return Cell(instances, options)
    return Cell(_shared_instances(instances), replace(options, exposed=True))


def _shared_instances(instances: list[Instance]) -> list[Instance]:
    """Those that all workers use, and what these use themselves."""
    by_name = {server.name: server for server in instances}
    pending = [server for server in instances if server.implementation in _SHARED_BY_WORKERS and not server.url]
    shared: dict[str, Instance] = {}
    while pending:
        server = pending.pop()
        if server.name not in shared:
            shared[server.name] = server
            pending += [by_name[ref.name] for ref in server.refs.values() if ref.name in by_name]
    return [server for server in instances if server.name in shared]


def _add_urls(instances: list[Instance], cell: Cell) -> list[Instance]:
    """Instances for the workers, with the URLs of those they share."""
    return [
        replace(instance, url=cell.addresses[instance.name].url) if instance.name in cell.addresses else instance
        for instance in instances
    ]


def _make_poll(client: HttpClient, instances: Iterable[Instance]) -> PollPressure | None:
    urls = list(endpoint_urls(instances))

    async def poll() -> Pressure | None:
        load = await read_pressure(client, urls)
        return Pressure(load["waiting"], load["running"], load["kv_usage"]) if load is not None else None

    return poll if urls else None
