"""Scores stored rollouts again without inference: each stored response goes to its environment's verifier.

The result is a run like any other, under its own name; the original run is only read. One exception: rollouts whose
judge failed can be added to the run they belong to.
"""

from __future__ import annotations

import time
from collections import Counter
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import orjson

from gymnast.errors import CallError, UserError
from gymnast.kit.agent_calls import check_verdict
from gymnast.rollouts.attempt import Outcome, failed_attempt, make_outcome
from gymnast.rollouts.reverify_plan import JUDGE_FAILED, appends, environment_of, prepare_reverify
from gymnast.rollouts.run import run_prepared
from gymnast.rollouts.servers import Servers, reachable_instances
from gymnast.runtime.cell import Cell, make_cell_options
from gymnast.store.lines import numbered_lines
from gymnast.types.failure import Stage
from gymnast.types.task import ATTEMPT_INDEX, FAILURE_CLASS, MASK, agent_name_of, correlation_id
from gymnast.types.tokens import LEDGER
from gymnast.wire.calls import Scope
from gymnast.wire.progress import Signals

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from gymnast.config import Config, Environ
    from gymnast.rollouts.observer import RunObserver
    from gymnast.rollouts.options import RunOptions
    from gymnast.rollouts.reverify_plan import ReverifySource, StoredResponses
    from gymnast.rollouts.runner import WorkItem
    from gymnast.types.events import RunFinished
    from gymnast.wire.calls import Calls


async def reverify(
    source: ReverifySource, options: RunOptions, config: Config, environ: Environ, observer: RunObserver
) -> RunFinished:
    """Score stored rollouts again. Everything started for it is stopped."""
    agents = _count_agents(source.inputs)
    environments = {name: environment_of(config, name) for name in agents}
    instances = reachable_instances(config, environments.values())
    async with AsyncExitStack() as stack:
        cell = Cell(instances, make_cell_options(config, environ, log_dir=options.paths.logs))
        await stack.enter_async_context(cell)
        if not source.judge_failed_only:
            unsafe = await _find_unsafe(cell.calls, sorted(set(environments.values())))
            options = _mark_unsafe(source, options, unsafe, observer)
        stored = stack.enter_context(source.responses())
        prepared = stack.enter_context(prepare_reverify(source, options, stored, agents, instances))
        retry_failed = {JUDGE_FAILED} if appends(source, options) else False
        options = replace(options, retry_failed=retry_failed, only=stored)
        servers = Servers(VerifyRunner(cell.calls, stored, environments), cell.calls, list(agents), [])
        return await run_prepared(prepared, servers, options, observer, verifiers=environments)


class VerifyRunner:
    """Runs attempts that only verify a stored response."""

    def __init__(self, calls: Calls, stored: StoredResponses, environments: Mapping[str, str]) -> None:
        self.signals = Signals()
        self.longest_lag_s = 0.0
        self._calls = calls
        self._stored = stored
        self._environments = environments

    async def attempt(self, item: WorkItem, timeout_s: float) -> Outcome:
        row = orjson.loads(item.line)
        if item.index:
            row[ATTEMPT_INDEX] = item.index
        stored = self._stored.record(item.key)
        body = {**row, "response": stored["response"]}
        environment = self._environments[item.agent]
        scope = Scope(correlation_id(row), item.progress)
        started_at, started = time.time(), time.perf_counter()
        try:
            verdict: Any = await self._calls.expect(
                environment, "/verify", body, scope, stage=Stage.VERIFY, timeout_s=timeout_s
            )
            if not (isinstance(verdict, dict) and verdict.get(FAILURE_CLASS) is not None):
                check_verdict(verdict, environment)
        except CallError as error:
            return failed_attempt(error.detail, time.perf_counter() - started, started_at, item.progress)
        if LEDGER in stored:
            verdict[LEDGER] = stored[LEDGER]  # the same response, so the same tokens
        if stored.get(MASK) is True:
            verdict.setdefault(MASK, True)
        return make_outcome(verdict, row, environment, time.perf_counter() - started, started_at, item.progress)


def _count_agents(inputs: Path) -> dict[str, int]:
    """The number of rows of each agent."""
    return dict(Counter(agent_name_of(orjson.loads(line)) or "" for _, line in numbered_lines(inputs)))


async def _find_unsafe(calls: Calls, environments: Iterable[str]) -> dict[str, str]:
    """Environments that do not declare that a stored response scores the same as a fresh one, with their mode."""
    unsafe: dict[str, str] = {}
    for name in environments:
        reply = await calls.call(name, "/reverify_mode", method="GET", stage=Stage.VERIFY, timeout_s=30.0)
        mode = reply.body if reply.ok else "unsupported"
        if mode != "stateless":
            unsafe[name] = str(mode)
    return unsafe


def _mark_unsafe(
    source: ReverifySource, options: RunOptions, unsafe: Mapping[str, str], observer: RunObserver
) -> RunOptions:
    """Refuse unsafe environments, or with `force` mark the output by its name."""
    if not unsafe:
        return options
    listed = ", ".join(f"{name} ({mode})" for name, mode in unsafe.items())
    if not source.force:
        raise UserError(
            f"stored rollouts cannot be scored again safely by {listed}",
            where="GET /reverify_mode, which must return stateless",
            next="--force scores them anyway and names the files unsafe_…",
        )
    output = options.paths.output
    marked = output.with_name(f"unsafe_{output.name}")
    observer.say(f"warning: {listed} may score stored rollouts differently from fresh ones; writing {marked}")
    return replace(options, output=marked)
