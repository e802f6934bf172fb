"""The collection loop: admit rows, attempt them, persist each outcome once, tell what happens."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import orjson

from gymnast.rollouts.attempt import Failed, Scored, attempt, failure_record
from gymnast.rollouts.tally import Tally
from gymnast.store.append import AppendLog
from gymnast.store.lines import numbered_lines
from gymnast.types.events import Event, RolloutFailed, RolloutScored, RunFinished, RunStarted
from gymnast.types.failure import kind_named
from gymnast.types.task import NO_PERSIST, agent_name_of, key_of

if TYPE_CHECKING:
    from gymnast.rollouts.plan import PlanSummary
    from gymnast.store.paths import RunPaths
    from gymnast.types.json import JsonObject
    from gymnast.wire.calls import Calls

DEFAULT_CONCURRENCY: Final = 256
DEFAULT_ROLLOUT_TIMEOUT_S: Final = 7200.0

Listen = Callable[[Event], None]


@dataclass(frozen=True, slots=True)
class CollectOptions:
    """How a plan is run."""

    concurrency: int = DEFAULT_CONCURRENCY
    rollout_timeout_s: float = DEFAULT_ROLLOUT_TIMEOUT_S


async def collect(
    paths: RunPaths, plan: PlanSummary, calls: Calls, options: CollectOptions, listen: Listen
) -> RunFinished:
    """Run every materialized row once. Each ends as a scored record or a failure record."""
    started = time.perf_counter()
    listen(RunStarted(plan.rollouts, plan.tasks, str(paths.output), time.time()))
    async with AppendLog(paths.output) as scored, AppendLog(paths.failures) as failures:
        run = _Run(calls, options, scored, failures, listen)
        async with asyncio.TaskGroup() as group:
            for _, line in numbered_lines(paths.materialized_inputs):
                await run.slots.acquire()
                group.create_task(run.one(line))
    finished = RunFinished(
        requested=plan.rollouts,
        scored=run.tally.scored,
        failed=dict(run.tally.failed),
        seconds=time.perf_counter() - started,
        output=str(paths.output),
    )
    listen(finished)
    return finished


class _Run:
    """The state of a running collection."""

    def __init__(
        self, calls: Calls, options: CollectOptions, scored: AppendLog, failures: AppendLog, listen: Listen
    ) -> None:
        self.slots = asyncio.Semaphore(options.concurrency)
        self.tally = Tally()
        self._calls = calls
        self._timeout_s = options.rollout_timeout_s
        self._scored = scored
        self._failures = failures
        self._listen = listen

    async def one(self, line: bytes) -> None:
        """Attempt one row and persist what became of it."""
        try:
            row = orjson.loads(line)
            outcome = await attempt(self._calls, row, self._timeout_s)
            if isinstance(outcome, Scored):
                self._keep_scored(row, outcome)
            else:
                self._keep_failed(row, outcome)
        finally:
            self.slots.release()

    def _keep_scored(self, row: JsonObject, outcome: Scored) -> None:
        if not outcome.record.get(NO_PERSIST):
            self._scored.append(orjson.dumps(outcome.record))
        key = key_of(row)
        assert key is not None
        usage = (outcome.record.get("response") or {}).get("usage") or {}
        self._tell(
            RolloutScored(
                key.task,
                key.rollout,
                agent_name_of(row) or "",
                outcome.reward,
                outcome.seconds,
                usage.get("input_tokens"),
                usage.get("output_tokens"),
            )
        )

    def _keep_failed(self, row: JsonObject, outcome: Failed) -> None:
        detail = outcome.detail
        kind = kind_named(detail.kind)
        record = failure_record(row, outcome, retryable=kind.retryable, layer=kind.layer.value)
        self._failures.append(orjson.dumps(record))
        key = key_of(row)
        assert key is not None
        agent = agent_name_of(row) or ""
        self._tell(
            RolloutFailed(
                key.task,
                key.rollout,
                agent,
                detail.kind,
                kind.layer.value,
                detail.stage.value,
                detail.message,
                outcome.seconds,
            )
        )

    def _tell(self, event: Event) -> None:
        self.tally.take(event)
        self._listen(event)
