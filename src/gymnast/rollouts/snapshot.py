"""The state of a running collection: what `gymnast status RUN`, the live view and the metrics endpoint show."""

from __future__ import annotations

import time
from collections import Counter
from typing import TYPE_CHECKING

import msgspec

from gymnast.rollouts.tally import overall_stats, stats_of
from gymnast.types.totals import AgentStats
from gymnast.types.usage import ModelUsage

if TYPE_CHECKING:
    from gymnast.rollouts.engine import Engine
    from gymnast.store.manifest import Counts
    from gymnast.wire.progress import Signals

_MAX_OLDEST = 10


class InFlight(msgspec.Struct, frozen=True):
    """An attempt that is running."""

    key: str
    agent: str
    attempt: int
    stage: str
    instance: str
    seconds: float
    """Since the attempt started."""
    in_stage_s: float
    endpoint: str = ""
    """The URL that a model server is calling for it now."""


class Snapshot(msgspec.Struct, frozen=True):
    """The state of a collection at one moment."""

    run: str
    state: str
    requested: int
    scored: int
    failed: dict[str, int]
    owed: int
    in_flight: int
    waiting_retries: int
    stages: dict[str, int]
    limit: int
    per_second: float
    """Settled rollouts per second, recently."""
    eta_s: float | None
    """None if unknown, e.g. while the run is paused or waits for something that is down."""
    agents: dict[str, AgentStats]
    """Of the whole run."""
    retried: dict[str, int]
    oldest: list[InFlight]
    out_of_reach_s: dict[str, float]
    """Agents that wait for something that is down, and how long it has been down."""
    given_up: dict[str, str]
    loop_lag_s: float
    longest_lag_s: float
    model_calls: int
    rejections: int
    seconds: float
    spent: ModelUsage = ModelUsage()
    """What the model calls of all finished attempts used."""
    settled_before: int = 0
    """Rollouts that earlier invocations settled."""
    this_invocation: AgentStats | None = None
    """The statistics of this invocation alone, over all agents."""
    longest_scored_s: float = 0.0
    """The longest attempt of this invocation that ended with a reward."""
    since_settled_s: float | None = None
    """Since a rollout was last settled; None if none was in this invocation."""
    shortest_wait_s: float | None = None
    """How long the attempt in flight that moved last has been in its stage; None if nothing is in flight."""
    retried_calls: dict[str, int] = {}
    """Failed model calls that the model server repeated, by kind of failure. They are in no record."""
    is_held: bool = False
    """Whether it waits for a slow consumer of its records."""


def make_snapshot(engine: Engine, started: float, signals: Signals) -> Snapshot:
    """The current state of an engine."""
    now = time.monotonic()
    counts, totals = engine.store.counts(), engine.store.totals()
    items = sorted(engine.in_flight.values(), key=lambda item: item.started)
    return Snapshot(
        run=engine.store.name,
        state="draining" if engine.drain_reason else "paused" if engine.is_paused else "running",
        requested=counts.requested,
        scored=counts.scored,
        failed=counts.failed,
        owed=counts.owed,
        in_flight=len(items),
        waiting_retries=engine.waiting_retries(),
        stages=dict(Counter(item.progress.stage.value for item in items)),
        limit=engine.limit.current,
        per_second=engine.pace.per_second(now),
        eta_s=_remaining_s(engine, counts, now),
        agents=stats_of(totals),
        retried=dict(sum((Counter(agent.retried) for agent in totals.values()), Counter())),
        oldest=[
            InFlight(
                str(item.key),
                item.agent,
                item.attempts,
                item.progress.stage.value,
                item.progress.instance,
                now - item.started,
                now - item.progress.since,
                item.progress.endpoint,
            )
            for item in items[:_MAX_OLDEST]
        ],
        out_of_reach_s=engine.circuit_breaker.open_for_s(now),
        given_up=engine.circuit_breaker.reasons(),
        loop_lag_s=engine.loop_lag_s,
        longest_lag_s=engine.longest_lag_s,
        model_calls=signals.model_calls,
        rejections=signals.rejections,
        seconds=now - started,
        spent=engine.store.spent.usage(),
        settled_before=counts.requested - counts.owed - engine.tally.done,
        this_invocation=overall_stats(engine.tally.totals()),
        longest_scored_s=engine.pace.longest_scored_s,
        since_settled_s=engine.pace.since_settled_s(now),
        shortest_wait_s=min((now - item.progress.since for item in items), default=None),
        retried_calls=dict(signals.retried_calls),
        is_held=engine.is_held,
    )


def _remaining_s(engine: Engine, counts: Counts, now: float) -> float | None:
    """Estimated seconds until the engine ends, or None if that depends on something else."""
    if engine.is_paused or engine.is_held or engine.circuit_breaker.open_for_s(now):
        return None
    ages = [now - item.started for item in engine.in_flight.values()]
    unstarted = 0 if engine.drain_reason else max(0, counts.owed - len(ages))
    return engine.pace.remaining_s(ages, unstarted, engine.limit.current)
