"""The state of a running collection: what `gymnast status RUN`, the live view and the metrics endpoint show."""

from __future__ import annotations

import time
from collections import Counter
from typing import TYPE_CHECKING

import msgspec

from gymnast.types.usage import ModelUsage

if TYPE_CHECKING:
    from gymnast.rollouts.engine import Engine

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


class AgentStats(msgspec.Struct, frozen=True):
    """One agent's rollouts in this invocation."""

    scored: int
    mean_reward: float | None
    failed: int
    retried: int


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
    eta_s: float | None
    agents: dict[str, AgentStats]
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


def make_snapshot(engine: Engine, started: float, *, model_calls: int, rejections: int) -> Snapshot:
    """The current state of an engine."""
    now = time.monotonic()
    counts, tally = engine.store.counts(), engine.tally
    elapsed = max(now - started, 1e-9)
    rate = tally.done / elapsed
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
        per_second=rate,
        eta_s=counts.owed / rate if rate > 0 else None,
        agents={
            name: AgentStats(agent.scored, agent.mean_reward, agent.failed.total(), agent.retried.total())
            for name, agent in sorted(tally.agents.items())
        },
        retried=dict(sum((agent.retried for agent in tally.agents.values()), Counter())),
        oldest=[
            InFlight(
                str(item.key),
                item.agent,
                item.attempts,
                item.progress.stage.value,
                item.progress.instance,
                now - item.started,
                now - item.progress.since,
            )
            for item in items[:_MAX_OLDEST]
        ],
        out_of_reach_s=engine.circuit_breaker.open_for_s(now),
        given_up=engine.circuit_breaker.reasons(),
        loop_lag_s=engine.loop_lag_s,
        longest_lag_s=engine.longest_lag_s,
        model_calls=model_calls,
        rejections=rejections,
        seconds=elapsed,
        spent=engine.store.spent.usage(),
    )
