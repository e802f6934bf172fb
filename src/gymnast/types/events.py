"""The events of a run. The terminal, JSON output and metrics consume the same stream."""

from __future__ import annotations

import msgspec

from gymnast.types.totals import AgentStats
from gymnast.types.truncation import Truncation
from gymnast.types.usage import ModelUsage


class RunStarted(msgspec.Struct, frozen=True, tag="run_started"):
    """The plan is written; rollouts start."""

    requested: int
    tasks: int
    output: str
    at: float
    settled: int = 0
    """Rollouts that earlier invocations settled."""


class RolloutScored(msgspec.Struct, frozen=True, tag="rollout_scored"):
    """A rollout ended with a reward."""

    task: int
    rollout: int
    agent: str
    reward: float
    seconds: float
    input_tokens: int | None = None
    output_tokens: int | None = None
    truncated: Truncation | None = None
    masked: bool = False
    """Trainers must not train on it."""


class RolloutFailed(msgspec.Struct, frozen=True, tag="rollout_failed"):
    """An attempt at a rollout failed."""

    task: int
    rollout: int
    agent: str
    kind: str
    layer: str
    stage: str
    message: str
    seconds: float
    final: bool = False
    """It will not be retried."""


class InstanceDied(msgspec.Struct, frozen=True, tag="instance_died"):
    """A child process died."""

    instance: str
    note: str


class RunFinished(msgspec.Struct, frozen=True, tag="run_finished"):
    """The run ended. requested = scored + failed + owed."""

    requested: int
    scored: int
    failed: dict[str, int]
    owed: int
    state: str
    seconds: float
    output: str
    attempts: int = 0
    retries: int = 0
    note: str | None = None
    """Why it ended with rollouts owed, for people."""
    concurrency: int = 0
    """The limit of rollouts in flight at the end."""
    longest_lag_s: float = 0.0
    """The longest time the event loop was blocked."""
    spent: ModelUsage = ModelUsage()
    """What the model calls of all attempts used, including earlier invocations."""
    is_out_of_budget: bool = False
    """It ended because its budget was used up."""
    agents: dict[str, AgentStats] = {}
    """The statistics of each agent's rollouts, of the whole run."""
    settled_before: int = 0
    """Rollouts that earlier invocations settled."""
    this_invocation: AgentStats | None = None
    """The statistics of this invocation alone, over all agents."""


Event = RunStarted | RolloutScored | RolloutFailed | InstanceDied | RunFinished
