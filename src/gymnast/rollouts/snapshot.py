"""A running collection at one moment: what `gymnast status RUN`, the live view and the metrics endpoint show."""

from __future__ import annotations

import time
from collections import Counter
from typing import TYPE_CHECKING

import msgspec

from gymnast.types.usage import ModelUsage

if TYPE_CHECKING:
    from gymnast.rollouts.engine import Engine

_OLDEST = 10


class InFlight(msgspec.Struct, frozen=True):
    """An attempt that is running."""

    key: str
    agent: str
    attempt: int
    stage: str
    instance: str
    seconds: float
    """Since the attempt began."""
    in_stage_s: float


class AgentNumbers(msgspec.Struct, frozen=True):
    """One agent's rollouts, of this invocation."""

    scored: int
    mean_reward: float | None
    failed: int
    retried: int


class Snapshot(msgspec.Struct, frozen=True):
    """How a collection stands."""

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
    agents: dict[str, AgentNumbers]
    retried: dict[str, int]
    oldest: list[InFlight]
    out_of_reach_s: dict[str, float]
    """Agents that wait for something that is down, and for how long it has been."""
    given_up: dict[str, str]
    loop_lag_s: float
    longest_lag_s: float
    model_calls: int
    rejections: int
    seconds: float
    spent: ModelUsage = ModelUsage()
    """What the model calls of all attempts that ended used."""


def snapshot(engine: Engine, began: float, *, model_calls: int, rejections: int) -> Snapshot:
    """What the engine is doing right now."""
    now = time.monotonic()
    counts, tally = engine.book.counts(), engine.tally
    elapsed = max(now - began, 1e-9)
    rate = tally.done / elapsed
    jobs = sorted(engine.in_flight.values(), key=lambda job: job.started)
    return Snapshot(
        run=engine.book.name,
        state="draining" if engine.draining else "paused" if engine.paused else "running",
        requested=counts.requested,
        scored=counts.scored,
        failed=counts.failed,
        owed=counts.owed,
        in_flight=len(jobs),
        waiting_retries=engine.waiting_retries(),
        stages=dict(Counter(job.trail.stage.value for job in jobs)),
        limit=engine.limit.current,
        per_second=rate,
        eta_s=counts.owed / rate if rate > 0 else None,
        agents={
            name: AgentNumbers(agent.scored, agent.mean_reward, agent.failed.total(), agent.retried.total())
            for name, agent in sorted(tally.agents.items())
        },
        retried=dict(sum((agent.retried for agent in tally.agents.values()), Counter())),
        oldest=[
            InFlight(
                str(job.key),
                job.agent,
                job.attempts,
                job.trail.stage.value,
                job.trail.instance,
                now - job.started,
                now - job.trail.since,
            )
            for job in jobs[:_OLDEST]
        ],
        out_of_reach_s=engine.prospects.paused(now),
        given_up=engine.prospects.reasons(),
        loop_lag_s=engine.loop_lag_s,
        longest_lag_s=engine.longest_lag_s,
        model_calls=model_calls,
        rejections=rejections,
        seconds=elapsed,
        spent=engine.book.spent.usage(),
    )
