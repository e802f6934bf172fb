"""Scoring stored rollouts again, without inference: each stored response goes to its environment's verifier.

The outcome is a run like any other, under a name of its own; the run it was made from is only read. The exception is
asked for by name: rollouts whose judge had failed can be added to the run they belong to.
"""

from __future__ import annotations

import time
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import orjson

from gymnast.errors import CallError, UserError
from gymnast.kit.verify_call import checked_verdict
from gymnast.rollouts.attempt import Outcome, ended_by, outcome_of
from gymnast.rollouts.reverify_plan import JUDGE_FAILED, appends, environment_of, prepared_reverify
from gymnast.rollouts.run import run_prepared
from gymnast.rollouts.servers import Servers, reachable
from gymnast.runtime.cell import Cell, options_from
from gymnast.store.lines import numbered_lines
from gymnast.types.failure import Stage
from gymnast.types.task import ATTEMPT_INDEX, FAILURE_CLASS, agent_name_of, correlation_id
from gymnast.types.tokens import LEDGER
from gymnast.wire.calls import Scope
from gymnast.wire.trail import Signals

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from gymnast.config import Config, Environ
    from gymnast.rollouts.executor import Job
    from gymnast.rollouts.observer import RunObserver
    from gymnast.rollouts.options import RunOptions
    from gymnast.rollouts.reverify_plan import ReverifySource
    from gymnast.rollouts.stored import StoredResponses
    from gymnast.types.events import RunFinished
    from gymnast.wire.calls import Calls


async def reverify(
    source: ReverifySource, options: RunOptions, config: Config, environ: Environ, observer: RunObserver
) -> RunFinished:
    """Score stored rollouts again. Everything that is started for it is stopped."""
    agents = _agents_of(source.inputs)
    environments = {name: environment_of(config, name) for name in agents}
    instances = reachable(config, environments.values())
    async with AsyncExitStack() as stack:
        cell = Cell(instances, options_from(config, environ, log_dir=options.paths.logs))
        await stack.enter_async_context(cell)
        if not source.judge_failed_only:
            doubtful = await _doubtful(cell.calls, sorted(set(environments.values())))
            options = _marked(source, options, doubtful, observer)
        stored = stack.enter_context(source.responses())
        prepared = stack.enter_context(prepared_reverify(source, options, stored, agents, instances))
        retried = {JUDGE_FAILED} if appends(source, options) else False
        options = replace(options, retry_failed=retried, only=stored)
        servers = Servers(VerifyExecutor(cell.calls, stored, environments), cell.calls, list(agents), [])
        return await run_prepared(prepared, servers, options, observer, verifiers=environments)


class VerifyExecutor:
    """Attempts that only verify: the response is there already."""

    def __init__(self, calls: Calls, stored: StoredResponses, environments: Mapping[str, str]) -> None:
        self.signals = Signals()
        self.longest_lag_s = 0.0
        self._calls = calls
        self._stored = stored
        self._environments = environments

    async def attempt(self, job: Job, timeout_s: float) -> Outcome:
        row = orjson.loads(job.line)
        if job.attempts:
            row[ATTEMPT_INDEX] = job.attempts
        stored = self._stored.record(job.key)
        body = {**row, "response": stored["response"]}
        environment = self._environments[job.agent]
        scope = Scope(correlation_id(row), job.trail)
        started_at, started = time.time(), time.perf_counter()
        try:
            found: Any = await self._calls.expect(
                environment, "/verify", body, scope, stage=Stage.VERIFY, timeout_s=timeout_s
            )
            if not (isinstance(found, dict) and found.get(FAILURE_CLASS) is not None):
                checked_verdict(found, environment)
        except CallError as error:
            return ended_by(error, time.perf_counter() - started, started_at, job.trail)
        if LEDGER in stored:
            found[LEDGER] = stored[LEDGER]  # the same response, so the same tokens
        return outcome_of(found, row, environment, time.perf_counter() - started, started_at, job.trail)


def _agents_of(inputs: Path) -> dict[str, int]:
    """How many rows each agent has."""
    found: dict[str, int] = {}
    for _, line in numbered_lines(inputs):
        name = agent_name_of(orjson.loads(line)) or ""
        found[name] = found.get(name, 0) + 1
    return found


async def _doubtful(calls: Calls, environments: Iterable[str]) -> dict[str, str]:
    """Environments that do not say that scoring a stored response is as good as scoring a fresh one."""
    found: dict[str, str] = {}
    for name in environments:
        reply = await calls.call(name, "/reverify_mode", method="GET", stage=Stage.VERIFY, timeout_s=30.0)
        mode = reply.body if reply.ok else "unsupported"
        if mode != "stateless":
            found[name] = str(mode)
    return found


def _marked(
    source: ReverifySource, options: RunOptions, doubtful: Mapping[str, str], observer: RunObserver
) -> RunOptions:
    """Refuse doubtful environments, or mark what comes of them by its name."""
    if not doubtful:
        return options
    said = ", ".join(f"{name} ({mode})" for name, mode in doubtful.items())
    if not source.force:
        raise UserError(
            f"stored rollouts cannot be scored again safely by {said}",
            where="GET /reverify_mode, which must say stateless",
            next="--force does it anyway; the files are then named unsafe_…",
        )
    output = options.paths.output
    marked = output.with_name(f"unsafe_{output.name}")
    observer.say(f"warning: {said} may score stored rollouts otherwise than fresh ones; writing {marked}")
    return replace(options, output=marked)
