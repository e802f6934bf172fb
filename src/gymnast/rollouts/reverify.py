"""Scoring stored rollouts again, without inference: each stored response goes to its environment's verifier.

The outcome is a run like any other, under a name of its own; the run it was made from is only read. The exception is
asked for by name: rollouts whose judge had failed can be added to the run they belong to.
"""

from __future__ import annotations

import time
from contextlib import AsyncExitStack, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import orjson

from gymnast.errors import CallError, UserError
from gymnast.kit.verify_call import checked_verdict
from gymnast.rollouts.aggregate import write_aggregate_metrics
from gymnast.rollouts.attempt import Outcome, ended_by, outcome_of
from gymnast.rollouts.conduct import Conduct, conduct
from gymnast.rollouts.limits import host_cap
from gymnast.rollouts.reverify_plan import JUDGE_FAILED, environment_of, prepared_reverify
from gymnast.rollouts.run import reachable
from gymnast.runtime.cell import Cell, options_from
from gymnast.store.lines import numbered_lines
from gymnast.store.paths import RunPaths
from gymnast.types.failure import Stage
from gymnast.types.task import ATTEMPT_INDEX, FAILURE_CLASS, agent_name_of, correlation_id
from gymnast.types.tokens import LEDGER
from gymnast.wire.calls import Scope
from gymnast.wire.trail import Signals

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from gymnast.config import Config, Environ
    from gymnast.rollouts.conduct import Audience
    from gymnast.rollouts.executor import Job
    from gymnast.rollouts.reverify_plan import ReverifyRequest
    from gymnast.rollouts.stored import StoredResponses
    from gymnast.types.events import RunFinished
    from gymnast.wire.calls import Calls


async def reverify(request: ReverifyRequest, config: Config, environ: Environ, audience: Audience) -> RunFinished:
    """Score stored rollouts again. Everything that is started for it is stopped."""
    agents = _agents_of(request.inputs)
    environments = {name: environment_of(config, name) for name in agents}
    instances = reachable(config, environments.values())
    log_dir = RunPaths(request.output or request.rollouts).logs
    async with AsyncExitStack() as stack:
        cell = Cell(instances, options_from(config, environ, log_dir=log_dir))
        await stack.enter_async_context(cell)
        if not request.judge_failed_only:
            request = _named(request, await _doubtful(cell.calls, sorted(set(environments.values()))), audience)
        stored = stack.enter_context(request.stored())
        prepared = stack.enter_context(prepared_reverify(request, stored, agents, instances))

        async def aggregate(finished: RunFinished) -> None:
            if request.aggregate and finished.scored:
                with suppress(OSError):
                    await write_aggregate_metrics(prepared.paths, environments, instances, cell.calls)

        how = Conduct(
            replace(request.engine, cap=host_cap()),
            retry_failed={JUDGE_FAILED} if request.output is None else False,
            only=stored,
            after=aggregate,
        )
        return await conduct(prepared, VerifyExecutor(cell.calls, stored, environments), how, audience)


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


def _named(request: ReverifyRequest, doubtful: Mapping[str, str], audience: Audience) -> ReverifyRequest:
    """Refuse doubtful environments, or mark what comes of them by its name."""
    if not doubtful:
        return request
    said = ", ".join(f"{name} ({mode})" for name, mode in doubtful.items())
    if not request.force or request.output is None:
        raise UserError(
            f"stored rollouts cannot be scored again safely by {said}",
            where="GET /reverify_mode, which must say stateless",
            next="--force does it anyway; the files are then named unsafe_…",
        )
    marked = request.output.with_name(f"unsafe_{request.output.name}")
    audience.say(f"warning: {said} may score stored rollouts otherwise than fresh ones; writing {marked}")
    return replace(request, output=marked)
