"""Traces a share of the rollouts: wraps an attempt runner, and gives each finished attempt's spans to an exporter."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any

from gymnast.rollouts.attempt import Outcome, Scored
from gymnast.types.failure import bounded
from gymnast.types.span import AttemptSpans, Span, TraceIds
from gymnast.wire.spans import SpanRecorder

if TYPE_CHECKING:
    from gymnast.rollouts.runner import AttemptRunner, WorkItem
    from gymnast.types.span import Attribute
    from gymnast.wire.progress import Signals

Export = Callable[[AttemptSpans], None]
_MAX_TEXT = 300


class Tracer:
    """Which rollouts are traced, and where their spans go."""

    def __init__(self, share: float, export: Export) -> None:
        """`share`: of the rollouts; which ones depends on their ids alone, so that all attempts at one are traced."""
        self._share = share
        self._export = export

    def wrap(self, runner: AttemptRunner, run_id: str) -> TracedRunner:
        """A runner for the rollouts of this run."""
        return TracedRunner(runner, run_id, self._share, self._export)


class TracedRunner:
    """An attempt runner that records the attempts of sampled rollouts."""

    def __init__(self, runner: AttemptRunner, run_id: str, share: float, export: Export) -> None:
        self.signals: Signals = runner.signals
        self._runner = runner
        self._run_id = run_id
        self._ids = TraceIds(run_id, share)
        self._export = export

    @property
    def longest_lag_s(self) -> float:
        return self._runner.longest_lag_s

    def attempt(self, item: WorkItem, timeout_s: float) -> Coroutine[Any, Any, Outcome]:
        trace_id = self._ids.sampled_id(item.key)
        if trace_id is None:
            return self._runner.attempt(item, timeout_s)
        return self._trace(trace_id, item, timeout_s)

    async def _trace(self, trace_id: str, item: WorkItem, timeout_s: float) -> Outcome:
        recorder = SpanRecorder(trace_id, secrets.token_hex(8))
        item.progress.spans = recorder
        start_ns = recorder.now_ns()
        outcome: Outcome | None = None
        error = "abandoned"
        try:
            outcome = await self._runner.attempt(item, timeout_s)
            return outcome
        except asyncio.CancelledError:
            error = "cancelled"
            raise
        finally:
            root = self._make_root(recorder, item, outcome, start_ns, error)
            self._export(AttemptSpans(trace_id, [root, *recorder.spans]))

    def _make_root(
        self, recorder: SpanRecorder, item: WorkItem, outcome: Outcome | None, start_ns: int, error: str | None
    ) -> Span:
        attributes: dict[str, Attribute] = {
            "gen_ai.operation.name": "invoke_agent",
            "gen_ai.agent.name": item.agent,
            "gymnast.run_id": self._run_id,
            "gymnast.task": item.key.task,
            "gymnast.rollout": item.key.rollout,
            "gymnast.attempt": item.index,
        }
        if recorder.dropped:
            attributes["gymnast.dropped_spans"] = recorder.dropped
        if isinstance(outcome, Scored):
            error = None
            attributes["gymnast.reward"] = outcome.reward
            if outcome.truncated is not None:
                attributes["gymnast.truncated"] = outcome.truncated.value
        elif outcome is not None:
            error = bounded(outcome.detail.message, _MAX_TEXT)
            attributes |= {"error.type": outcome.detail.kind.value, "gymnast.stage": outcome.detail.stage.value}
        else:
            attributes["error.type"] = error or "unknown"
        if outcome is not None and outcome.usage is not None:
            attributes["gen_ai.usage.input_tokens"] = outcome.usage.input_tokens
            attributes["gen_ai.usage.output_tokens"] = outcome.usage.output_tokens
        return Span(
            recorder.root_id,
            "",
            f"invoke_agent {item.agent}".strip(),
            start_ns,
            recorder.now_ns(),
            attributes=attributes,
            error=error,
        )
