"""Running totals of a run, per agent and overall: what the progress line and the summary table show."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from gymnast.types.events import RolloutFailed, RolloutScored

if TYPE_CHECKING:
    from gymnast.types.events import Event


@dataclass(slots=True)
class AgentTally:
    """One agent's rollouts."""

    scored: int = 0
    reward: float = 0.0
    seconds: float = 0.0
    output_tokens: int = 0
    failed: Counter[str] = field(default_factory=Counter)
    """Permanently failed, by kind."""
    retried: Counter[str] = field(default_factory=Counter)
    """Failed attempts that will be retried, by kind."""

    @property
    def mean_reward(self) -> float | None:
        return self.reward / self.scored if self.scored else None


@dataclass(slots=True)
class Tally:
    """All agents' rollouts."""

    agents: dict[str, AgentTally] = field(default_factory=dict)

    def add(self, event: Event) -> None:
        """Count an event."""
        if isinstance(event, RolloutScored):
            agent = self.agents.setdefault(event.agent, AgentTally())
            agent.scored += 1
            agent.reward += event.reward
            agent.seconds += event.seconds
            agent.output_tokens += event.output_tokens or 0
        elif isinstance(event, RolloutFailed):
            agent = self.agents.setdefault(event.agent, AgentTally())
            (agent.failed if event.final else agent.retried)[event.kind] += 1

    @property
    def scored(self) -> int:
        return sum(agent.scored for agent in self.agents.values())

    @property
    def failed(self) -> Counter[str]:
        return sum((agent.failed for agent in self.agents.values()), Counter())

    @property
    def done(self) -> int:
        return self.scored + self.failed.total()
