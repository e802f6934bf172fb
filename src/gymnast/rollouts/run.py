"""A whole collection: plan, start what the rows need (or find a running serve), collect, stop what was started."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Literal

from gymnast.config.secrets import Scrubber
from gymnast.errors import NotFoundError, UserError, suggest
from gymnast.rollouts.collect import CollectOptions, Listen, collect
from gymnast.rollouts.plan import PlanOptions, PlanSummary, write_plan
from gymnast.runtime.cell import Cell, options_from, stderr_boundary
from gymnast.runtime.garbage import rare_garbage_collection
from gymnast.runtime.probe import wait_for_endpoints
from gymnast.runtime.remote import read_head, remote_calls
from gymnast.store.paths import RunPaths
from gymnast.types.events import InstanceDied, RunFinished
from gymnast.wire.http_client import HttpClient, raise_fd_limit

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from gymnast.config import Config, Environ, Instance
    from gymnast.runtime.children import Child
    from gymnast.wire.calls import Calls

ENDPOINT_TIMEOUT_S: Final = 30.0
Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class CollectRequest:
    """What is to be collected, and where it goes."""

    source: Path
    output: Path
    plan: PlanOptions = field(default_factory=PlanOptions)
    options: CollectOptions = field(default_factory=CollectOptions)
    existing: Literal["refuse", "overwrite", "set_aside"] = "refuse"
    """What to do with files that an earlier run left under the same names."""
    request_debug: bool = False


async def collect_here(
    request: CollectRequest, config: Config, environ: Environ, listen: Listen, say: Say
) -> RunFinished:
    """Collect with the instances of `config` living in this process (or where they say)."""
    agents = [name for name, found in config.instances.items() if found.kind == "responses_api_agents"]
    paths, plan = _planned(request, agents, say)
    needed = reachable(config, plan.rollouts_by_agent)

    def died(child: Child) -> None:
        listen(InstanceDied(child.instance.name, child.death_note()))

    cell = Cell(needed, options_from(config, environ, log_dir=paths.logs, on_child_death=died))
    async with AsyncExitStack() as stack:
        with _nothing_left_unless_started(paths):
            await stack.enter_async_context(cell)
            timeout_s = float(config.values.get("model_endpoint_readiness_timeout_seconds", ENDPOINT_TIMEOUT_S))
            await wait_for_endpoints(cell.http, cell.instances, timeout_s, say)
        with rare_garbage_collection():
            return await collect(paths, plan, cell.calls, request.options, listen)


async def collect_remote(
    request: CollectRequest, head_url: str, token: str | None, listen: Listen, say: Say
) -> RunFinished:
    """Collect through the agents of a running serve."""
    raise_fd_limit()
    async with AsyncExitStack() as stack:
        client = await stack.enter_async_context(HttpClient())
        head = await read_head(client, head_url, token)
        boundary = stderr_boundary(Scrubber()) if request.request_debug else None
        calls: Calls = remote_calls(client, head, boundary)
        paths, plan = _planned(request, head.agents(), say)
        with rare_garbage_collection():
            return await collect(paths, plan, calls, request.options, listen)


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


def _planned(request: CollectRequest, agents: Iterable[str], say: Say) -> tuple[RunPaths, PlanSummary]:
    known = list(agents)
    asked = request.plan.agent
    if asked is not None and asked not in known:
        raise NotFoundError(f"there is no agent '{asked}'", next=suggest(asked, known))
    paths = RunPaths(request.output)
    _make_room(paths, request.existing, say)
    plan = write_plan(request.source, paths.materialized_inputs, request.plan, known)
    for warning in plan.warnings:
        say(f"warning: {warning}")
    return paths, plan


@contextmanager
def _nothing_left_unless_started(paths: RunPaths) -> Iterator[None]:
    """A run that could not begin leaves no plan behind that would stand in the way of the next try."""
    try:
        yield
    except BaseException:
        paths.materialized_inputs.unlink(missing_ok=True)
        raise


def _make_room(paths: RunPaths, existing: str, say: Say) -> None:
    there = paths.existing()
    if not there:
        return
    if existing == "refuse":
        names = ", ".join(path.name for path in there)
        raise UserError(
            f"an earlier run is there: {names}",
            where=str(paths.output.parent),
            next="choose another --output, or replace it with --overwrite",
        )
    if existing == "overwrite":
        for path in there:
            path.unlink()
        return
    folder = paths.set_aside()
    say(f"an earlier run under this name was moved to {folder}")
