"""The numbers of scored and failed rollouts, per agent: what one record adds, the sums, and the statistics of them."""

from __future__ import annotations

import msgspec

from gymnast.types.truncation import Truncation


class RolloutFacts(msgspec.Struct, frozen=True, gc=False):
    """What a scored rollout adds to the totals of its agent."""

    agent: str
    reward: float
    output_tokens: int | None = None
    truncated: Truncation | None = None
    masked: bool = False
    """Trainers must not train on it (`mask_sample`), and no mean counts it."""
    seconds: float | None = None
    """None if read from a file: records do not contain it."""


class AgentTotals(msgspec.Struct, frozen=True, omit_defaults=True):
    """Sums over the rollouts of one agent."""

    scored: int = 0
    masked: int = 0
    truncated: int = 0
    reward: float = 0.0
    """Of the rollouts that are not masked."""
    metered: int = 0
    """Rollouts that reported their output tokens."""
    output_tokens: int = 0
    timed: int = 0
    """Rollouts whose duration is known."""
    seconds: float = 0.0
    failed: dict[str, int] = {}
    """Permanently failed rollouts, by kind."""
    retried: dict[str, int] = {}
    """Failed attempts that were retried, by kind."""

    def stats(self) -> AgentStats:
        """The statistics to show."""
        counted = self.scored - self.masked
        return AgentStats(
            scored=self.scored,
            mean_reward=self.reward / counted if counted else None,
            failed=sum(self.failed.values()),
            retried=sum(self.retried.values()),
            truncated=self.truncated,
            masked=self.masked,
            mean_output_tokens=self.output_tokens / self.metered if self.metered else None,
            mean_seconds=self.seconds / self.timed if self.timed else None,
        )


class AgentStats(msgspec.Struct, frozen=True):
    """The statistics of one agent's rollouts."""

    scored: int
    mean_reward: float | None
    """Of the scored rollouts that are not masked."""
    failed: int
    retried: int
    truncated: int = 0
    masked: int = 0
    mean_output_tokens: float | None = None
    mean_seconds: float | None = None
    """Of the rollouts whose duration is known."""
