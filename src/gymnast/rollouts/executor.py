"""Where attempts run: in this process here, in others in `rollouts.workers`. The engine sees no difference."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

import msgspec

from gymnast.rollouts.attempt import Failed, Outcome, attempt
from gymnast.types.tokens import NO_TOKENS, TokenKeeping
from gymnast.wire.trail import Signals, Trail

if TYPE_CHECKING:
    from collections.abc import Callable

    from gymnast.types.failure import FailureDetail
    from gymnast.types.task import RolloutKey
    from gymnast.wire.calls import Calls


@dataclass(slots=True, eq=False)
class Job:
    """One attempt to be made at a rollout."""

    key: RolloutKey
    line: bytes
    agent: str
    attempts: int = 0
    """Failed attempts before this one."""
    trail: Trail = field(default_factory=Trail)
    started: float = 0.0
    frames: list[str] = field(default_factory=list)
    """Where it stands in the code, as another process told."""


class Executor(Protocol):
    """Makes attempts."""

    signals: Signals
    longest_lag_s: float
    """How long the event loop of another process was blocked at most; 0 for this one's."""

    async def attempt(self, job: Job, timeout_s: float) -> Outcome:
        """Make one attempt. Never raises for a failed one."""
        ...


class HereExecutor:
    """Attempts in this process, through calls to the instances that live here or elsewhere."""

    def __init__(
        self,
        calls: Calls,
        signals: Signals,
        *,
        explain: Callable[[FailureDetail], FailureDetail] | None = None,
        captures: bool = False,
        tokens: TokenKeeping = NO_TOKENS,
    ) -> None:
        """With `captures`, records list every model call; `tokens` says whose tokens they hold, and how."""
        self.signals = signals
        self.longest_lag_s = 0.0
        self._calls = calls
        self._explain = explain
        self._captures = captures
        self._tokens = tokens

    async def attempt(self, job: Job, timeout_s: float) -> Outcome:
        job.trail.captures = self._captures
        outcome = await attempt(self._calls, job.line, job.attempts, timeout_s, job.trail, tokens=self._tokens)
        if isinstance(outcome, Failed) and self._explain is not None:
            return msgspec.structs.replace(outcome, detail=self._explain(outcome.detail))
        return outcome
