"""Bringing up what attempts need: the instances, here or in workers, with their policy endpoints answering."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from gymnast.rollouts.executor import Executor, HereExecutor
from gymnast.rollouts.workers import WorkerPool
from gymnast.runtime.cell import Cell
from gymnast.runtime.probe import wait_for_endpoints

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AsyncExitStack

    from gymnast.config import Config, Instance
    from gymnast.runtime.cell import CellOptions

_ENDPOINT_TIMEOUT_S: Final = 30.0
_ONE_FOR_ALL: Final = frozenset({"local_vllm_model"})
"""Servers that start engines: all workers use the same one."""


async def start_executor(
    stack: AsyncExitStack,
    instances: list[Instance],
    config: Config,
    options: CellOptions,
    *,
    workers: int,
    on_worker_death: Callable[[str], None],
    say: Callable[[str], None],
) -> tuple[Executor, Cell]:
    """Start instances; `stack` stops them. With workers each has its own, but for those that start engines."""
    here, how = instances, options
    if workers:
        here = [instance for instance in instances if instance.implementation in _ONE_FOR_ALL and not instance.url]
        how = replace(options, exposed=True)
    cell = await stack.enter_async_context(Cell(here, how))
    captures = bool(config.values.get("observability_enabled"))
    executor: Executor = HereExecutor(
        cell.calls, cell.signals, explain=cell.explain, captures=captures, tokens=options.tokens_of(instances)
    )
    if workers:
        known = [
            replace(instance, url=cell.addresses[instance.name].url) if instance.name in cell.addresses else instance
            for instance in instances
        ]
        pool = WorkerPool(workers, known, options, on_death=on_worker_death, captures=captures)
        executor = await stack.enter_async_context(pool)
    timeout_s = float(config.values.get("model_endpoint_readiness_timeout_seconds", _ENDPOINT_TIMEOUT_S))
    await wait_for_endpoints(cell.http, instances, timeout_s, say)
    return executor, cell
