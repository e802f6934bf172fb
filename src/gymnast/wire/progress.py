"""The current stage of an attempt and its usage so far. Written by calls, read by status displays and records."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from gymnast.types.failure import Stage
from gymnast.types.usage import UsageCounter

if TYPE_CHECKING:
    from collections.abc import Callable

    from gymnast.wire.spans import SpanRecorder


PROGRESS_KEY: Final = "gymnast.progress"
"""The key of an ASGI scope that holds its request's progress."""


class AttemptProgress:
    """The current stage, instance and usage of one attempt."""

    __slots__ = ("captures", "end_wait", "endpoint", "instance", "since", "spans", "stage", "usage_counter")

    def __init__(self, *, captures: bool = False) -> None:
        """With `captures`, model calls are also listed one by one."""
        self.stage = Stage.PLAN
        self.instance = ""
        self.endpoint = ""
        """The URL a model server is calling now."""
        self.since = time.monotonic()
        self.usage_counter: UsageCounter | None = None
        """The usage of model calls; None until the first one."""
        self.captures = captures
        self.end_wait: Callable[[], None] | None = None
        """Set while the attempt only waits for other rollouts of the run: to be called once none can come."""
        self.spans: SpanRecorder | None = None
        """Records its calls, if the rollout is traced."""

    def enter(self, stage: Stage, instance: str) -> tuple[Stage, str]:
        """Enter a stage. Pass the return value to `leave`."""
        before = (self.stage, self.instance)
        self.stage, self.instance, self.endpoint, self.since = stage, instance, "", time.monotonic()
        return before

    def ensure_usage_counter(self) -> UsageCounter:
        """The usage counter, created on the first model call."""
        if self.usage_counter is None:
            self.usage_counter = UsageCounter(captures=self.captures)
        return self.usage_counter

    def leave(self, before: tuple[Stage, str]) -> None:
        """Return to the stage before `enter`."""
        self.stage, self.instance = before
        self.endpoint = ""
        self.since = time.monotonic()


_OUTAGE_EXPIRES_S: Final = 40.0
"""Longer than the longest pause between two tries of a call: an endpoint that is not called is not known to be down."""


@dataclass(slots=True)
class Outage:
    """No endpoint of a model server can be reached."""

    since: float
    last: float
    """When the last call failed."""
    message: str


class Signals:
    """Counts model calls, retried ones and those that endpoints rejected, and notifies listeners of rejections.

    Knows which model servers reach none of their endpoints, and since when.
    """

    __slots__ = ("_outages", "listeners", "model_calls", "rejections", "retried_calls")

    def __init__(self) -> None:
        self.model_calls = 0
        self.rejections = 0
        self.retried_calls: Counter[str] = Counter()
        """Failed calls that are repeated, by kind of failure."""
        self.listeners: list[Callable[[float], None]] = []
        """Called with the latency of each rejection."""
        self._outages: dict[str, Outage] = {}

    def record_outage(self, server: str, message: str, now: float) -> None:
        """A call of a model server reached none of its endpoints."""
        outage = self._outages.get(server)
        if outage is None or now - outage.last > _OUTAGE_EXPIRES_S:
            self._outages[server] = Outage(now, now, message)
        else:
            outage.last, outage.message = now, message

    def record_answer(self, server: str) -> None:
        """An endpoint of a model server answered, even with an error."""
        if self._outages:
            self._outages.pop(server, None)

    def longest_outage(self, now: float) -> tuple[float, str] | None:
        """How long a model server has reached none of its endpoints, and what its last call failed with."""
        current = [outage for outage in self._outages.values() if now - outage.last <= _OUTAGE_EXPIRES_S]
        first = min(current, key=lambda outage: outage.since, default=None)
        return (now - first.since, first.message) if first is not None else None

    def record_call(self) -> None:
        self.model_calls += 1

    def record_retry(self, kind: str) -> None:
        self.retried_calls[kind] += 1

    def record_rejection(self, latency_s: float) -> None:
        self.rejections += 1
        for listener in self.listeners:
            listener(latency_s)
