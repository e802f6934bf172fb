"""Running totals of rollouts, per agent: of a whole run, of one invocation of it, or of a chunk."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from gymnast.types.failure import FailureKind
from gymnast.types.totals import AgentStats, AgentTotals

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from gymnast.types.totals import RolloutFacts


@dataclass(slots=True)
class _AgentTally:
    scored: int = 0
    masked: int = 0
    truncated: int = 0
    reward: float = 0.0
    metered: int = 0
    output_tokens: int = 0
    timed: int = 0
    seconds: float = 0.0
    failed: Counter[str] = field(default_factory=Counter)
    failures: Counter[str] = field(default_factory=Counter)
    """All failed attempts, by kind."""

    def add_scored(self, facts: RolloutFacts) -> None:
        self.scored += 1
        self.truncated += facts.truncated is not None
        if facts.masked:
            self.masked += 1
        else:
            self.reward += facts.reward
        if facts.output_tokens is not None:
            self.metered += 1
            self.output_tokens += facts.output_tokens
        if facts.seconds is not None:
            self.timed += 1
            self.seconds += facts.seconds

    def merge(self, more: AgentTotals) -> None:
        self.scored += more.scored
        self.masked += more.masked
        self.truncated += more.truncated
        self.reward += more.reward
        self.metered += more.metered
        self.output_tokens += more.output_tokens
        self.timed += more.timed
        self.seconds += more.seconds
        self.failed.update(more.failed)
        self.failures.update(more.failed)
        self.failures.update(more.retried)

    def totals(self) -> AgentTotals:
        return AgentTotals(
            scored=self.scored,
            masked=self.masked,
            truncated=self.truncated,
            reward=self.reward,
            metered=self.metered,
            output_tokens=self.output_tokens,
            timed=self.timed,
            seconds=self.seconds,
            failed=dict(+self.failed),
            retried=dict(self.failures - self.failed),
        )


class Tally:
    """All agents' rollouts."""

    def __init__(self, totals: Mapping[str, AgentTotals] | None = None) -> None:
        """`totals`: what to start from."""
        self._agents: defaultdict[str, _AgentTally] = defaultdict(_AgentTally)
        self.merge(totals or {})

    def add_scored(self, facts: RolloutFacts) -> None:
        self._agents[facts.agent].add_scored(facts)

    def add_failure(self, agent: str, kind: str) -> None:
        """Count a failed attempt. Input rows that cannot be run are never attempted."""
        if kind != FailureKind.BAD_ROW:
            self._agents[agent].failures[kind] += 1

    def fail(self, agent: str, kind: str) -> None:
        """Count a rollout as permanently failed. Its attempts are counted by `add_failure`."""
        self._agents[agent].failed[kind] += 1

    def unfail(self, agent: str, kind: str) -> None:
        """A permanently failed rollout is owed again."""
        self._agents[agent].failed[kind] -= 1

    def set_durations(self, totals: Mapping[str, AgentTotals]) -> None:
        """Use the durations of earlier totals of the same rollouts, which records do not contain."""
        for name, known in totals.items():
            if known.timed and (agent := self._agents.get(name)) is not None:
                agent.timed, agent.seconds = known.timed, known.seconds

    def merge(self, totals: Mapping[str, AgentTotals]) -> None:
        """Add totals that were counted elsewhere."""
        for name, more in totals.items():
            self._agents[name].merge(more)

    def totals(self) -> dict[str, AgentTotals]:
        """The totals of every agent, sorted by name."""
        return {name: agent.totals() for name, agent in sorted(self._agents.items())}

    @property
    def scored(self) -> int:
        return sum(agent.scored for agent in self._agents.values())

    @property
    def done(self) -> int:
        """Rollouts that are scored or have permanently failed."""
        return self.scored + sum(agent.failed.total() for agent in self._agents.values())


def sum_totals(parts: Iterable[Mapping[str, AgentTotals]]) -> dict[str, AgentTotals]:
    """The totals of several parts of a run."""
    tally = Tally()
    for part in parts:
        tally.merge(part)
    return tally.totals()


def stats_of(totals: Mapping[str, AgentTotals]) -> dict[str, AgentStats]:
    return {name: agent.stats() for name, agent in totals.items()}


def overall_stats(totals: Mapping[str, AgentTotals]) -> AgentStats:
    """The statistics over all agents."""
    return sum_totals({"": agent} for agent in totals.values()).get("", AgentTotals()).stats()
