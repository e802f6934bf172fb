"""What happens during a run, as typed events. Terminal, JSON and metrics are consumers of the same stream."""

from __future__ import annotations

import msgspec


class RunStarted(msgspec.Struct, frozen=True, tag="run_started"):
    """The plan is written; rollouts begin."""

    requested: int
    tasks: int
    output: str
    at: float


class RolloutScored(msgspec.Struct, frozen=True, tag="rollout_scored"):
    """A rollout ended with a reward."""

    task: int
    rollout: int
    agent: str
    reward: float
    seconds: float
    input_tokens: int | None = None
    output_tokens: int | None = None


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


class InstanceDied(msgspec.Struct, frozen=True, tag="instance_died"):
    """A child process ended by itself."""

    instance: str
    note: str


class RunFinished(msgspec.Struct, frozen=True, tag="run_finished"):
    """Everything that was asked for has an outcome."""

    requested: int
    scored: int
    failed: dict[str, int]
    seconds: float
    output: str


Event = RunStarted | RolloutScored | RolloutFailed | InstanceDied | RunFinished
