"""Attempt runners: `LocalRunner` runs attempts in this process, `worker_pool.WorkerPool` in others."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

import msgspec

from gymnast.rollouts.attempt import Failed, Outcome, attempt
from gymnast.types.tokens import NO_TOKENS, RecordedTokens
from gymnast.wire.in_flight import coroutine_frames
from gymnast.wire.progress import AttemptProgress, Signals

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Sequence

    from gymnast.types.failure import FailureDetail
    from gymnast.types.json import JsonObject
    from gymnast.types.task import RolloutKey
    from gymnast.wire.calls import Calls


@dataclass(slots=True, eq=False)
class WorkItem:
    """An attempt to make at a rollout."""

    key: RolloutKey
    line: bytes
    agent: str
    attempts: int = 0
    """Failed attempts before this one that count against the limit."""
    earlier: int = 0
    """Failed attempts from before the rollout was retried on request (`--retry-failed`)."""
    progress: AttemptProgress = field(default_factory=AttemptProgress)
    started: float = 0.0
    frames: Sequence[str] = ()
    """Its stack, as reported by the worker process that runs it."""

    @property
    def index(self) -> int:
        """The number of this attempt among all at the rollout."""
        return self.earlier + self.attempts

    def describe(self, task: asyncio.Task[None] | None, now: float) -> JsonObject:
        """What the attempt waits for, for how long, and its stack: the awaits of its task, outermost first."""
        return {
            "key": str(self.key),
            "agent": self.agent,
            "stage": self.progress.stage.value,
            "instance": self.progress.instance,
            "endpoint": self.progress.endpoint,
            "seconds": now - self.started,
            "in_stage_s": now - self.progress.since,
            "frames": list(self.frames) or (coroutine_frames(task.get_coro()) if task is not None else []),
        }


class AttemptRunner(Protocol):
    """Runs attempts. The engine does not know where."""

    signals: Signals

    @property
    def longest_lag_s(self) -> float:
        """The longest time that the event loop of a worker process was blocked; 0 without workers."""
        ...

    async def attempt(self, item: WorkItem, timeout_s: float) -> Outcome:
        """Run one attempt. Never raises for a failed one."""
        ...


class LocalRunner:
    """Runs attempts in this process, by calls to instances in this process or elsewhere."""

    def __init__(
        self,
        calls: Calls,
        signals: Signals,
        *,
        explain: Callable[[FailureDetail], FailureDetail] | None = None,
        captures: bool = False,
        tokens: RecordedTokens = NO_TOKENS,
    ) -> None:
        """With `captures`, records list every model call; `tokens` says which models' tokens they hold, and how."""
        self.signals = signals
        self.longest_lag_s = 0.0
        self._calls = calls
        self._explain = explain
        self._captures = captures
        self._tokens = tokens

    async def attempt(self, item: WorkItem, timeout_s: float) -> Outcome:
        item.progress.captures = self._captures
        outcome = await attempt(self._calls, item.line, item.index, timeout_s, item.progress, tokens=self._tokens)
        if isinstance(outcome, Failed) and self._explain is not None:
            return msgspec.structs.replace(outcome, detail=self._explain(outcome.detail))
        return outcome
