"""What tracing costs a rollout that is not sampled, in Python calls: times on a busy machine say nothing."""

from __future__ import annotations

import sys
from collections.abc import Coroutine
from types import FrameType
from typing import Any, cast

from gymnast.rollouts.attempt import Outcome
from gymnast.rollouts.runner import AttemptRunner, WorkItem
from gymnast.rollouts.traced_runner import Tracer
from gymnast.types.task import RolloutKey
from gymnast.wire.progress import Signals

ROLLOUTS = 1_000


class _Runner:
    """Runs nothing: hands out one object in place of an attempt."""

    def __init__(self) -> None:
        self.signals = cast("Signals", None)
        self.attempt_made = cast("Coroutine[Any, Any, Outcome]", object())

    def attempt(self, item: WorkItem, timeout_s: float) -> Coroutine[Any, Any, Outcome]:
        return self.attempt_made


def _calls(runner: AttemptRunner, items: list[WorkItem]) -> int:
    """How many Python functions are called to start these attempts."""
    count = 0

    def listen(_: FrameType, event: str, __: object) -> None:
        nonlocal count
        count += event == "call"

    before = sys.getprofile()
    sys.setprofile(listen)
    try:
        for item in items:
            _ = runner.attempt(item, 1.0)
    finally:
        sys.setprofile(before)
    return count


def test_a_rollout_that_is_not_sampled_costs_two_calls_and_runs_as_without_tracing() -> None:
    plain = cast("AttemptRunner", _Runner())
    traced = Tracer(0.0, lambda _: None).wrap(plain, "run")
    items = [WorkItem(RolloutKey(number, 0), b"{}", "agent") for number in range(ROLLOUTS)]
    assert _calls(cast("AttemptRunner", traced), items) - _calls(plain, items) == 2 * ROLLOUTS
    assert traced.attempt(items[0], 1.0) is cast("_Runner", plain).attempt_made
    assert all(item.progress.spans is None for item in items)
